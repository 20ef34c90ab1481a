"""A session: one life of a node, and the calls it makes, each held against the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import reef
from reef import Options, Settings
from simulation.bucket import Bucket
from simulation.intent import Attempt, Document, Intent, State
from simulation.observer import Observer
from simulation.store import SimulatedStore
from simulation.world import Crash, Process, Violation, World

Result = TypeVar("Result")

SETTINGS = Settings(retention=60.0, grace=40.0, window_seconds=100 * 86_400.0)
PATIENCE = max(SETTINGS.retention, SETTINGS.grace)
SCHEMA = {"id": "string", "v": "int64", "token": "string"}
OPTIONS = Options(
    fold_bytes=3_000,
    segment_bytes=2_500,
    large_batch_bytes=2_000,
    fan_in=2,
    most_inputs=2,
    cache_bytes=1024 * 1024,
)
IDS = tuple("abcdefghijkl")

# The store would not say, or somebody else came first: a program may only try again.
PASSING: tuple[type[reef.ReefError], ...] = (
    reef.StoreUnavailable,
    reef.CommitUncertain,
    reef.ConcurrentPublication,
    reef.Fenced,
)


@dataclass
class Stage:
    """What all nodes share: the world, the bucket, and work that waits to be tried again."""

    world: World
    bucket: Bucket
    observer: Observer
    unsettled: list[Intent] = field(default_factory=list)
    tokens: int = 0


class Session:
    """A database opened by one process. Every call either returns what the model allows, raises
    an error that the call may raise, or is a violation."""

    def __init__(self, stage: Stage, process: Process, random: Random) -> None:
        self.stage = stage
        self.process = process
        self.random = random
        self.observer = stage.observer
        store = SimulatedStore(stage.bucket, process)
        self.database = reef.connect(store, options=OPTIONS, environment=process.environment)

    def sleep(self, seconds: float) -> None:
        """Do nothing for a while."""
        self.process.environment.sleep(seconds)

    def note(self, kind: str, subject: str = "", outcome: str = "") -> None:
        """Tell the trace."""
        self.stage.world.note(self.process.name, kind, subject, outcome)

    def attempt(
        self, name: str, call: Callable[[], Result], *allowed: type[reef.ReefError]
    ) -> Result | None:
        """Call, and return the result, or None after an error that is allowed."""
        self.note(name, "", "begins")
        try:
            result = call()
        except PASSING + allowed as error:
            self.alive()
            self.note(name, "", f"{type(error).__name__}: {error}")
            return None
        except reef.ReefError as error:
            self.alive()
            raise Violation(f"{name} raised {type(error).__name__}: {error}") from error
        self.alive()
        self.note(name, "", "ends")
        return result

    def alive(self) -> None:
        """End here if the process died: some code turns any interruption into an error."""
        if self.process.dead:
            raise Crash

    # Opening

    def open(self, mode: str) -> reef.Namespace | None:
        """A handle, or None if that did not work."""
        if mode == "w":
            return self.attempt(
                "open for writing",
                lambda: self.database.namespace(
                    "n", schema=SCHEMA, settings=SETTINGS, maintain=False
                ),
            )
        there = bool(self.observer.generations)
        allowed = () if there else (reef.NamespaceNotFound,)
        return self.attempt("open", lambda: self.database.namespace("n", "r"), *allowed)

    # Writing

    def write(self, ns: reef.Namespace, intent: Intent) -> bool:
        """Try an intent once. False if this handle is of no more use."""
        attempt = Attempt(intent, self.process.name)
        low = ns.lsn if not intent.load else 0
        self.note("write", intent.describe(), "begins")
        self.process.attempt = attempt
        try:
            if intent.load:
                receipt = ns.load(
                    intent.upserts, idempotency_key=intent.key, truncate=intent.truncate
                )
            else:
                receipt = ns.write(**intent.arguments())
        except (reef.ConditionFailed, reef.Fenced, reef.ConcurrentPublication) as error:
            self._ended(intent, f"refused: {error}")
            self.observer.refused(attempt, error, low)
            self._keep(intent)
            return not isinstance(error, reef.Fenced)
        except (reef.CommitUncertain, reef.StoreUnavailable) as error:
            self._ended(intent, f"unknown: {type(error).__name__}: {error}")
            self._keep(intent)
            return True
        except reef.ReefError as error:
            self._ended(intent, "failed")
            raise Violation(f"{intent.token} raised {type(error).__name__}: {error}") from error
        finally:
            self.process.attempt = None
            if self.process.dead:
                self._keep(intent)
        self._ended(intent, f"acknowledged in slot {receipt.lsn}")
        self.observer.acknowledged(attempt, receipt)
        if not intent.load and ns.lsn < receipt.lsn:
            raise Violation(f"{intent.token} was acknowledged and is not seen by its own writer")
        return True

    def _ended(self, intent: Intent, outcome: str) -> None:
        self.alive()
        self.note("write", intent.token, outcome)

    def _keep(self, intent: Intent) -> None:
        """A keyed batch whose outcome is open is tried again, by whoever finds it."""
        waiting = self.stage.unsettled
        if intent.key is not None and not intent.settled and intent not in waiting:
            waiting.append(intent)

    # Reading

    def _past(self, what: str, since: float, error: reef.PastRetention) -> None:
        """A read found that its state is gone: only one that took long enough may."""
        self.alive()
        self.note(what, "", str(error))
        if self.stage.world.time - since < PATIENCE - OPTIONS.staleness:
            raise Violation(f"{what} says that what is retained is gone: {error}") from error

    def scan(self, ns: reef.Namespace) -> None:
        """Read everything."""
        began = self.stage.world.time
        low = ns.lsn
        self.note("scan", f"from slot {low}", "begins")
        try:
            found: State = {str(row["id"]): row for row in ns.scan().documents()}
        except reef.PastRetention as error:
            self._past("scan", began, error)
            return
        high = ns.lsn
        self.alive()
        self.note("scan", f"to slot {high}", f"{len(found)} documents")
        self.observer.read_all(found, low, high)
        self.forward(low, high)

    def get(self, ns: reef.Namespace, id: str) -> Document | None:
        """Read one document."""
        began = self.stage.world.time
        low = ns.lsn
        try:
            found = ns.get(id)
        except reef.PastRetention as error:
            self._past("get", began, error)
            return None
        high = ns.lsn
        self.alive()
        self.note("get", id, f"{found} between slots {low} and {high}")
        self.observer.read_document(id, found, low, high)
        self.forward(low, high)
        return found

    def forward(self, low: int, high: int) -> None:
        """A view never goes back."""
        if high < low:
            raise Violation(f"{self.process.name} saw slot {low} and then only slot {high}")

    def refresh(self, ns: reef.Namespace) -> None:
        """Catch up: everything committed before is seen after."""
        low = ns.lsn
        committed = self.observer.newest
        ns.refresh()
        self.alive()
        self.note("refresh", "", f"slot {ns.lsn}")
        self.forward(max(low, committed), ns.lsn)

    def travel(self, ns: reef.Namespace, lsn: int) -> None:
        """Read everything as of a slot."""
        self.note("at", f"slot {lsn}", "begins")
        try:
            then = ns.at(lsn=lsn)
            found: State = {str(row["id"]): row for row in then.scan().documents()}
        except reef.PastRetention as error:
            since = self.observer.slots[lsn - 1].time if lsn else self.observer.generations[0].time
            self._past(f"at slot {lsn}", since, error)
            return
        self.alive()
        self.note("at", f"slot {lsn}", f"{len(found)} documents")
        self.observer.read_all(found, lsn, lsn)

    def changes(self, ns: reef.Namespace, after: int) -> None:
        """Read the feed from a slot on."""
        committed = self.observer.newest
        began = self.stage.world.time
        self.note("changes", f"after slot {after}", "begins")
        try:
            feed = list(ns.changes(after=after))
        except reef.PastRetention as error:
            since = self.observer.slots[after].time if after < self.observer.newest else began
            self._past(f"changes after slot {after}", since, error)
            return
        self.alive()
        self.note("changes", f"after slot {after}", f"{len(feed)} changes")
        self.observer.read_changes(after, feed, committed)

"""A session: one life of a node, and the calls it makes, each held against the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import reef
from reef import Options, Settings
from reef.documents.database import PREFIX, declared_schema
from reef.documents.reading import FrozenReading
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.retention.pins import pin, unpin
from reef.lsm.tree import Tree
from reef.segment import BlockCache
from simulation.bucket import Bucket
from simulation.intent import Attempt, Document, Intent, State
from simulation.model import DocumentModel, difference
from simulation.observer import Observer, TreeObserver
from simulation.store import SimulatedStore
from simulation.world import Crash, Process, Violation, World

Result = TypeVar("Result")

SETTINGS = Settings(retention=60.0, grace=40.0, window_seconds=100 * 86_400.0)
PATIENCE = max(SETTINGS.retention, SETTINGS.grace)
TYPES = {"v": "int64", "token": "string"}
SCHEMA = {"id": "string", **TYPES}
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
    reef.NamespaceNotFound,
)

# A write that raises one of these is not in the log and will not be.
REFUSING: tuple[type[reef.ReefError], ...] = (
    reef.ConditionFailed,
    reef.SchemaConflict,
    reef.Fenced,
    reef.ConcurrentPublication,
    reef.NamespaceNotFound,
)


@dataclass
class Stage:
    """What all nodes share: the world, the bucket, work that waits to be tried again, and how long
    programs wait between steps."""

    world: World
    bucket: Bucket
    observer: Observer
    unsettled: dict[str, list[Intent]] = field(default_factory=dict)
    pace: float = 1.0


@dataclass(eq=False)
class Held:
    """A handle on the state after a slot, that somebody keeps; pinned for certain until then."""

    reading: FrozenReading
    lsn: int
    what: str
    name: str
    pinned_until: float = 0.0


class Session:
    """A database opened by one process. Every call either returns what the model allows, raises
    an error that the call may raise, or is a violation."""

    def __init__(self, stage: Stage, process: Process, random: Random, name: str = "n") -> None:
        self.stage = stage
        self.name = name
        self.process = process
        self.random = random
        self.tokens = 0
        self.life = 0
        self.gone = False
        store = SimulatedStore(stage.bucket, process)
        self.database = reef.connect(store, options=OPTIONS, environment=process.environment)

    @property
    def observer(self) -> TreeObserver:
        """What happened, as far as the program may know: what it looks at here is part of what it
        knows from now on."""
        observer = self.stage.observer.tree(self.name)
        self.process.world.learned(self.process, observer.newest, observer.roots.newest)
        return observer

    @property
    def model(self) -> DocumentModel:
        """What must be readable; looking at it is to know it, too."""
        return self.observer.model

    @property
    def unsettled(self) -> list[Intent]:
        """Keyed batches of this life of the namespace that wait to be tried again."""
        waiting = self.stage.unsettled.setdefault(self.name, [])
        waiting[:] = [intent for intent in waiting if intent.life == self.life]
        return waiting

    def token(self) -> str:
        """A name that nobody else gives."""
        self.tokens += 1
        return f"{self.process.name}.{self.tokens}"

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
        except self._passing + allowed as error:
            self.alive()
            if isinstance(error, reef.NamespaceNotFound):
                self.check_gone(name, error)
            self.note(name, "", f"{type(error).__name__}: {error}")
            return None
        except reef.ReefError as error:
            self.alive()
            raise Violation(f"{name} raised {type(error).__name__}: {error}") from error
        self.alive()
        self.note(name, "", "ends")
        return result

    @property
    def _passing(self) -> tuple[type[reef.ReefError], ...]:
        """What says that it did not work this time."""
        return (*PASSING, reef.Corruption) if self._damage else PASSING

    def check_gone(self, what: str, error: reef.ReefError) -> None:
        """Only a namespace that was dropped since it was opened is not there."""
        self.gone = True
        if len(self.observer.drops) <= self.life:
            raise Violation(f"{what} raised {type(error).__name__}: {error}") from error

    @property
    def _damage(self) -> bool:
        """Whether something is damaged, or arrived damaged."""
        return bool(self.stage.world.damages or self.stage.observer.tree(self.name).damaged)

    def alive(self) -> None:
        """End here if the process died: some code turns any interruption into an error."""
        if self.process.dead:
            raise Crash

    # Opening

    def open(self, mode: str) -> reef.Namespace | None:
        """A handle, or None if that did not work."""
        observer = self.observer
        # Where there is none, or it goes meanwhile, that may be said.
        self.life = len(observer.drops) if observer.there else -1
        if mode == "w":
            ns = self.attempt(
                "open for writing",
                lambda: self.database.namespace(
                    self.name, schema=SCHEMA, settings=SETTINGS, maintain=False
                ),
            )
        else:
            ns = self.attempt("open", lambda: self.database.namespace(self.name, "r"))
        if ns is not None:
            opened = ns
            life = self.attempt("look", lambda: self.observer.life_of(opened.lsn))
            if life is None:
                ns = None
            else:
                self.life = life
        self.gone = False
        return ns

    def drop(self) -> None:
        """End the namespace."""
        observer = self.observer
        self.life = len(observer.drops) if observer.there else -1
        self.attempt("drop", lambda: self.database.drop(self.name))

    # Writing

    def write(self, ns: reef.Namespace, intent: Intent) -> bool:
        """Try an intent once. False if this handle is of no more use."""
        attempt = Attempt(intent, self.process.name, self.life)
        low = ns.lsn if not intent.load else 0
        self.note("write", intent.describe(), "begins")
        self.process.attempt = attempt
        try:
            receipt = _perform(ns, intent)
        except REFUSING as error:
            self._ended(intent, f"refused: {error}")
            if isinstance(error, reef.NamespaceNotFound):
                self.check_gone(intent.token, error)
            self.model.refused(attempt, error, low)
            self._keep(intent)
            return not isinstance(error, reef.Fenced | reef.NamespaceNotFound)
        except (reef.CommitUncertain, reef.StoreUnavailable, reef.Corruption) as error:
            if isinstance(error, reef.Corruption) and not self._damage:
                raise Violation(f"{intent.token} raised {type(error).__name__}: {error}") from error
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
        if receipt is None:
            self._ended(intent, "acknowledged")
            if self.life == len(self.observer.drops):
                self.model.declared(attempt)
            return True
        self._ended(intent, f"acknowledged in slot {receipt.lsn}")
        self.model.acknowledged(attempt, receipt)
        if not intent.load and ns.lsn < receipt.lsn:
            raise Violation(f"{intent.token} was acknowledged and is not seen by its own writer")
        return True

    def _ended(self, intent: Intent, outcome: str) -> None:
        self.alive()
        self.note("write", intent.token, outcome)

    def _keep(self, intent: Intent) -> None:
        """A keyed batch whose outcome is open is tried again, by whoever finds it."""
        waiting = self.unsettled
        if intent.key is not None and not intent.settled and intent not in waiting:
            intent.life = self.life
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
        self.model.read_all(found, low, high)
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
        self.model.read_document(id, found, low, high)
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
            since = (
                self.observer.slots[lsn - 1].time
                if lsn
                else self.observer.roots.generations[0].time
            )
            self._past(f"at slot {lsn}", since, error)
            return
        self.alive()
        self.note("at", f"slot {lsn}", f"{len(found)} documents")
        self.model.read_all(found, lsn, lsn)

    def hold(self, ns: reef.Namespace, *, generation: int = 0, lsn: int = 0) -> Held | None:
        """A handle on the state of a generation, or after a slot, to be read again and again."""
        observer = self.observer
        what = f"generation {generation}" if generation else f"slot {lsn}"
        self.note("hold", what, "begins")
        try:
            reading = ns.at(generation=generation) if generation else ns.at(lsn=lsn)
        except reef.PastRetention as error:
            since = observer.superseded(generation) if generation else observer.slots[lsn - 1].time
            self._past(f"at {what}", since, error)
            return None
        self.alive()
        published = observer.roots.generations[reading.generation - 1].root
        if reading._view.manifest.nonce != published.nonce:
            raise Violation(
                f"at {what} reads a generation that was won again after it was collected"
            )
        applied = published.last_applied_lsn
        held = Held(reading, lsn or applied, what, f"pin-{self.token()}")
        if reading.lsn != held.lsn or (generation and reading.generation != generation):
            raise Violation(f"at {what} is slot {reading.lsn} of generation {reading.generation}")
        return held

    def reread(self, held: Held) -> bool:
        """Read what is held: the same as ever, or gone because its retention has passed."""
        reading = held.reading
        expected: Mapping[str, Document | None] = self.model.states[held.lsn]
        found: Mapping[str, Document | None]
        kind = self.random.randrange(3)
        began = self.stage.world.time
        self.note("reread", held.what, "begins")
        try:
            if held.pinned_until:
                reading = self._elsewhere(reading)
            if kind == 0:
                id = self.random.choice(IDS)
                found, expected = {id: reading.get(id)}, {id: expected.get(id)}
            elif kind == 1:
                found = dict(zip(IDS, reading.get_many(IDS), strict=True))
                expected = {id: expected.get(id) for id in IDS}
            else:
                found = {str(row["id"]): row for row in reading.scan().documents()}
        except reef.PastRetention as error:
            self._lost(held, began, error)
            return False
        self.alive()
        self.note("reread", held.what, f"{len(found)} documents")
        if found != expected:
            raise Violation(f"what is held of {held.what} differs: {difference(found, expected)}")
        return True

    def _elsewhere(self, reading: FrozenReading) -> FrozenReading:
        """The same state as a process sees it that has nothing in memory."""
        database = self.database
        store = database.store.below(f"{PREFIX}{self.name}/")
        cache = BlockCache(1 << 20)
        tree = Tree(store, database.environment, database.options, cache, self.name)
        return FrozenReading(view_of(tree, moment_of(reading._view)))

    def _lost(self, held: Held, began: float, error: reef.PastRetention) -> None:
        """What is held is gone: it must neither be retained nor have been pinned."""
        self._past(held.what, self.observer.superseded(held.reading.generation), error)
        if began < held.pinned_until and self.stage.world.time < held.pinned_until:
            raise Violation(f"{held.what} is pinned, and gone: {error}") from error

    def pin(self, ns: reef.Namespace, held: Held) -> bool:
        """Keep what is held from collection, or let it go again. False if it is gone already."""
        if held.pinned_until and self.random.random() < 0.3:
            held.pinned_until = 0.0
            self.note("unpin", held.what, "begins")
            unpin(ns._tree, held.name)
            return True
        return self.pin_for(ns, held, PATIENCE * self.random.choice((0.5, 5.0)))

    def pin_for(self, ns: reef.Namespace, held: Held, seconds: float) -> bool:
        """Keep what is held from collection for that long. False if it is gone already."""
        began = self.stage.world.time
        self.note("pin", held.what, f"for {seconds} s")
        try:
            pin(ns._tree, held.reading._view, held.name, seconds)
        except reef.PastRetention as error:
            self.alive()
            age = self.stage.world.time - self.observer.superseded(held.reading.generation)
            over = len(self.observer.drops) > self.life
            kept = age < PATIENCE or began < held.pinned_until > self.stage.world.time
            if kept and not over:
                raise Violation(f"{held.what} could not be pinned: {error}") from error
            return False
        self.alive()
        # The bucket stamped the publication no earlier than this began.
        held.pinned_until = began + seconds
        return True

    # Health

    def verify(self, ns: reef.Namespace) -> None:
        """Nothing is ever damaged here, whoever is at work."""
        report = ns.verify(deep=True)
        self.alive()
        if not report.sound:
            raise Violation(f"verification found {report.problems}")

    def repair(self, ns: reef.Namespace, *, apply: bool) -> None:
        """Where nothing is damaged there is nothing to do."""
        report = ns.repair(apply=apply)
        self.alive()
        observer = self.stage.observer.tree(self.name)
        if observer.damaged:
            observer.lost |= apply and bool(report.lost_lsns or report.lost_ids)
            return
        if report.actions or report.quarantined or report.lost_lsns or report.lost_ids:
            raise Violation(f"repair has something to do where nothing is damaged: {report}")

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
        self.model.read_changes(after, feed, committed)


def _perform(ns: reef.Namespace, intent: Intent) -> reef.Receipt | None:
    if intent.declares:
        ns.declare(declared_schema(intent.declares))
        return None
    if intent.load:
        return ns.load(intent.upserts, idempotency_key=intent.key, truncate=intent.truncate)
    return ns.write(**intent.arguments())

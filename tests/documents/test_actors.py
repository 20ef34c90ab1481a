"""Many actors at once in one thread: each may be put to sleep before or after any of its requests
while the others go on, under a seeded scheduler that also loses answers and moves the clock.

`REEF_SEEDS` in the environment asks for more seeds than a run of all tests has time for.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.errors import StoreUnavailable
from reef.store import MemoryStore
from reef.store.contract import Result
from support.faults import MUTATING, Clock, Crash, FaultyStore

SEEDS = int(os.environ.get("REEF_SEEDS", "60"))
DEEPEST = 3
OPTIONS = Options(fan_in=2, most_inputs=3, fold_bytes=3_000, segment_bytes=3_000, staleness=1e9)


class ActorStore(FaultyStore):
    """A bucket as one actor sees it: the scheduler has a word before and after each request."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self.world = world

    def _do(self, kind: str, key: str, call: Callable[[], Result]) -> Result:
        chance = self.world.chance
        self.world.interlude()
        if kind in MUTATING and chance.random() < 0.01:
            raise StoreUnavailable("refused")
        result = super()._do(kind, key, call)
        self.world.interlude()
        if kind in MUTATING and chance.random() < 0.01:
            raise StoreUnavailable("lost")
        return result

    def _submit(self, call: Callable[[], Result]) -> Any:
        from reef.store.contract import _run_at_once

        return _run_at_once(call)

    def concurrently(self, calls: Any) -> list[Any]:
        return [call() for call in calls]


class World:
    """The bucket, the actors, and what is known of every write."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock(seed=seed)
        self.store = MemoryStore(self.clock.environment())
        self.settings = Settings(retention=200, grace=200)
        self.depth = 0
        self.quiet = True
        self.number = 0
        self.acknowledged: dict[int, int] = {}
        self.uncertain: set[int] = set()
        self.fields: dict[int, str] = {}
        self.writers: list[Namespace] = [self.open("w")]
        self.readers: list[Namespace] = [self.open("r")]
        self.busy: set[int] = set()
        self.writers[0].write(upserts=[{"id": "t", "p0": 0}])
        self.quiet = False

    def open(self, mode: str) -> Namespace:
        return Database(ActorStore(self), OPTIONS, self.clock.environment()).namespace(
            "n", mode, maintain=False, settings=self.settings
        )

    def interlude(self) -> None:
        """Perhaps somebody else acts now, while whoever asked sleeps."""
        if self.quiet or self.depth >= DEEPEST or self.chance.random() > 0.04:
            return
        self.depth += 1
        try:
            for _ in range(self.chance.choice([1, 1, 2, 6])):
                self.act()
        finally:
            self.depth -= 1

    def act(self) -> None:
        action = self.chance.choice(
            [self.write] * 6 + [self.load, self.fold, self.fold, self.compact, self.collect]
            + [self.collect, self.reopen, self.look, self.sleep]
        )  # fmt: skip
        action()

    def idle(self, handles: list[Namespace]) -> Namespace | None:
        """A handle that is not asleep within a call: one thread cannot be in two of them."""
        free = [handle for handle in handles if id(handle) not in self.busy]
        return self.chance.choice(free) if free else None

    def run(self, handle: Namespace, call: Callable[[], reef.Receipt | object]) -> object:
        self.busy.add(id(handle))
        try:
            return call()
        except (reef.Fenced, reef.ConcurrentPublication, reef.StoreError, reef.CommitUncertain):
            return None
        finally:
            self.busy.discard(id(handle))

    def write(self) -> None:
        handle = self.idle(self.writers)
        if handle is None:
            return
        self.number += 1
        number = self.number
        field = f"p{number % 4}"
        self.fields[number] = field
        self.uncertain.add(number)
        receipt = self.run(
            handle,
            lambda: handle.write(
                upserts=[{"id": f"u{number}", "n": number}, {"id": "s", "n": number}],
                patches=[{"id": "t", field: number}],
                idempotency_key=f"k{number}",
            ),
        )
        if isinstance(receipt, reef.Receipt):
            self.uncertain.discard(number)
            self.acknowledged[number] = receipt.lsn

    def load(self) -> None:
        handle = self.idle(self.readers)
        if handle is None:
            return
        self.number += 1
        number = self.number
        self.uncertain.add(number)
        rows = [{"id": f"u{number}", "n": number}, {"id": "s", "n": number}]
        receipt = self.run(handle, lambda: handle.load(rows))
        if isinstance(receipt, reef.Receipt):
            self.uncertain.discard(number)
            self.acknowledged[number] = receipt.lsn

    def fold(self) -> None:
        handle = self.idle(self.readers + self.writers)
        if handle is not None:
            self.run(handle, handle.index)

    def compact(self) -> None:
        handle = self.idle(self.readers + self.writers)
        if handle is not None:
            self.run(handle, lambda: handle.compact(full=self.chance.random() < 0.5))

    def collect(self) -> None:
        handle = self.idle(self.readers + self.writers)
        if handle is not None:
            self.run(handle, lambda: handle.gc(apply=True))

    def reopen(self) -> None:
        try:
            if self.chance.random() < 0.5:
                self.writers.append(self.open("w"))
                self.writers = self.writers[-3:]
            else:
                self.readers.append(self.open("r"))
                self.readers = self.readers[-3:]
        except (reef.Fenced, reef.StoreError, reef.CommitUncertain):
            pass

    def sleep(self) -> None:
        self.clock.advance(self.chance.choice([1, 20, 60, 250, 500]))

    def look(self) -> None:
        """Everything acknowledged before somebody opens the bucket is there for them."""
        known = dict(self.acknowledged)
        quiet, self.quiet = self.quiet, True
        try:
            self.check(self.open("r"), known)
        except StoreUnavailable:
            pass
        finally:
            self.quiet = quiet

    def check(self, ns: Namespace, known: dict[int, int]) -> None:
        rows = {str(row["id"]): row for row in ns.scan().documents()}
        missing = [number for number in known if f"u{number}" not in rows]
        assert not missing, f"acknowledged and lost: {missing}"
        if known:
            newest = max(known, key=known.__getitem__)
            shown = rows["s"]["n"]
            assert shown == newest or shown in self.uncertain
        for field in ("p0", "p1", "p2", "p3"):
            mine = [number for number in known if self.fields.get(number) == field]
            if mine:
                newest = max(mine, key=known.__getitem__)
                assert rows["t"][field] == newest or rows["t"][field] in self.uncertain
        ids = sorted(rows)
        assert ns.get_many(ids) == [rows[id] for id in ids]

    def end(self) -> None:
        """When all is quiet: a new writer, a full round of upkeep, and everything is sound."""
        self.quiet = True
        self.chance = random.Random(0)
        self.chance.random = lambda: 1.0  # type: ignore[method-assign]
        self.check(self.open("r"), self.acknowledged)
        ns = self.open("w")
        for number in list(self.acknowledged):
            if number in self.fields:
                again = ns.write(upserts=[{"id": "x"}], idempotency_key=f"k{number}")
                assert again.lsn == self.acknowledged[number]
        while ns.index() is not None:
            pass
        ns.compact(full=True)
        for _ in range(3):
            self.clock.advance(10_000)
            ns.gc(apply=True)
        self.check(ns, self.acknowledged)
        assert ns.get("x") is None
        report = ns.verify(deep=True)
        assert report.sound, report.problems
        assert report.orphans == 0
        assert not [slot for slot, _ in ns._tree.log.list(1) if slot < ns.status().wal_floor]


@pytest.mark.parametrize("start", range(0, SEEDS, 10))
def test_seeds(start: int) -> None:
    for seed in range(start, min(start + 10, SEEDS)):
        world = World(seed)
        try:
            for _ in range(30):
                world.act()
            world.end()
        except (AssertionError, reef.ReefError, Crash) as failure:
            raise AssertionError(f"seed {seed}: {failure!r}") from failure

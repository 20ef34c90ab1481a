"""The crash matrix: a program dies at each request that it makes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.lsm.retention.reachability import reachable_segments
from reef.store import FolderStore, MemoryStore, Store
from support.faults import Clock, Crash, FaultyStore, Match, request

State = dict[str, dict[str, Any]]
PREFIX = "namespaces/n/"
OPTIONS = Options(fan_in=2, most_inputs=3)


@dataclass(frozen=True)
class Step:
    """A write, with what it does to the model, or upkeep, which must change nothing."""

    run: Callable[[Namespace], object]
    change: Callable[[State], State] | None = None


def write(change: Callable[[State], State], key: str, **operations: Any) -> Step:
    return Step(lambda ns: ns.write(**operations, idempotency_key=key), change)


def upserted(*rows: dict[str, Any]) -> Callable[[State], State]:
    return lambda state: {**state, **{row["id"]: row for row in rows}}


def patched(id: str, **values: Any) -> Callable[[State], State]:
    return lambda state: {**state, id: {**state[id], **values}}


def without(*ids: str) -> Callable[[State], State]:
    return lambda state: {id: row for id, row in state.items() if id not in ids}


def then(*changes: Callable[[State], State]) -> Callable[[State], State]:
    def all_of_them(state: State) -> State:
        for change in changes:
            state = change(state)
        return state

    return all_of_them


FIRST = [{"id": f"d{n}", "number": n, "text": "t" * n} for n in range(6)]
LOADED = [{"id": "d3", "number": 33}, {"id": "load", "number": 7, "fresh": True}]


def script(pass_time: Callable[[], None]) -> list[Step]:
    fold = Step(lambda ns: ns.index())
    full = Step(lambda ns: ns.compact(full=True))
    collect = Step(lambda ns: (pass_time(), ns.gc(apply=True)))
    return [
        write(upserted(*FIRST), "k1", upserts=FIRST),
        write(
            then(patched("d1", number=None), without("d2")),
            "k2",
            patches=[{"id": "d1", "number": None}],
            deletes=["d2"],
        ),
        fold,
        write(
            then(upserted({"id": "d2", "text": "again"}), patched("d0", number=100)),
            "k3",
            upserts=[{"id": "d2", "text": "again"}],
            patches=[{"id": "d0", "number": 100}],
        ),
        Step(lambda ns: ns.load(LOADED, idempotency_key="k4"), upserted(*LOADED)),
        fold,
        full,
        collect,
        write(without("d4", "d5"), "k5", delete_where="number >= 4 and number <= 5"),
        write(patched("load", number=8), "k6", patches=[{"id": "load", "number": 8}]),
        fold,
        Step(lambda ns: ns.compact()),
        collect,
        write(upserted({"id": "end"}), "k7", upserts=[{"id": "end"}]),
    ]


def states(steps: list[Step]) -> list[State]:
    """What must be readable after each number of steps."""
    found: list[State] = [{}]
    for step in steps:
        found.append(step.change(found[-1]) if step.change else found[-1])
    return found


@dataclass
class Place:
    """A kind of store, the clock that goes with it, and how time passes there."""

    store: Store
    clock: Clock
    settings: Settings

    def pass_time(self) -> None:
        self.clock.advance(10_000)

    def connect(self, store: Store | None = None) -> Database:
        return Database(store or self.store, OPTIONS, self.clock.environment())


def place_of(store: Store) -> Place:
    clock = Clock()
    if isinstance(store, MemoryStore):
        return Place(MemoryStore(clock.environment()), clock, Settings(retention=60, grace=60))
    return Place(store, clock, Settings(retention=0, grace=0))


def run(place: Place, faulty: FaultyStore) -> int:
    """The script until it dies; how many steps were acknowledged."""
    done = 0
    try:
        ns = place.connect(faulty).namespace("n", maintain=False, settings=place.settings)
        for step in script(place.pass_time):
            step.run(ns)
            done += 1
    except Crash:
        pass
    except reef.CommitUncertain as uncertain:
        if not isinstance(uncertain.__cause__, Crash):
            raise
    return done


def contents(ns: Namespace) -> State:
    scanned = {str(row["id"]): row for row in ns.scan().documents()}
    ids = sorted({*scanned, *(f"d{n}" for n in range(6))})
    assert dict(zip(ids, ns.get_many(ids), strict=True)) == {id: scanned.get(id) for id in ids}
    assert ns.count() == len(scanned)
    return scanned


def recover_and_check(place: Place, done: int) -> None:
    steps = script(place.pass_time)
    expected = states(steps)
    with place.connect().namespace("n", maintain=False, settings=place.settings) as ns:
        found = contents(ns)
        if done == len(steps):
            assert found == expected[done]
        else:
            assert found in (expected[done], expected[done + 1])
        # Whoever was not answered tries again; the idempotency key makes it one write.
        for number in range(done, len(steps)):
            steps[number].run(ns)
        ns.index()
        ns.compact(full=True)
        place.pass_time()
        ns.gc(apply=True)
        place.pass_time()
        ns.gc(apply=True)
        assert contents(ns) == expected[-1]
        report = ns.verify(deep=True)
        assert report.sound, report.problems
        assert report.orphans == 0
        manifest = ns._tree.head.manifest
        named = reachable_segments(manifest, ns._tree.view.ingests)
        assert {info.key for info in ns._tree.store.list("segments/")} == named
        assert all(lsn >= manifest.wal_floor for lsn, _ in ns._tree.log.list(1))
    with place.connect().namespace("n", "r") as reader:
        assert contents(reader) == expected[-1]


def requests_of_script(place: Place) -> list[tuple[str, str]]:
    faulty = FaultyStore(place.store)
    assert run(place, faulty) == len(script(place.pass_time))
    recover_and_check(place, len(script(place.pass_time)))
    return faulty.requests


def matrix(make: Callable[[], Place], step: int = 1) -> Iterator[tuple[int, str, Place, int]]:
    count = len(requests_of_script(make()))
    assert count > 40
    for nth in range(1, count + 1, step):
        for when in ("before", "after"):
            place = make()
            faulty = FaultyStore(place.store)
            getattr(faulty, f"crash_{when}")(nth=nth)
            done = run(place, faulty)
            assert faulty.dead
            yield nth, when, place, done


def test_dying_at_every_request_in_memory() -> None:
    for _, _, place, done in matrix(lambda: place_of(MemoryStore())):
        recover_and_check(place, done)


def test_dying_at_many_requests_on_a_folder(folder_store: FolderStore) -> None:
    numbers = iter(range(10_000))
    for _, _, place, done in matrix(
        lambda: place_of(folder_store.below(f"run-{next(numbers)}")), 8
    ):
        recover_and_check(place, done)


POINTS: dict[str, tuple[str, Match, int]] = {
    "the namespace's first manifest": ("after", request("create", "manifest/"), 1),
    "the fence": ("after", request("create", "wal/"), 1),
    "a commit, before it is applied": ("after", request("create", "wal/"), 2),
    "a fold's upload, before its publication": ("after", request("put", "segments/"), 1),
    "a fold's publication, before the hint": ("after", request("create", "manifest/"), 3),
    "a load's upload, before its record": ("after", request("put", "segments/"), 3),
    "a load's record": ("after", request("create", "wal/"), 5),
    "a compaction's upload": ("after", request("put", "segments/"), 6),
    "a compaction's publication": ("after", request("create", "manifest/"), 6),
    "a collection's publication, before any delete": ("before", request("delete"), 1),
    "the first delete": ("after", request("delete"), 1),
    "the third delete": ("after", request("delete"), 3),
}


@pytest.mark.parametrize("point", POINTS)
def test_dying_at_the_named_points(point: str, store: Store) -> None:
    when, match, nth = POINTS[point]
    place = place_of(store)
    faulty = FaultyStore(place.store)
    getattr(faulty, f"crash_{when}")(match, nth)
    done = run(place, faulty)
    assert faulty.dead
    recover_and_check(place, done)


def test_orphans_of_a_dead_fold_wait_for_their_grace() -> None:
    place = place_of(MemoryStore())
    faulty = FaultyStore(place.store)
    faulty.crash_before(request("create", "manifest/"), 3)
    run(place, faulty)
    with place.connect().namespace("n", maintain=False) as ns:
        before = ns.verify().orphans
        assert before
        assert ns.gc(apply=True).deleted == 0
        assert ns.verify().orphans == before
        place.clock.advance(61)
        assert ns.gc(apply=True).deleted >= before
        assert ns.verify().orphans == 0
        assert contents(ns) == states(script(place.pass_time))[2]

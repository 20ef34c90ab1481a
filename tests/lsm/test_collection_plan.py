"""What may be deleted, as a table. The bucket's clock says 1000; retention 100, grace 50."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reef.log import WAL
from reef.lsm.retention.collection import Collection, plan_collection
from reef.lsm.retention.reachability import first_retained_slot
from reef.manifest import MANIFESTS, LogSpan, Manifest, Settings, Superseded
from reef.segment import SegmentInfo
from reef.store import ObjectInfo

NOW = 1000.0


def segment(name: str, birth: int = 1) -> SegmentInfo:
    return SegmentInfo(name, birth, name, 0, 1, 0, "a", "b", 1, 1, 10, 1, 0)


def key(name: str, birth: int = 1) -> str:
    return segment(name, birth).key


@dataclass
class Case:
    """Objects by key with the times they appeared, and what is expected of them."""

    objects: dict[str, float]
    due: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)
    floor: int = 0
    forgotten: int | None = None
    generation: int = 9
    wal_floor: int = 1
    orphan_floor: int = 0
    segments: tuple[SegmentInfo, ...] = ()
    window: tuple[SegmentInfo, ...] = ()
    ingests: tuple[SegmentInfo, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    folded: tuple[LogSpan, ...] = ()
    retention: float = 100
    grace: float = 50


M, L = MANIFESTS.key, WAL.key

CASES: dict[str, Case] = {
    "an empty bucket": Case({}, forgotten=0),
    "what is live": Case({M(9): 0, key("s"): 0, L(1): 0}, segments=(segment("s"),)),
    "the idempotency window is live": Case({M(9): 0, key("w"): 0}, window=(segment("w"),)),
    "an unfolded ingest is live": Case({M(9): 0, key("i"): 0}, ingests=(segment("i"),)),
    "superseded long ago": Case(
        {M(9): 0, key("s"): 0}, superseded=(Superseded(key("s"), 9),), due={key("s")}, forgotten=9
    ),
    "superseded exactly the retention ago": Case(
        {M(9): 900, key("s"): 0}, superseded=(Superseded(key("s"), 9),), due={key("s")}
    ),
    "superseded just now, though written long ago": Case(
        {M(9): 901, key("s"): 0},
        superseded=(Superseded(key("s"), 9),),
        waiting={key("s")},
        forgotten=0,
    ),
    "a grace longer than the retention rules": Case(
        {M(9): 850, key("s"): 0},
        superseded=(Superseded(key("s"), 9),),
        waiting={key("s")},
        grace=200,
    ),
    "a generation that was collected and put there again is as old as its successor": Case(
        {M(2): 990, M(3): 10, M(9): 20, L(1): 0},
        wal_floor=2,
        folded=(LogSpan(1, 1, 3),),
        due={M(2), M(3), L(1)},
        forgotten=9,
    ),
    "superseded by a generation that is gone counts from the next": Case(
        {M(9): 950, key("s"): 0}, superseded=(Superseded(key("s"), 4),), waiting={key("s")}
    ),
    "superseded and deleted already": Case({M(9): 0}, superseded=(Superseded(key("s"), 9),)),
    "log folded long ago": Case(
        {M(9): 100, L(1): 0, L(2): 0, L(3): 0},
        wal_floor=3,
        folded=(LogSpan(1, 2, 9),),
        due={L(1), L(2)},
    ),
    "log folded just now": Case(
        {M(9): 950, L(1): 0}, wal_floor=2, folded=(LogSpan(1, 1, 9),), waiting={L(1)}
    ),
    "each span by its own generation": Case(
        {M(8): 100, M(9): 950, L(1): 0, L(2): 0, L(3): 0},
        wal_floor=3,
        folded=(LogSpan(1, 1, 8), LogSpan(2, 2, 9)),
        due={L(1)},
        waiting={L(2), M(8)},
        forgotten=8,
    ),
    "a slot below the floor that nobody remembers, by its own age": Case(
        {M(9): 0, L(1): 0, L(2): 950},
        wal_floor=5,
        due={L(1)},
        waiting={L(2)},
    ),
    "old generations, from when they were replaced": Case(
        {M(6): 0, M(7): 100, M(8): 950, M(9): 960},
        due={M(6)},
        waiting={M(7), M(8)},
        forgotten=7,
    ),
    "the newest generation never": Case({M(9): 0}, forgotten=9),
    "a generation above the head is not touched": Case({M(9): 0, M(10): 0}),
    "an orphan past its grace": Case({M(9): 0, key("o", 3): 900}, orphans={key("o", 3)}, floor=4),
    "an orphan exactly at its grace": Case(
        {M(9): 0, key("o", 3): 950}, orphans={key("o", 3)}, floor=4
    ),
    "an orphan within its grace": Case({M(9): 0, key("o", 3): 951}, waiting={key("o", 3)}),
    "a job that still uploads protects its first uploads": Case(
        {M(9): 0, key("o1", 3): 100, key("o2", 3): 990},
        waiting={key("o1", 3), key("o2", 3)},
        floor=3,
    ),
    "and does not protect older ones": Case(
        {M(9): 0, key("o1", 2): 100, key("o2", 3): 990, key("o3", 5): 100},
        orphans={key("o1", 2)},
        waiting={key("o2", 3), key("o3", 5)},
        floor=3,
    ),
    "the floor never sinks": Case(
        {M(9): 0, key("o", 3): 900}, orphans={key("o", 3)}, orphan_floor=7, floor=7
    ),
    "below the floor but young waits": Case(
        {M(9): 0, key("o", 3): 990}, waiting={key("o", 3)}, orphan_floor=7, floor=7
    ),
    "without orphans the floor stays": Case({M(9): 0}, orphan_floor=7, floor=7),
    "a superseded segment is no orphan": Case(
        {M(9): 990, key("s"): 0}, superseded=(Superseded(key("s"), 9),), waiting={key("s")}
    ),
    "what is not Reef's is left alone": Case(
        {M(9): 0, "wal/strange": 0, "manifest/x": 0, "segments/x": 0, "other": 0}
    ),
    "no patience at all": Case(
        {M(8): 1000, M(9): 1000, key("s"): 1000, L(1): 1000, key("o", 3): 1000},
        superseded=(Superseded(key("s"), 9),),
        wal_floor=2,
        folded=(LogSpan(1, 1, 9),),
        due={M(8), key("s"), L(1)},
        orphans={key("o", 3)},
        floor=4,
        forgotten=9,
        retention=0,
        grace=0,
    ),
}


def plan(case: Case) -> Collection:
    manifest = Manifest(
        case.generation,
        "n",
        0.0,
        "p",
        "x",
        settings=Settings(case.retention, case.grace),
        wal_floor=case.wal_floor,
        orphan_floor=case.orphan_floor,
        segments=case.segments,
        window=case.window,
        superseded=case.superseded,
        folded=case.folded,
    )
    objects = [ObjectInfo(name, 10, when, "v") for name, when in sorted(case.objects.items())]
    return plan_collection(manifest, objects, case.ingests, NOW)


@pytest.mark.parametrize(
    ("floor", "folded", "first"),
    [
        (1, [], 1),
        (9, [], 9),
        (9, [(1, 8)], 1),
        (9, [(5, 8)], 5),
        (9, [(5, 6), (7, 8)], 5),
        (9, [(7, 8), (5, 6)], 5),
        (9, [(1, 3), (7, 8)], 7),
        (9, [(1, 3)], 9),
    ],
)
def test_where_the_retained_log_begins(
    floor: int, folded: list[tuple[int, int]], first: int
) -> None:
    spans = tuple(LogSpan(start, stop, 1) for start, stop in folded)
    manifest = Manifest(9, "n", 0.0, "p", "x", wal_floor=floor, folded=spans)
    assert first_retained_slot(manifest) == first


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    case = CASES[name]
    found = plan(case)
    assert {doomed.key for doomed in found.due} == case.due
    assert {doomed.key for doomed in found.waiting} == case.waiting
    assert {doomed.key for doomed in found.orphans} == case.orphans
    assert found.orphan_floor == case.floor
    if case.forgotten is not None:
        assert found.forgotten == case.forgotten
    assert found.bytes == 10 * len(case.due | case.orphans)


@pytest.mark.parametrize("name", CASES)
def test_what_waits_is_due_when_its_time_has_come(name: str) -> None:
    found = plan(CASES[name])
    assert all(doomed.due <= NOW for doomed in (*found.due, *found.orphans))
    # Only uploads that share a birth with younger ones may be overdue and wait.
    floor = found.orphan_floor
    for doomed in found.waiting:
        assert doomed.due > NOW or int(doomed.key.split("/")[1][:20]) >= floor

"""What may be deleted, as a table. The bucket's clock says 1000; retention 100, grace 50."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from reef.log import WAL
from reef.lsm.retention.collect import NAMING
from reef.lsm.retention.collection import Pinned, Plan, plan_collection
from reef.lsm.retention.reachability import (
    Needs,
    are_retained_slots,
    first_retained_slot,
    kept_objects,
    kept_slots,
    reachable_segments,
)
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
    pinned: tuple[Pinned, ...] = ()
    oldest: int = 0
    raised: int | None = None
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
        {M(5): 0, M(6): 0, M(7): 100, M(8): 950, M(9): 960},
        due={M(5), M(6)},
        waiting={M(7), M(8)},
        forgotten=7,
        raised=7,
    ),
    "one old generation alone is not worth a publication": Case(
        {M(6): 0, M(7): 100, M(8): 950, M(9): 960}, waiting={M(6), M(7), M(8)}, raised=0
    ),
    "what lies below the oldest generation is garbage, however new": Case(
        {M(3): 999, M(7): 950, M(9): 960}, oldest=7, due={M(3)}, waiting={M(7)}, raised=7
    ),
    "and tells nothing about when the others appeared": Case(
        {M(3): 10, M(8): 950, M(9): 960, key("s"): 0},
        oldest=8,
        superseded=(Superseded(key("s"), 9),),
        due={M(3)},
        waiting={M(8), key("s")},
        forgotten=8,
    ),
    "a pin keeps what its state names, and nothing else": Case(
        {M(3): 0, M(4): 0, M(9): 0, key("s"): 0, key("t"): 0, L(1): 0, L(2): 0, L(3): 0},
        wal_floor=4,
        superseded=(Superseded(key("s"), 5), Superseded(key("t"), 5)),
        folded=(LogSpan(1, 3, 6),),
        pinned=(Pinned("p", Needs(3, frozenset({key("s")}), 2, 2), 2000),),
        due={M(4), key("t"), L(1), L(3)},
        waiting={M(3), key("s"), L(2)},
        forgotten=9,
        raised=9,
    ),
    "a pin whose state cannot be read keeps all that came later": Case(
        {M(9): 0, key("s"): 0, key("t"): 0, L(1): 0, L(2): 0},
        wal_floor=3,
        superseded=(Superseded(key("s"), 3), Superseded(key("t"), 4)),
        folded=(LogSpan(1, 1, 3), LogSpan(2, 2, 4)),
        pinned=(Pinned("p", Needs(3, None), None),),
        due={key("s"), L(1)},
        waiting={key("t"), L(2)},
    ),
    "what a pin kept goes when it is gone, however old": Case(
        {M(8): 950, M(9): 960, key("s"): 0, L(1): 0},
        oldest=8,
        wal_floor=9,
        superseded=(Superseded(key("s"), 3),),
        folded=(LogSpan(1, 1, 3),),
        due={key("s"), L(1)},
        waiting={M(8)},
    ),
    "a generation that is damaged above the head raises nothing past it": Case(
        {M(9): 0, M(10): 0}, forgotten=9
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


def plan(case: Case) -> Plan:
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
        oldest_generation=case.oldest,
    )
    objects = [ObjectInfo(name, 10, when, "v") for name, when in sorted(case.objects.items())]
    named = reachable_segments(manifest, case.ingests)
    return plan_collection(manifest, objects, named, NOW, NAMING, case.pinned)


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


def test_what_is_left_of_the_lists() -> None:
    superseded = tuple(Superseded(key(name), by) for name, by in (("a", 2), ("b", 5), ("c", 9)))
    folded = (LogSpan(1, 10, 2), LogSpan(11, 20, 5), LogSpan(21, 30, 9))
    root = Manifest(9, "n", 0.0, "p", "x", wal_floor=31, superseded=superseded, folded=folded)
    assert kept_objects(root, 5, ()) == superseded[2:]
    assert kept_slots(root, 5, ()) == folded[2:]
    one = Needs(1, frozenset({key("a")}), 4, 12)
    two = Needs(1, frozenset({key("a"), key("c")}), 6, 7)
    assert kept_objects(root, 5, [one, two]) == (superseded[0], superseded[2])
    kept = kept_slots(root, 5, [one, two])
    assert kept == (LogSpan(4, 10, 2), LogSpan(11, 12, 5), folded[2])
    rest = Manifest(10, "n", 0.0, "p", "x", wal_floor=31, folded=kept)
    assert are_retained_slots(rest, 4, 12)
    assert are_retained_slots(rest, 21, 99)
    assert not are_retained_slots(rest, 3, 12)
    assert not are_retained_slots(rest, 4, 13)
    assert first_retained_slot(rest) == 21
    assert kept_slots(rest, 9, [Needs(2, None)]) == (LogSpan(11, 12, 5), folded[2])


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    case = CASES[name]
    found = plan(case)
    assert {doomed.key for doomed in found.due} == case.due
    assert {doomed.key for doomed in found.waiting} == case.waiting
    assert {doomed.key for doomed in found.orphans} == case.orphans
    assert found.orphan_floor == case.floor
    if case.forgotten is not None:
        assert found.through == case.forgotten
    if case.raised is not None:
        assert found.oldest_generation == case.raised
    assert found.bytes == 10 * len(case.due | case.orphans)


@pytest.mark.parametrize("name", CASES)
def test_what_waits_is_due_when_its_time_has_come(name: str) -> None:
    found = plan(CASES[name])
    assert all(d.due is not None and d.due <= NOW for d in (*found.due, *found.orphans))
    # Only uploads that share a birth with younger ones may be overdue and wait, and a generation
    # that is not worth a publication.
    floor = found.orphan_floor
    for doomed in found.waiting:
        overdue = doomed.due is not None and doomed.due <= NOW
        assert not overdue or int(doomed.key.split("/")[1].split(".")[0][:20]) >= floor

"""The past: states by slot, generation and moment, and the log as a feed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import reef
from reef import InvalidInput, Options, PastRetention, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore, Store
from support.faults import Clock


class World:
    def __init__(self, **settings: float) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        self.database = Database(self.store, Options(), self.clock.environment())
        chosen = Settings(**{"retention": 1_000.0, "grace": 100.0, **settings})  # type: ignore[arg-type]
        self.ns: Namespace = self.database.namespace("n", maintain=False, settings=chosen)

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)


@pytest.fixture
def world() -> World:
    return World()


def test_every_slot_can_be_visited_however_it_lies(world: World) -> None:
    ns = world.ns
    for number in range(12):
        ns.write(upserts=[{"id": "a", "n": number}, {"id": f"d{number}"}])
        if number % 3 == 2:
            ns.index()
        if number == 8:
            ns.compact(full=True)
    for number in range(12):
        then = ns.at(lsn=number + 2)
        assert then.get("a") == {"id": "a", "n": number}
        assert then.count() == number + 2
    assert ns.at(lsn=0).count() == ns.at(lsn=1).count() == 0
    with pytest.raises(InvalidInput):
        ns.at(lsn=14)


def test_generations(world: World) -> None:
    ns = world.ns
    seen = {}
    for number in range(4):
        ns.write(upserts=[{"id": "a", "n": number}])
        ns.index()
        seen[ns.generation] = number
    ns.write(upserts=[{"id": "a", "n": 99}])
    for generation, number in seen.items():
        then = ns.at(generation=generation)
        assert then.get("a") == {"id": "a", "n": number}
        assert then.generation == generation
    with pytest.raises(InvalidInput):
        ns.at(generation=ns.generation + 1)


def test_moments(world: World) -> None:
    ns = world.ns
    moments = []
    for number in range(6):
        world.clock.advance(10)
        ns.write(upserts=[{"id": "a", "n": number}])
        world.clock.advance(10)
        moments.append(world.moment())
        if number == 3:
            world.clock.advance(10)
            ns.index()
    for number, moment in enumerate(moments):
        assert ns.at(time=moment).get("a") == {"id": "a", "n": number}
    with pytest.raises(InvalidInput):
        ns.at(time=datetime(2030, 1, 1))
    with pytest.raises(PastRetention):
        ns.at(time=datetime(2001, 1, 1, tzinfo=UTC))


def test_a_state_of_the_past_does_not_move(world: World) -> None:
    ns = world.ns
    ns.write(upserts=[{"id": "a", "n": 1}])
    then = ns.at(lsn=ns.lsn)
    ns.write(upserts=[{"id": "a", "n": 2}, {"id": "b"}])
    ns.index()
    assert then.get("a") == {"id": "a", "n": 1}
    assert then.get("b") is None
    assert then.count() == 1


def test_the_past_ends_with_the_retention(world: World) -> None:
    ns = world.ns
    for number in range(3):
        ns.write(upserts=[{"id": "a", "n": number}])
        ns.index()
    generation = ns.generation - 1
    then = ns.at(generation=generation)
    ns.compact(full=True)
    world.clock.advance(999)
    ns.gc(apply=True)
    assert then.get("a") == {"id": "a", "n": 1}
    assert ns.at(lsn=2).get("a") == {"id": "a", "n": 0}
    assert [change.lsn for change in ns.changes()] == [2, 3, 4]
    world.clock.advance(10)
    ns.gc(apply=True)
    with pytest.raises(PastRetention):
        ns.at(generation=generation)
    with pytest.raises(PastRetention):
        ns.at(lsn=2)
    with pytest.raises(PastRetention):
        list(ns.changes())
    assert list(ns.changes(after=ns.lsn)) == []
    assert ns.get("a") == {"id": "a", "n": 2}
    fresh = world.database.namespace("n", "r")
    old = Database(world.store, Options(), world.clock.environment()).namespace("n", "r")
    assert old.get("a") == fresh.get("a") == {"id": "a", "n": 2}


def test_changes_are_complete_and_in_order(store: Store) -> None:
    ns = reef.connect(store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "s": None}])
    ns.write(patches=[{"id": "a", "n": None}, {"id": "nobody", "n": 1}], deletes=["b"])
    ns.load([{"id": "c", "n": 3}])
    ns.index()
    ns.load([{"id": "d", "n": 4}], truncate=True)
    found = [(change.lsn, change.kind, change.id, change.document) for change in ns.changes()]
    assert found == [
        (2, "upsert", "a", {"id": "a", "n": 1}),
        (2, "upsert", "b", {"id": "b", "s": None}),
        (3, "patch", "a", {"id": "a", "n": None}),
        (3, "delete", "b", None),
        (4, "upsert", "c", {"id": "c", "n": 3}),
        (5, "truncate", None, None),
        (5, "upsert", "d", {"id": "d", "n": 4}),
    ]
    assert [change.lsn for change in ns.changes(after=3)] == [4, 5, 5]
    assert list(ns.changes(after=5)) == list(ns.changes(after=10**25)) == []


def test_following_by_the_last_lsn_seen_misses_nothing(world: World) -> None:
    ns = world.ns
    reader = world.database.namespace("n", "r")
    seen: list[object] = []
    last = 0
    for number in range(20):
        ns.write(upserts=[{"id": f"d{number}"}])
        if number % 4 == 0:
            ns.index()
        if number % 3 == 0:
            for change in reader.changes(after=last):
                seen.append(change.id)
                last = change.lsn
    seen += [change.id for change in reader.changes(after=last)]
    assert seen == [f"d{number}" for number in range(20)]


def test_a_feed_that_fell_behind_is_told(world: World) -> None:
    ns = world.ns
    ns.write(upserts=[{"id": "a"}])
    ns.index()
    world.clock.advance(10_000)
    ns.gc(apply=True)
    ns.write(upserts=[{"id": "b"}])
    with pytest.raises(PastRetention):
        list(ns.changes(after=0))
    with pytest.raises(PastRetention):
        list(ns.changes(after=1))
    assert [change.id for change in ns.changes(after=2)] == ["b"]


def test_a_load_in_the_past(world: World) -> None:
    ns = world.ns
    ns.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    ns.load([{"id": "a", "n": 2}])
    ns.write(patches=[{"id": "a", "m": 3}])
    ns.load([{"id": "c"}], truncate=True)
    ns.index()
    assert list(ns.at(lsn=2).scan().documents()) == [{"id": "a", "n": 1}, {"id": "b", "n": 1}]
    assert ns.at(lsn=3).get_many(["a", "b"]) == [{"id": "a", "n": 2}, {"id": "b", "n": 1}]
    assert ns.at(lsn=4).get("a") == {"id": "a", "n": 2, "m": 3}
    assert list(ns.at(lsn=5).scan().documents()) == [{"id": "c"}]


def test_a_filter_over_a_load_above_unfolded_rows(world: World) -> None:
    """A group that the filter rules out still hides older rows of the log."""
    ns = world.ns
    ns.write(upserts=[{"id": "k", "x": 1}, {"id": "l", "x": 1}])
    ns.load([{"id": "k", "x": 2}])
    assert [row["id"] for row in ns.scan(filter="x = 1").documents()] == ["l"]
    assert ns.count("x = 2") == 1
    assert ns.write(delete_where="x = 1").deleted == 1
    assert ns.get("k") == {"id": "k", "x": 2}


def test_a_fold_that_ends_before_a_truncation_keeps_what_was_there_before_it(world: World) -> None:
    """The writer does not hold any more what a truncating load hid; the past still has it."""
    options = Options(fold_bytes=1)
    writer = world.database.namespace("n", maintain=False, options=options)
    first = writer.write(upserts=[{"id": "a"}])
    second = writer.load([{"id": "b"}])
    third = writer.load([{"id": "c"}], truncate=True)
    fourth = writer.write(upserts=[{"id": "d"}])
    while writer.index() is not None:
        for handle in (writer, world.database.namespace("n", "r")):
            states = [
                [row["id"] for row in handle.at(lsn=receipt.lsn).scan().documents()]
                for receipt in (first, second, third, fourth)
            ]
            assert states == [["a"], ["a", "b"], ["c"], ["c", "d"]]
    assert [row["id"] for row in writer.scan().documents()] == ["c", "d"]
    assert writer.verify(deep=True).sound


def test_reading_the_feed_does_not_change_what_reads_find(world: World) -> None:
    """The feed and the views share readers of segments: a load is as new in both."""
    writer = world.ns
    writer.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    writer.index()
    reader = world.database.namespace("n", "r")
    writer.load([{"id": "a", "n": 2}])
    assert [change.lsn for change in reader.changes(after=2)] == [3]
    reader.refresh()
    assert reader.get("a") == {"id": "a", "n": 2}
    assert reader.get_many(["a", "b"]) == [{"id": "a", "n": 2}, {"id": "b", "n": 1}]
    assert [row["n"] for row in reader.scan().documents()] == [2, 1]

"""Damage on the way: what one process cannot read, others can, and all come to agree."""

from __future__ import annotations

import logging

import pytest

import reef
from reef import Options
from reef.documents import Database, Namespace
from reef.log import WAL
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore, request

LOOKS = 4


class World:
    """A bucket; `faulty` is what the actor with the bad line sees of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        self.faulty = FaultyStore(self.store)

    def open(self, mode: str = "w", *, faulty: bool = False) -> Namespace:
        store: Store = self.faulty if faulty else self.store
        environment = self.clock.environment()
        return Database(store, Options(staleness=0), environment).namespace(
            "n", mode, maintain=False
        )

    def damage(self, lsn: int, times: int) -> None:
        self.faulty.damage(request("get", WAL.key(lsn)), times=times)

    def ids(self) -> set[object]:
        with self.open("r") as fresh:
            return ids(fresh)


def ids(ns: Namespace) -> set[object]:
    ns.refresh()
    return {row["id"] for row in ns.scan().documents()}


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.CRITICAL, "reef")
    return World()


@pytest.mark.parametrize("times", range(1, LOOKS))
@pytest.mark.parametrize("mode", ["w", "r"])
def test_one_damaged_answer_loses_nothing(world: World, mode: str, times: int) -> None:
    first = world.open()
    first.write(upserts=[{"id": "a"}])
    last = first.write(upserts=[{"id": "b"}]).lsn
    world.damage(last, times)
    second = world.open(mode, faulty=True)
    assert ids(second) == {"a", "b"}
    second.load([{"id": "c"}])
    assert world.ids() == {"a", "b", "c"}
    assert second.index() is not None
    assert world.ids() == ids(second) == {"a", "b", "c"}


def test_what_a_writer_gives_up_is_given_up_for_everybody(world: World) -> None:
    first = world.open()
    first.write(upserts=[{"id": "a"}])
    lost = first.write(upserts=[{"id": "b"}]).lsn
    reader = world.open("r")
    assert ids(reader) == {"a", "b"}
    world.damage(lost, LOOKS)
    second = world.open(faulty=True)
    assert second._tree.log.read(lost + 1).header.skips == (lost,)
    for who in (second, reader):
        assert ids(who) == {"a"}
    assert world.ids() == {"a"}
    second.write(upserts=[{"id": "b"}], condition=reef.if_absent())
    for who in (second, reader, world.open("r")):
        assert ids(who) == {"a", "b"}
        assert ids_at(who, lost) == {"a"}
        assert [change.id for change in who.changes()] == ["a", "b"]
        assert who.verify(deep=True).sound
    # The one that wrote it knows better, and is not asked.
    with pytest.raises(reef.Fenced):
        first.index()
    with pytest.raises(reef.Fenced):
        first.write(upserts=[{"id": "x"}])
    assert second.index() is not None
    for who in (second, reader, world.open("r")):
        assert ids(who) == {"a", "b"}


def ids_at(ns: Namespace, lsn: int) -> set[object]:
    return {row["id"] for row in ns.at(lsn=lsn).scan().documents()}


def test_a_fold_that_reads_the_log_passes_over_it_too(world: World) -> None:
    first = world.open()
    first.write(upserts=[{"id": "a"}])
    lost = first.write(upserts=[{"id": "b"}]).lsn
    first.close()
    world.damage(lost, LOOKS)
    world.open(faulty=True).write(upserts=[{"id": "c"}])
    with world.open("r") as indexer:
        assert indexer.index() is not None
    assert world.ids() == {"a", "c"}


def test_a_live_writer_lets_go_of_what_a_guest_gave_up(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    lost = writer.write(upserts=[{"id": "b"}], idempotency_key="k").lsn
    world.damage(lost, 3 * LOOKS)  # when it opens, before it sorts, and before it appends
    guest = world.open("r", faulty=True)
    guest.load([{"id": "c"}])
    assert ids(guest) == world.ids() == {"a", "c"}
    assert writer.get("b") == {"id": "b"}
    writer.write(upserts=[{"id": "d"}])
    assert ids(writer) == ids(guest) == world.ids() == {"a", "c", "d"}
    again = writer.write(upserts=[{"id": "b"}], condition=reef.if_absent(), idempotency_key="k")
    assert again.lsn > lost
    writer.index()
    assert ids(writer) == ids(guest) == world.ids() == {"a", "b", "c", "d"}


def test_a_slot_that_was_discarded_and_then_counted_on(world: World) -> None:
    """A guest that reads the end soundly comes between the look and the entry that would skip."""
    first = world.open()
    last = first.write(upserts=[{"id": "a"}]).lsn
    first.close()
    world.damage(last, LOOKS)

    def load() -> None:
        with world.open("r") as other:
            other.load([{"id": "b"}])

    world.faulty.pause_before(request("create", "wal/"), load)
    second = world.open(faulty=True)
    second.write(upserts=[{"id": "c"}])
    assert ids(second) == world.ids() == {"a", "b", "c"}


@pytest.mark.parametrize("times", [1, LOOKS - 1, LOOKS, LOOKS + 1, 2 * LOOKS])
def test_a_lost_answer_and_a_damaged_look_commit_once_or_are_in_doubt(
    world: World, times: int
) -> None:
    ns = world.open(faulty=True)
    ns.write(upserts=[{"id": "a", "n": 1}])
    world.faulty.lose_answer(request("create", "wal/"))
    world.damage(ns.lsn + 1, times)
    try:
        ns.write(upserts=[{"id": "b", "n": 1}], condition=reef.if_absent())
    except reef.CommitUncertain:
        assert LOOKS <= times < 2 * LOOKS
    assert ids(ns) == world.ids() == {"a", "b"}
    with pytest.raises(reef.ConditionFailed):
        ns.write(upserts=[{"id": "b"}], condition=reef.if_absent())
    ns.write(patches=[{"id": "b", "n": 2}])
    ns.index()
    assert world.open("r").get("b") == {"id": "b", "n": 2}
    changes = [change.id for change in ns.changes()]
    assert changes == ["a", "b", "b"]


def test_an_object_that_cannot_be_read_does_not_stop_the_writer(world: World) -> None:
    """Something that is no log object lies in the next slot: it was never committed."""
    ns = world.open()
    ns.write(upserts=[{"id": "a"}])
    world.store.put(f"namespaces/n/{WAL.key(ns.lsn + 1)}", b"half of an obj")
    ns.write(upserts=[{"id": "b"}])
    assert ids(ns) == world.ids() == {"a", "b"}
    assert ns._tree.log.read(ns.lsn).header.skips == (ns.lsn - 1,)

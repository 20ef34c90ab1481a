"""What a process does after an append whose fate nobody told it, and after its inputs vanished."""

from __future__ import annotations

from typing import Any

import pytest

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore, request


class World:
    """A bucket with a clock; `faulty` is what the actor in trouble sees of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        self.faulty = FaultyStore(self.store)

    def open(self, mode: str = "w", *, faulty: bool = False, **options: Any) -> Namespace:
        store: Store = self.faulty if faulty else self.store
        return Database(store, Options(**options), self.clock.environment()).namespace(
            "n", mode, maintain=False, settings=self.settings
        )


def doubtful_writer(world: World) -> Namespace:
    """A writer whose last commit, an upsert of "a", is in the bucket without its knowing."""
    writer = world.open(faulty=True)
    writer.write(upserts=[{"id": "z", "n": 0}])
    world.faulty.lose_answer(request("create", "wal/"), times=6)
    world.faulty.refuse(request("get", "wal/"), times=6)
    with pytest.raises(reef.CommitUncertain):
        writer.write(upserts=[{"id": "a", "n": 1}])
    assert world.open("r").get("a") == {"id": "a", "n": 1}
    return writer


def test_nothing_is_decided_against_a_state_that_may_lack_a_commit() -> None:
    """That there is nothing to patch, that a condition fails: it takes no PUT to say so."""
    writer = doubtful_writer(World(Settings()))
    assert writer.write(patches=[{"id": "a", "n": 2}]).patched == 1
    assert writer.get("a") == {"id": "a", "n": 2}
    writer = doubtful_writer(World(Settings()))
    assert writer.write(deletes=["a"], condition=reef.if_exists()).deleted == 1
    writer = doubtful_writer(World(Settings()))
    assert writer.write(delete_where="n = 1").deleted == 1


def test_a_commit_that_never_was_cannot_come_later() -> None:
    world = World(Settings())
    writer = world.open(faulty=True)
    writer.write(upserts=[{"id": "a", "n": 1}])
    world.faulty.refuse(request("create", "wal/"), times=6)
    with pytest.raises(reef.CommitUncertain):
        writer.write(deletes=["a"])
    slot = f"namespaces/n/wal/{writer.lsn + 1:020d}.wal"
    assert writer.write(patches=[{"id": "b", "n": 2}]).missing == 1
    # Its slot is taken, so that a request still under way would find it so.
    with pytest.raises(reef.StoreError):
        world.store.create(slot, b"late")
    assert writer.get("a") == {"id": "a", "n": 1}


def test_while_a_commit_is_not_settled_nothing_is_decided() -> None:
    world = World(Settings())
    writer = world.open(faulty=True)
    world.faulty.refuse(request("create", "wal/"), times=12)
    with pytest.raises(reef.CommitUncertain):
        writer.write(upserts=[{"id": "a"}])
    with pytest.raises(reef.StoreUnavailable):
        writer.write(patches=[{"id": "a", "n": 1}])
    assert writer.write(patches=[{"id": "a", "n": 1}]).missing == 1
    writer.write(upserts=[{"id": "b"}])
    assert {row["id"] for row in world.open("r").scan().documents()} == {"b"}


def test_a_load_that_cannot_be_confirmed_is_uncertain() -> None:
    world = World(Settings(retention=0, grace=0))
    world.open().close()
    loader = world.open("r", faulty=True)

    def fail_from_here() -> None:
        world.faulty.refuse(request("get", "hint"))

    world.faulty.pause_after(request("create", "wal/"), fail_from_here)
    with pytest.raises(reef.CommitUncertain):
        loader.load([{"id": "a"}], idempotency_key="k")
    assert world.open("r").get("a") == {"id": "a"}
    assert loader.load([{"id": "a"}], idempotency_key="k").upserted == 1
    assert world.open("r").lsn == loader.lsn


def vanish(world: World, other: Namespace) -> None:
    """Compact everything away, and collect it."""
    other.compact(full=True)
    for _ in range(2):
        world.clock.advance(1_000)
        other.gc(apply=True)


def test_a_compaction_whose_inputs_vanished_was_overtaken() -> None:
    world = World(Settings(retention=100, grace=100))
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": "a", "n": number}])
        writer.index()
    compactor = world.open("r", faulty=True)
    world.faulty.pause_before(request("get_range", "segments/"), lambda: vanish(world, writer))
    with pytest.raises(reef.ConcurrentPublication):
        compactor.compact(full=True)
    assert world.open("r").get("a") == {"id": "a", "n": 2}


def test_a_fold_whose_inputs_vanished_was_overtaken() -> None:
    world = World(Settings(retention=100, grace=100))
    writer = world.open()
    for number in range(2):
        writer.write(upserts=[{"id": f"a{number}", "n": number}])
        writer.index()
    writer.write(patches=[{"id": "a0", "n": 9}])
    indexer = world.open("r", faulty=True)
    world.faulty.pause_before(request("get_range", "segments/"), lambda: vanish(world, writer))
    with pytest.raises(reef.ConcurrentPublication):
        indexer.index()
    assert indexer.index() is not None
    assert world.open("r").get("a0") == {"id": "a0", "n": 9}


def test_an_input_that_was_lost_is_not_called_overtaken() -> None:
    world = World(Settings(retention=100, grace=100))
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": "a", "n": number}])
        writer.index()
    lost = next(world.store.list("namespaces/n/segments/")).key
    world.store.delete(lost)
    with pytest.raises(reef.Corruption, match="missing"):
        world.open("r").compact(full=True)


def test_a_writer_in_doubt_reads_what_the_bucket_holds() -> None:
    """Its own commit may be there: whoever else reads sees it."""
    world = World(Settings())
    writer = doubtful_writer(world)
    assert writer.get("a") == {"id": "a", "n": 1}
    assert [row["id"] for row in writer.scan().documents()] == ["a", "z"]
    assert writer.write(upserts=[{"id": "b"}]).lsn == world.open("r").lsn


def test_a_writer_in_doubt_looks_as_seldom_as_a_reader_does() -> None:
    world = World(Settings())
    writer = world.open(faulty=True)
    writer.write(upserts=[{"id": "z"}])
    world.faulty.refuse(request("create", "wal/"), times=6)
    with pytest.raises(reef.CommitUncertain):
        writer.write(upserts=[{"id": "a"}])
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1

    for nth in range(1, 9):
        world.faulty.pause_before(request("get", "hint"), look, nth=nth)
    for _ in range(5):
        assert writer.get("a") is None
    assert looks == 1
    world.clock.advance(2)
    assert writer.get("a") is None
    assert looks == 2
    writer.write(upserts=[{"id": "b"}])
    world.clock.advance(2)
    assert writer.get("b") == {"id": "b"}
    assert looks <= 4
    before = looks
    world.clock.advance(2)
    writer.get("b")
    assert looks == before

"""Collectors, indexers, loads and publishers that sleep at the worst moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

import reef
from reef import ConcurrentPublication, Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore, Store
from support.faults import Clock, Crash, FaultyStore, request

SETTINGS = Settings(retention=100, grace=100)


class World:
    """A bucket with a clock; `faulty` is what the actor who is to sleep sees of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        self.faulty = FaultyStore(self.store)

    def open(self, mode: str = "w", *, faulty: bool = False, **options: Any) -> Namespace:
        store: Store = self.faulty if faulty else self.store
        return Database(store, Options(**options), self.clock.environment()).namespace(
            "n", mode, maintain=False, settings=SETTINGS
        )

    def contents(self) -> dict[str, dict[str, Any]]:
        with self.open("r") as reader:
            return {str(row["id"]): row for row in reader.scan().documents()}


@pytest.fixture
def world() -> World:
    return World()


def collect_twice(world: World, ns: Namespace) -> None:
    for _ in range(2):
        world.clock.advance(1_000)
        ns.gc(apply=True)


def test_a_stalled_indexer_cannot_publish_what_was_condemned(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a", "n": 1}])
    indexer = world.open("r", faulty=True)

    def others() -> None:
        collect_twice(world, writer)
        assert not list(world.store.list("namespaces/n/segments/"))

    world.faulty.pause_before(request("create", "manifest/"), others)
    with pytest.raises(ConcurrentPublication):
        indexer.index()
    assert world.contents() == {"a": {"id": "a", "n": 1}}
    writer.index()
    assert world.contents() == {"a": {"id": "a", "n": 1}}
    assert writer.verify(deep=True).sound


def test_a_stalled_compactor_cannot_publish_what_was_condemned(world: World) -> None:
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": "a", "n": number}])
        writer.index()
    compactor = world.open("r", faulty=True)
    world.faulty.pause_before(
        request("create", "manifest/"), lambda: collect_twice(world, writer), nth=2
    )
    with pytest.raises(ConcurrentPublication):
        compactor.compact(full=True)
    assert world.contents() == {"a": {"id": "a", "n": 2}}
    assert writer.compact(full=True) is not None
    assert world.contents() == {"a": {"id": "a", "n": 2}}
    assert writer.verify(deep=True).sound


def test_a_fold_that_is_overtaken_by_another_gives_up(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a", "n": 1}])
    indexer = world.open("r", faulty=True)
    world.faulty.pause_before(request("create", "manifest/"), lambda: writer.index() and None)
    with pytest.raises(ConcurrentPublication):
        indexer.index()
    assert writer.status().levels[0].runs == 1
    assert world.contents() == {"a": {"id": "a", "n": 1}}


def test_a_compactor_that_is_superseded_gives_up(world: World) -> None:
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": "a", "n": number}])
        writer.index()
    compactor = world.open("r", faulty=True)
    world.faulty.pause_before(
        request("create", "manifest/"), lambda: writer.compact(full=True) and None, nth=2
    )
    with pytest.raises(ConcurrentPublication):
        compactor.compact(full=True)
    assert world.contents() == {"a": {"id": "a", "n": 2}}


def test_a_compactor_gives_up_for_one_that_only_took_over(world: World) -> None:
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": "a", "n": number}])
        writer.index()
    compactor = world.open("r", faulty=True)

    def take_over_and_die() -> None:
        dying = FaultyStore(world.store)
        dying.crash_before(request("put", "segments/"))
        other = Database(dying, Options(), world.clock.environment()).namespace("n", "r")
        with pytest.raises(Crash):
            other.compact(full=True)

    world.faulty.pause_before(request("create", "manifest/"), take_over_and_die, nth=2)
    with pytest.raises(ConcurrentPublication):
        compactor.compact(full=True)
    assert writer.compact(full=True) is not None
    assert world.contents() == {"a": {"id": "a", "n": 2}}


def test_a_fold_and_a_compaction_at_once_both_count(world: World) -> None:
    writer = world.open()
    for number in range(3):
        writer.write(upserts=[{"id": f"a{number}", "n": number}])
        writer.index()
    writer.write(patches=[{"id": "a0", "n": 10}], deletes=["a1"])
    compactor = world.open("r", faulty=True)
    world.faulty.pause_before(
        request("create", "manifest/"), lambda: writer.index() and None, nth=2
    )
    assert compactor.compact(full=True) is not None
    assert {id: row["n"] for id, row in world.contents().items()} == {"a0": 10, "a2": 2}
    assert writer.compact(full=True) is not None
    assert {id: row["n"] for id, row in world.contents().items()} == {"a0": 10, "a2": 2}


def test_a_stalled_load_is_refused(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    loader = world.open("r", faulty=True)
    world.faulty.pause_after(request("put", "segments/"), lambda: collect_twice(world, writer))
    before = {info.key for info in world.store.list("namespaces/n/wal/")}
    with pytest.raises(ConcurrentPublication):
        loader.load([{"id": "b"}])
    assert world.contents() == {"a": {"id": "a"}}
    writer.write(upserts=[{"id": "c"}])
    assert set(world.contents()) == {"a", "c"}
    assert len({info.key for info in world.store.list("namespaces/n/wal/")} - before) == 2


def test_a_load_whose_record_sleeps_past_a_condemnation_is_refused(world: World) -> None:
    """The last moment: it saw no condemnation, and its append comes after one."""
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    loader = world.open("r", faulty=True)
    world.faulty.pause_before(request("create", "wal/"), lambda: collect_twice(world, writer))
    with pytest.raises(ConcurrentPublication):
        loader.load([{"id": "b"}])
    assert world.contents() == {"a": {"id": "a"}}
    assert writer.verify(deep=True).sound


def test_a_load_that_is_ingested_just_before_the_condemnation_stays(world: World) -> None:
    """The collector planned to delete it; its own record shows that it is wanted."""
    collector = world.open(faulty=True)
    collector.write(upserts=[{"id": "a"}])
    stalled = FaultyStore(world.store)
    sleepy = Database(stalled, Options(), world.clock.environment()).namespace("n", "r")
    log_create = request("create", "wal/")
    # The load uploads, then time passes, then the collector publishes its floor; before its
    # condemn record goes out, the load appends its ingest record.
    uploaded, go = Event(), Event()

    def wait() -> None:
        uploaded.set()
        assert go.wait(10)

    stalled.pause_before(log_create, wait)
    outcome: list[Any] = []
    thread = Thread(target=lambda: outcome.append(sleepy.load([{"id": "b", "n": 1}])))
    thread.start()
    assert uploaded.wait(10)
    world.clock.advance(1_000)

    def let_the_load_win() -> None:
        go.set()
        thread.join(10)

    world.faulty.pause_before(log_create, let_the_load_win)
    collector.gc(apply=True)
    assert outcome
    assert outcome[0].upserted == 1
    assert set(world.contents()) == {"a", "b"}
    collector.index()
    collect_twice(world, collector)
    assert set(world.contents()) == {"a", "b"}
    assert collector.verify(deep=True).sound


def test_a_live_load_that_keeps_uploading_is_left_alone(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    loader = world.open("r", faulty=True, segment_bytes=1)

    def upkeep() -> None:
        world.clock.advance(60)
        writer.write(upserts=[{"id": "a"}])
        writer.index()
        writer.gc(apply=True)

    for nth in range(1, 8):
        world.faulty.pause_after(request("put", "segments/"), upkeep, nth=nth)

    def pieces() -> Iterator[list[dict[str, Any]]]:
        for part in range(8):
            yield [{"id": f"p{part}-{row:04}", "text": "x" * 500} for row in range(400)]

    receipt = loader.load(pieces())
    assert receipt.upserted == 3200
    assert len(world.contents()) == 3201
    collect_twice(world, writer)
    assert len(world.contents()) == 3201
    assert writer.verify(deep=True).sound


def test_a_batch_that_races_a_load_decides_again(world: World) -> None:
    writer = world.open(faulty=True)
    writer.write(upserts=[{"id": "a"}])
    loader = world.open("r")
    world.faulty.pause_before(
        request("create", "wal/"), lambda: loader.load([{"id": "b", "n": 1}]) and None
    )
    with pytest.raises(reef.ConditionFailed) as caught:
        writer.write(upserts=[{"id": "b", "n": 2}], condition=reef.if_absent())
    assert caught.value.ids == ("b",)
    assert world.contents()["b"] == {"id": "b", "n": 1}
    assert writer.get("b") == {"id": "b", "n": 1}
    assert writer.write(patches=[{"id": "b", "n": 3}]).patched == 1
    assert world.contents()["b"] == {"id": "b", "n": 3}


def test_a_batch_that_races_a_load_meets_its_schema(world: World) -> None:
    writer = world.open(faulty=True)
    writer.write(upserts=[{"id": "a"}])
    loader = world.open("r")
    world.faulty.pause_before(
        request("create", "wal/"), lambda: loader.load([{"id": "b", "n": "text"}]) and None
    )
    with pytest.raises(reef.SchemaConflict):
        writer.write(upserts=[{"id": "c", "n": 2}])
    assert set(world.contents()) == {"a", "b"}
    writer.write(upserts=[{"id": "c", "n": "2"}])
    writer.index()
    assert set(world.contents()) == {"a", "b", "c"}


def test_a_load_that_races_a_batch_meets_its_schema(world: World) -> None:
    writer = world.open()
    loader = world.open("r", faulty=True)
    world.faulty.pause_before(
        request("create", "wal/"), lambda: writer.write(upserts=[{"id": "a", "n": 1}]) and None
    )
    with pytest.raises(reef.SchemaConflict):
        loader.load([{"id": "b", "n": "text"}])
    assert set(world.contents()) == {"a"}


def test_a_fold_by_somebody_else_brings_its_schema(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a", "n": 1}])
    other = world.open("r")
    other.load([{"id": "b", "fresh": 1}])
    other.index()
    writer.index()
    assert "fresh" in writer.schema.attributes
    with pytest.raises(reef.SchemaConflict):
        writer.write(upserts=[{"id": "c", "fresh": "text"}])
    writer.write(upserts=[{"id": "c", "fresh": 2}])
    writer.index()
    assert world.contents()["b"] == {"id": "b", "fresh": 1}


def test_a_stale_publisher_that_wins_a_collected_number_is_not_believed(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    sleeper = world.open("r", faulty=True)

    def others() -> None:
        for number in range(3):
            writer.write(upserts=[{"id": f"b{number}"}])
            writer.index()
        collect_twice(world, writer)
        collect_twice(world, writer)

    world.faulty.pause_before(request("create", "manifest/"), others)
    with pytest.raises(ConcurrentPublication):
        sleeper.index()
    assert set(world.contents()) == {"a", "b0", "b1", "b2"}
    writer.write(upserts=[{"id": "c"}])
    writer.index()
    assert set(world.contents()) == {"a", "b0", "b1", "b2", "c"}
    collect_twice(world, writer)
    assert set(world.contents()) == {"a", "b0", "b1", "b2", "c"}


def test_reads_that_meet_a_collected_object_look_again(world: World) -> None:
    writer = world.open()
    for number in range(4):
        writer.write(upserts=[{"id": f"a{number}", "n": number}])
        writer.index()
    reader = world.open("r", staleness=1e9)
    writer.compact(full=True)
    collect_twice(world, writer)
    assert reader.get("a1") == {"id": "a1", "n": 1}
    other = world.open("r", staleness=1e9)
    writer.write(upserts=[{"id": "b"}])
    writer.index()
    writer.compact(full=True)
    collect_twice(world, writer)
    assert len(list(other.scan().documents())) == 5


def test_a_scan_under_way_ends_with_its_retention(world: World) -> None:
    writer = world.open()
    noise = random.Random(0)
    ids = [f"{row:06}" for row in range(60_000)]
    writer.write(upserts={"id": ids, "noise": [noise.randbytes(600) for _ in ids]})
    writer.index()
    writer.write(deletes=["000007"])
    writer.index()
    scan = iter(writer.scan())
    next(scan)
    writer.compact(full=True)
    collect_twice(world, writer)
    with pytest.raises(reef.PastRetention):
        list(scan)


def test_creating_what_somebody_else_has_just_created_and_written_opens_it(world: World) -> None:
    """Objects without a manifest are damage, unless the manifest came between two looks."""

    def other() -> None:
        world.open().write(upserts=[{"id": "a"}])

    world.faulty.pause_before(request("list", "wal/"), other)
    with world.open(faulty=True) as second:
        assert second.get("a") == {"id": "a"}
        second.write(upserts=[{"id": "b"}])
    assert set(world.contents()) == {"a", "b"}


def test_a_reader_that_sleeps_while_the_generations_it_listed_are_collected(world: World) -> None:
    writer = world.open()
    writer.write(upserts=[{"id": "a"}])
    world.store.delete("namespaces/n/hint.json")

    def others() -> None:
        writer.index()
        collect_twice(world, writer)

    world.faulty.pause_before(request("get", "manifest/"), others)
    with world.open("r", faulty=True) as reader:
        assert reader.get("a") == {"id": "a"}
        assert reader.generation == writer.generation


@pytest.mark.parametrize("how", ["condition", "patch", "delete_where", "key"])
def test_a_writer_whose_segments_were_collected_by_others_reads_the_new_ones(
    world: World, how: str
) -> None:
    writer = world.open()
    for number in range(9):
        writer.write(upserts=[{"id": "a", "n": number}], idempotency_key=f"k{number}")
        writer.index()
    worker = world.open("r")
    world.open("r").load([{"id": "z"}], idempotency_key="load")
    while worker.index() is not None:
        pass
    worker.compact(full=True)
    collect_twice(world, worker)
    if how == "condition":
        assert writer.write(upserts=[{"id": "a"}], condition=reef.if_equal(n=8)).upserted == 1
    elif how == "patch":
        assert writer.write(patches=[{"id": "a", "n": 10}]).patched == 1
    elif how == "delete_where":
        assert writer.write(delete_where="n >= 0").deleted == 1
    else:
        before = writer.lsn
        assert writer.write(upserts=[{"id": "b"}], idempotency_key="k3").upserted == 1
        assert writer.lsn >= before
        assert "b" not in world.contents()

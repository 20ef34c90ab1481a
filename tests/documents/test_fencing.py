"""One writer at a time: who loses says so, and nothing that was acknowledged is lost."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import pytest

import reef
from reef import Fenced, Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore, request

PATIENT = Settings(retention=100, grace=100)


def open_writer(store: Store, clock: Clock | None = None) -> Namespace:
    environment = clock.environment() if clock else reef.Environment()
    return Database(store, Options(), environment).namespace("n", maintain=False, settings=PATIENT)


def ids_of(store: Store) -> list[str]:
    with Database(store, Options(), reef.Environment()).namespace("n", "r") as reader:
        return [str(row["id"]) for row in reader.scan().documents()]


def test_the_second_writer_fences_the_first(store: Store) -> None:
    first = open_writer(store)
    first.write(upserts=[{"id": "a"}])
    second = open_writer(store)
    second.write(upserts=[{"id": "b"}])
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "c"}])
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "d"}])
    second.write(upserts=[{"id": "e"}])
    assert ids_of(store) == ["a", "b", "e"]


def test_two_writers_hammering_lose_nothing(store: Store) -> None:
    acknowledged: list[str] = []
    fenced: list[int] = []

    def hammer(number: int) -> None:
        try:
            ns = open_writer(store)
            for count in range(15):
                ns.write(upserts=[{"id": f"{number}-{count:02}"}])
                acknowledged.append(f"{number}-{count:02}")
        except Fenced:
            fenced.append(number)

    threads = [Thread(target=hammer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fenced) < 4
    assert set(acknowledged) <= set(ids_of(store))
    survivor = open_writer(store)
    survivor.write(upserts=[{"id": "z"}])
    assert survivor.verify(deep=True).sound
    assert set(ids_of(store)) == {str(row["id"]) for row in survivor.scan().documents()}


def test_a_writer_that_learns_of_its_successor_by_folding_is_fenced() -> None:
    store = MemoryStore()
    first = open_writer(store)
    first.write(upserts=[{"id": "a"}])
    second = open_writer(store)
    second.index()
    # The successor's fence is folded: the next slot is free, and the first writer finds it.
    first.index()
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    second.write(upserts=[{"id": "b"}])
    assert ids_of(store) == ["a", "b"]


@pytest.mark.parametrize("how", ["load", "gc", "compact"])
def test_a_writer_that_learns_of_its_successor_otherwise_is_fenced(how: str) -> None:
    store, clock = MemoryStore(), Clock()
    first = open_writer(store, clock)
    first.write(upserts=[{"id": "a"}])
    second = open_writer(store, clock)
    if how == "load":
        first.load([{"id": "loaded"}])
    elif how == "gc":
        second.index()
        first.gc(apply=True)
    else:
        second.index()
        second.write(deletes=["nothing"])
        second.index()
        first.compact(full=True)
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    second.write(upserts=[{"id": "b"}])
    assert "zombie" not in ids_of(store)
    assert second.verify(deep=True).sound


def test_a_paused_writer_whose_slot_was_collected_is_fenced() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    faulty = FaultyStore(store)
    first = open_writer(faulty, clock)
    first.write(upserts=[{"id": "a"}])
    start = first.lsn

    def successor() -> None:
        with open_writer(store, clock) as second:
            second.write(upserts=[{"id": "b"}])
            second.index()
            clock.advance(1_000)
            second.gc(apply=True)
            assert not list(second._tree.log.list(1))
            second.write(upserts=[{"id": "c"}])

    faulty.pause_before(request("create", "wal/"), successor)
    with pytest.raises(reef.CommitUncertain):
        first.write(upserts=[{"id": "zombie"}])
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    # Its PUT did win the collected slot; nobody reads it.
    assert f"{start + 1:020}" in next(store.list("namespaces/n/wal/")).key
    assert ids_of(store) == ["a", "b", "c"]
    third = open_writer(store, clock)
    assert third.get("zombie") is None
    with pytest.raises(reef.PastRetention):
        list(third.changes(after=start))
    assert "zombie" not in [change.id for change in third.changes(after=start + 2)]
    third.index()
    clock.advance(1_000)
    third.gc(apply=True)
    assert third.verify(deep=True).sound
    assert ids_of(store) == ["a", "b", "c"]
    assert not list(third._tree.log.list(1))


def test_a_writer_that_slept_before_its_commit_is_fenced_without_a_trace() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    first = open_writer(store, clock)
    first.write(upserts=[{"id": "a"}])
    with open_writer(store, clock) as second:
        second.index()
        clock.advance(1_000)
        second.gc(apply=True)
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    assert not list(store.list("namespaces/n/wal/"))
    assert ids_of(store) == ["a"]


@pytest.mark.parametrize("how", ["write", "load"])
def test_a_commit_that_was_collected_before_its_answer_is_not_denied(how: str) -> None:
    """The PUT lands, the writer sleeps, others fold and collect the slot: it must not be told
    that nothing was written."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    faulty = FaultyStore(store)
    first = open_writer(faulty, clock)
    first.write(upserts=[{"id": "a"}])

    def others() -> None:
        with Database(store, Options(), clock.environment()).namespace("n", "r") as worker:
            while worker.index() is not None:
                pass
            clock.advance(1_000)
            worker.gc(apply=True)

    faulty.pause_after(request("create", "wal/"), others)
    put = first.write if how == "write" else first.load
    with pytest.raises(reef.CommitUncertain):
        put([{"id": "b"}])
    assert ids_of(store) == ["a", "b"]
    assert first.write(upserts=[{"id": "c"}], condition=reef.if_absent()).upserted == 1
    assert ids_of(store) == ["a", "b", "c"]


def test_a_sleeper_that_fills_the_gap_exactly_is_not_in_the_feed() -> None:
    """Slot N was collected, N+1 is there: a sleeper's N must not look like part of the log."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    faulty = FaultyStore(store)
    first = open_writer(faulty, clock)
    first.write(upserts=[{"id": "a"}])
    start = first.lsn

    def successor() -> None:
        with open_writer(store, clock) as second:
            second.index()
            clock.advance(1_000)
            second.gc(apply=True)
            second.write(upserts=[{"id": "b"}])

    faulty.pause_before(request("create", "wal/"), successor)
    with pytest.raises(reef.CommitUncertain):
        first.write(upserts=[{"id": "zombie"}])
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    with Database(store, Options(), clock.environment()).namespace("n", "r") as reader:
        with pytest.raises(reef.PastRetention):
            list(reader.changes(after=start))
        with pytest.raises(reef.PastRetention):
            reader.at(lsn=start)
        assert reader.at(lsn=start + 2).get("zombie") is None


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
def test_a_commit_whose_answer_is_lost_is_one_commit(store: Store, fault: str) -> None:
    faulty = FaultyStore(store)
    ns = open_writer(faulty)
    getattr(faulty, fault)(request("create", "wal/"))
    receipt = ns.write(upserts=[{"id": "a", "n": 1}])
    following = ns.write(patches=[{"id": "a", "n": 2}])
    assert following.lsn == receipt.lsn + 1
    assert [change.lsn for change in ns.changes()] == [receipt.lsn, following.lsn]
    assert ids_of(store) == ["a"]


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
@pytest.mark.parametrize("nth", [1, 2])
def test_an_opening_whose_answer_is_lost_is_one_opening(
    memory_store: MemoryStore, fault: str, nth: int
) -> None:
    """First the epoch's manifest, then the fence entry."""
    open_writer(memory_store)
    faulty = FaultyStore(memory_store)
    getattr(faulty, fault)(request("create"), nth)
    ns = open_writer(faulty)
    assert ns.generation == 3
    assert ns.lsn == 2
    ns.write(upserts=[{"id": "a"}])
    assert ids_of(memory_store) == ["a"]


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
def test_a_fold_whose_answer_is_lost_is_one_generation(store: Store, fault: str) -> None:
    faulty = FaultyStore(store)
    ns = open_writer(faulty)
    ns.write(upserts=[{"id": "a"}])
    before = ns.generation
    getattr(faulty, fault)(request("create", "manifest/"))
    folded = ns.index()
    assert folded is not None
    assert folded.generation == before + 1
    assert ns.status().levels[0].rows == 1
    assert ns.compact(full=True) is None
    assert ids_of(store) == ["a"]


def test_a_commit_that_the_store_never_answers_is_uncertain_and_then_settled() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    faulty = FaultyStore(store)
    ns = open_writer(faulty, clock)
    ns.write(upserts=[{"id": "a"}])
    faulty.lose_answer(request("create", "wal/"), times=1)
    faulty.refuse(request("get", "wal/"), times=10)
    faulty.refuse(request("create", "wal/"), nth=2, times=10)
    with pytest.raises(reef.CommitUncertain):
        ns.write(upserts=[{"id": "b"}])
    faulty._state.faults.clear()
    ns.write(upserts=[{"id": "c"}])
    assert [row["id"] for row in ns.scan().documents()] == ["a", "b", "c"]
    assert ids_of(store) == ["a", "b", "c"]


def test_a_commit_that_never_happened_leaves_no_trace() -> None:
    clock = Clock()
    faulty = FaultyStore(MemoryStore(clock.environment()))
    ns = open_writer(faulty, clock)
    faulty.refuse(request("create", "wal/"), times=6)
    with pytest.raises(reef.CommitUncertain):
        ns.write(upserts=[{"id": "a"}])
    assert ns.write(upserts=[{"id": "b"}]).lsn == 2
    assert ids_of(faulty.inner) == ["b"]


@pytest.mark.parametrize("how", ["refresh", "open", "changes", "at"])
def test_a_reader_that_sleeps_between_root_and_log_does_not_believe_a_sleeping_writer(
    how: str,
) -> None:
    """The reader looks at the root and sleeps; its next slot is folded and collected; a writer
    that slept even longer wins that slot again; the reader wakes and finds the log whole."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    asleep, dozing = FaultyStore(store), FaultyStore(store)
    writer = open_writer(asleep, clock)
    writer.write(upserts=[{"id": "a"}])
    writer.index()
    start = writer.lsn
    database = Database(dozing, Options(staleness=1e9), clock.environment())
    reader = database.namespace("n", "r")

    def successor() -> None:
        with open_writer(store, clock) as second:
            second.index()
            clock.advance(1_000)
            second.gc(apply=True)
            second.write(upserts=[{"id": "b"}])

    def others() -> None:
        asleep.pause_before(request("create", "wal/"), successor)
        with pytest.raises(reef.CommitUncertain):
            writer.write(upserts=[{"id": "zombie"}])

    dozing.pause_before(request("list", "wal/"), others)
    seen: list[object] = []
    with suppress(reef.PastRetention):
        if how == "changes":
            seen = [change.id for change in reader.changes(after=start)]
        elif how == "at":
            seen = [row["id"] for row in reader.at(lsn=start + 1).scan().documents()]
        else:
            if how == "open":
                reader = database.namespace("n", "r")
            else:
                reader.refresh()
            seen = [row["id"] for row in reader.scan().documents()]
            assert seen == ["a", "b"]
    assert "zombie" not in seen

"""Many threads on one handle, upkeep in the background, readers that follow."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import reef
from reef import Backpressure, Environment, Options, Settings
from reef.documents import Database, Namespace
from reef.store import FolderStore, MemoryStore, Store
from support.faults import Clock, FaultyStore, request

TINY = Options(
    fold_objects=8,
    fold_bytes=20_000,
    backlog_objects=24,
    backlog_bytes=60_000,
    fan_in=2,
    most_inputs=4,
    segment_bytes=20_000,
    cache_bytes=200_000,
)


def run_all(calls: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def guarded(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_sixteen_threads_write_and_read(store: Store) -> None:
    database = reef.connect(store, options=TINY)
    with database.namespace("n") as ns:
        each = 12

        def write(number: int) -> None:
            for count in range(each):
                id = f"{number:02}-{count:02}"
                receipt = ns.write(
                    upserts=[{"id": id, "n": count}, {"id": f"last-{number}", "n": count}],
                    idempotency_key=f"k{id}",
                )
                assert receipt.upserted == 2
                # Its own writes are there at once.
                assert ns.get(id) == {"id": id, "n": count}
                assert ns.get(f"last-{number}") == {"id": f"last-{number}", "n": count}

        def read() -> None:
            for _ in range(each):
                rows = {row["id"]: row for row in ns.scan().documents()}
                for number in range(12):
                    # A batch is seen whole: the last one's row comes with it.
                    newest = rows.get(f"last-{number}")
                    if newest is not None:
                        assert f"{number:02}-{newest['n']:02}" in rows
                        assert f"{number:02}-{newest['n'] + 1:02}" not in rows

        run_all([lambda n=n: write(n) for n in range(12)] + [read] * 4)  # type: ignore[misc]
        assert ns.count() == 12 * each + 12
        assert ns.verify(deep=True).sound
    with database.namespace("n", "r") as reader:
        assert reader.count() == 12 * each + 12


def test_batches_are_seen_whole_by_reads_of_many(memory_store: MemoryStore) -> None:
    with reef.connect(memory_store, options=TINY).namespace("n") as ns:
        ids = [f"d{n}" for n in range(20)]
        ns.write(upserts=[{"id": id, "n": 0} for id in ids])
        done = Event()

        def write() -> None:
            try:
                for number in range(1, 150):
                    ns.write(upserts=[{"id": id, "n": number} for id in ids])
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                assert len({row["n"] for row in ns.get_many(ids)}) == 1  # type: ignore[index]

        def scan() -> None:
            while not done.is_set():
                assert len({row["n"] for row in ns.scan().documents()}) == 1

        run_all([write, read, read, scan])


def test_loads_are_seen_whole(memory_store: MemoryStore) -> None:
    """Rows that came after a load are never seen without it, nor a truncation halfway."""
    database = reef.connect(memory_store, options=TINY)
    with database.namespace("n", maintain=False) as ns:
        ns.write(upserts=[{"id": "x", "n": 0}, {"id": "y", "n": 0}])
        reader = database.namespace("n", "r", options=Options(staleness=0.0))
        done = Event()

        def write() -> None:
            try:
                for number in range(1, 40):
                    ns.load(
                        [{"id": "x", "n": number}, {"id": "y", "n": number}],
                        truncate=number % 2 == 0,
                    )
                    ns.write(patches=[{"id": "x", "m": number}, {"id": "y", "m": number}])
                    if number % 10 == 0:
                        ns.index()
            finally:
                done.set()

        def read(handle: Namespace) -> None:
            while not done.is_set():
                for found in (handle.get_many(["x", "y"]), list(handle.scan().documents())):
                    left, right = found
                    assert left is not None
                    assert right is not None
                    assert (left["n"], left.get("m")) == (right["n"], right.get("m"))
                    assert left.get("m") in (None, left["n"], left["n"] - 1)

        run_all([write, lambda: read(ns), lambda: read(reader), lambda: read(reader)])


@pytest.mark.parametrize("truncate", [False, True])
def test_a_view_without_a_load_is_without_what_came_after_it(
    memory_store: MemoryStore, truncate: bool
) -> None:
    ns = reef.connect(memory_store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    before = ns._tree.view
    ns.load([{"id": "a", "n": 2}], truncate=truncate)
    ns.write(patches=[{"id": "a", "m": 2}], upserts=[{"id": "b"}])
    assert before.get("a") == {"id": "a", "n": 1}
    assert before.get_many(["a", "b"]) == [{"id": "a", "n": 1}, None]
    assert before.count() == 1
    assert ns.get_many(["a", "b"]) == [{"id": "a", "n": 2, "m": 2}, {"id": "b"}]


def test_a_scan_shows_the_state_it_was_made_in(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    scan = ns.scan()
    ns.write(upserts=[{"id": "b", "n": 1}], patches=[{"id": "a", "n": 2}])
    assert list(scan.documents()) == [{"id": "a", "n": 1}]
    ns.index()
    ns.write(deletes=["a"])
    assert list(scan.documents()) == [{"id": "a", "n": 1}]
    empty = ns.scan(start="c")
    ns.write(upserts=[{"id": "d"}])
    assert list(empty.documents()) == []
    assert [row["id"] for row in ns.scan().documents()] == ["b", "d"]


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_a_program_that_only_writes_never_meets_a_limit(
    kind: str, memory_store: MemoryStore, folder_store: FolderStore
) -> None:
    store: Store = memory_store if kind == "memory" else folder_store
    with reef.connect(store, options=TINY).namespace("n", settings=Settings(0, 0)) as ns:
        for number in range(300):
            ns.write(upserts=[{"id": f"{number % 50:03}", "n": number, "s": "x" * 200}])
            assert ns.status().unfolded_objects <= TINY.backlog_objects
        assert ns.count() == 50
        assert ns.get("049") == {"id": "049", "n": 299, "s": "x" * 200}
        # However slow the upkeep was, all but a backlog is folded.
        assert ns.status().wal_floor >= 300 - TINY.backlog_objects


def test_a_backlog_limit_below_the_fold_threshold_folds(memory_store: MemoryStore) -> None:
    options = Options(backlog_objects=4)
    with reef.connect(memory_store, options=options).namespace("n") as ns:
        for number in range(20):
            ns.write(upserts=[{"id": f"{number}"}])
        assert ns.count() == 20


@pytest.mark.parametrize("limit", [{"backlog_objects": 5}, {"backlog_bytes": 5_000}])
def test_without_upkeep_the_limit_is_felt(memory_store: MemoryStore, limit: dict[str, int]) -> None:
    ns = reef.connect(memory_store, options=Options(**limit)).namespace("n", maintain=False)
    written = 0
    refused = False
    while not refused:
        try:
            ns.write(upserts=[{"id": f"{written}", "s": "x" * 500}])
            written += 1
        except Backpressure:
            refused = True
    assert 0 < written < 20
    before = [info.key for info in memory_store.list("")]
    with pytest.raises(Backpressure):
        ns.write(upserts=[{"id": "more"}])
    assert [info.key for info in memory_store.list("")] == before
    assert ns.count() == written
    while ns.index() is not None:
        pass
    ns.write(upserts=[{"id": "more"}])
    assert ns.count() == written + 1


def test_upkeep_that_fails_is_named_by_the_backpressure(memory_store: MemoryStore) -> None:
    faulty = FaultyStore(memory_store)
    options = Options(fold_objects=2, backlog_objects=4, backlog_wait=5)
    with reef.connect(faulty, options=options).namespace("n") as ns:
        faulty.refuse(request("put", "segments/"), times=10_000)
        for number in range(3):
            ns.write(upserts=[{"id": f"{number}"}])
        with pytest.raises(Backpressure, match="lost on purpose"):
            ns.write(upserts=[{"id": "one more"}])
        faulty._state.faults.clear()
        for _ in range(3):
            try:
                ns.write(upserts=[{"id": "again"}])
                break
            except Backpressure:
                ns._upkeep.folding.wait_for_pass(5)  # type: ignore[union-attr]
        assert ns.get("again") is not None


def test_readers_follow_within_their_staleness() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    database = Database(store, Options(staleness=2.0), clock.environment())
    ns = database.namespace("n", maintain=False)
    reader = database.namespace("n", "r")
    for number in range(5):
        ns.write(upserts=[{"id": "a", "n": number}])
        if number == 3:
            ns.index()
            ns.compact(full=True)
        clock.advance(2.01)
        assert reader.get("a") == {"id": "a", "n": number}
        assert reader.lsn == ns.lsn
    ns.write(upserts=[{"id": "a", "n": 9}])
    assert reader.get("a") == {"id": "a", "n": 4}
    reader.refresh()
    assert reader.get("a") == {"id": "a", "n": 9}


def test_staleness_counts_from_when_a_look_began() -> None:
    """A slow look at the bucket is old when it comes back."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    faulty = FaultyStore(store)
    writer = Database(store, Options(), clock.environment()).namespace("n", maintain=False)
    reader = Database(faulty, Options(staleness=2.0), clock.environment()).namespace("n", "r")
    clock.advance(3)

    def slow() -> None:
        clock.advance(1.5)
        writer.write(upserts=[{"id": "a"}])

    faulty.pause_after(request("list", "wal/"), slow)
    assert reader.get("a") is None
    clock.advance(1)
    assert reader.get("a") == {"id": "a"}


def test_many_commits_share_a_put(memory_store: MemoryStore) -> None:
    faulty = FaultyStore(memory_store)
    ns = reef.connect(faulty).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "base", "n": 0}])
    receipts: dict[str, reef.Receipt | Exception] = {}

    def write(name: str, **batch: Any) -> Callable[[], None]:
        def call() -> None:
            try:
                receipts[name] = ns.write(**batch)
            except reef.ReefError as failure:
                receipts[name] = failure

        return call

    threads: list[Thread] = []

    def arrive() -> None:
        for number, call in enumerate(
            [
                write("one", upserts=[{"id": "one"}]),
                write("two", upserts=[{"id": "two"}], idempotency_key="k"),
                write("bad", upserts=[{"id": "base"}], condition=reef.if_absent()),
                write("patch", patches=[{"id": "one", "n": 5}]),
                write("after", upserts=[{"id": "after"}]),
            ]
        ):
            thread = Thread(target=call)
            threads.append(thread)
            thread.start()
            while ns._writer.waiting <= number + 1:  # type: ignore[union-attr]
                pass

    faulty.pause_before(request("create", "wal/"), arrive)
    first = ns.write(upserts=[{"id": "first"}])
    for thread in threads:
        thread.join()
    assert isinstance(receipts["bad"], reef.ConditionFailed)
    group = first.lsn + 1
    lsns = {name: r.lsn for name, r in receipts.items() if isinstance(r, reef.Receipt)}
    # The patch depends on what came before it in the group: it and what follows wait.
    assert lsns == {"one": group, "two": group, "patch": group + 1, "after": group + 1}
    assert ns.get("one") == {"id": "one", "n": 5}
    fresh = reef.connect(memory_store).namespace("n", "r")
    assert {row["id"] for row in fresh.scan().documents()} == {
        "base", "first", "one", "two", "after"
    }  # fmt: skip


def test_closing_while_others_write(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store, options=TINY).namespace("n")
    acknowledged: list[str] = []

    def write(number: int) -> None:
        for count in range(10_000):
            try:
                ns.write(upserts=[{"id": f"{number}-{count}"}])
            except (reef.Closed, Backpressure):
                return
            acknowledged.append(f"{number}-{count}")

    threads = [Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 40:
        pass
    ns.close()
    for thread in threads:
        thread.join()
    with Database(memory_store, Options(), Environment()).namespace("n", "r") as reader:
        assert {row["id"] for row in reader.scan().documents()} >= set(acknowledged)

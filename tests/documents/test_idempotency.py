"""A key that was used gets its first receipt, wherever its commit has gone since."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore
from support.faults import Clock, FaultyStore, request


def database(clock: Clock, store: MemoryStore) -> Database:
    return Database(store, Options(), clock.environment())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> MemoryStore:
    return MemoryStore(clock.environment())


def fold(ns: Namespace) -> None:
    ns.index()


def fold_often(ns: Namespace) -> None:
    for number in range(25):
        ns.write(upserts=[{"id": f"other{number}"}], idempotency_key=f"other{number}")
        ns.index()


def compact(ns: Namespace) -> None:
    ns.index()
    ns.write(upserts=[{"id": "more"}])
    ns.index()
    ns.compact(full=True)


def collect(ns: Namespace) -> None:
    compact(ns)
    ns._tree.environment.sleep(20_000)
    ns.gc(apply=True)


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("meanwhile", [lambda ns: None, fold, fold_often, compact, collect])
def test_a_replay_gets_the_first_receipt(
    clock: Clock, bucket: MemoryStore, meanwhile: Callable[[Namespace], None], reopen: bool
) -> None:
    ns = database(clock, bucket).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    batch: dict[str, Any] = {
        "upserts": [{"id": "a", "n": 5}, {"id": "c", "n": 6}],
        "patches": [{"id": "nobody", "n": 1}],
        "deletes": ["b", "x"],
        "condition": reef.if_exists(),
        "on_conflict": "skip",
        "idempotency_key": "once",
    }
    first = ns.write(**batch)
    assert set(first.rejected) == {"c", "nobody", "x"}
    assert (first.upserted, first.patched, first.deleted) == (1, 0, 1)
    meanwhile(ns)
    if reopen:
        ns = database(clock, bucket).namespace("n", maintain=False)
    before = ns.lsn
    assert ns.write(**batch) == first
    assert ns.write(upserts=[{"id": "entirely different"}], idempotency_key="once") == first
    assert ns.lsn == before
    assert ns.get("a") == {"id": "a", "n": 5}
    assert ns.get("entirely different") is None


def test_a_batch_that_changed_nothing_is_remembered_too(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    first = ns.write(patches=[{"id": "z", "n": 1}], idempotency_key="k")
    assert first.missing == 1
    ns.write(upserts=[{"id": "z", "n": 0}])
    assert ns.write(patches=[{"id": "z", "n": 1}], idempotency_key="k") == first
    assert ns.get("z") == {"id": "z", "n": 0}


def test_a_refused_batch_does_not_use_its_key(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a"}])
    with pytest.raises(reef.ConditionFailed):
        ns.write(upserts=[{"id": "a"}], condition=reef.if_absent(), idempotency_key="k")
    assert ns.write(upserts=[{"id": "b"}], idempotency_key="k").upserted == 1


def test_a_load_has_the_same_window(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace("n", maintain=False)
    first = ns.load([{"id": "a"}], idempotency_key="k")
    assert ns.load([{"id": "b"}], idempotency_key="k") == first
    ns.index()
    reader = database(clock, bucket).namespace("n", "r")
    assert reader.load([{"id": "b"}], idempotency_key="k") == first
    assert ns.write(upserts=[{"id": "b"}], idempotency_key="k") == first
    assert ns.get("b") is None


def test_one_key_within_one_group(clock: Clock, bucket: MemoryStore) -> None:
    """Threads that commit together with one key: one of them writes."""
    faulty = FaultyStore(bucket)
    ns = Database(faulty, Options(), clock.environment()).namespace("n", maintain=False)
    receipts: list[reef.Receipt] = []

    def write(number: int) -> None:
        receipts.append(
            ns.write(upserts=[{"id": f"d{number}"}], idempotency_key=f"key{number % 2}")
        )

    threads = [Thread(target=write, args=(number,)) for number in range(8)]

    def arrive() -> None:
        # While the leader's PUT is under way the others queue up behind it.
        for thread in threads:
            thread.start()
        while ns._writer.waiting <= len(threads):  # type: ignore[union-attr]
            pass

    faulty.pause_before(request("create", "wal/"), arrive)
    ns.write(upserts=[{"id": "leader"}])
    for thread in threads:
        thread.join()
    assert len(set(receipts)) <= 2
    assert len(receipts) == 8
    assert ns.count() == 3


def test_the_window_is_bounded_by_age(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace(
        "n", maintain=False, settings=Settings(window_seconds=1_000)
    )
    first = ns.write(upserts=[{"id": "a"}], idempotency_key="k")
    ns.index()
    clock.advance(999)
    assert ns.write(upserts=[{"id": "a"}], idempotency_key="k") == first
    clock.advance(2)
    assert ns.write(upserts=[{"id": "a"}], idempotency_key="k") != first


def test_the_window_is_bounded_by_count(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace("n", maintain=False, settings=Settings(window_keys=5))
    receipts = {}
    for number in range(40):
        key = f"k{number:02}"
        receipts[key] = ns.write(upserts=[{"id": key}], idempotency_key=key)
        ns.index()
    assert ns.status().window_segments <= 8
    for key in list(receipts)[-5:]:
        assert ns.write(upserts=[{"id": key}], idempotency_key=key) == receipts[key]
    assert ns.write(upserts=[{"id": "k00"}], idempotency_key="k00") != receipts["k00"]


def test_the_newest_use_of_a_key_counts(clock: Clock, bucket: MemoryStore) -> None:
    ns = database(clock, bucket).namespace(
        "n", maintain=False, settings=Settings(window_seconds=10)
    )
    receipts = []
    for _ in range(12):
        receipts.append(ns.write(upserts=[{"id": "a"}], idempotency_key="k"))
        assert ns.write(upserts=[{"id": "a"}], idempotency_key="k") == receipts[-1]
        ns.index()
        assert ns.write(upserts=[{"id": "a"}], idempotency_key="k") == receipts[-1]
        clock.advance(11)
    assert len(set(receipts)) == 12

"""The counting store counts each request once, from any thread."""

from __future__ import annotations

import pytest

from reef.errors import AlreadyExists, ObjectNotFound
from reef.store import CountingStore, Counts, MemoryStore


@pytest.fixture
def counting(memory_store: MemoryStore) -> CountingStore:
    return CountingStore(memory_store)


def test_each_kind_is_counted(counting: CountingStore) -> None:
    version = counting.create("a", [b"12", b"3"])
    counting.replace("a", b"12345", version)
    counting.put("b", memoryview(b"1234").cast("H"))
    counting.get("a")
    counting.get_range("a", 1, 2)
    counting.get_range("a", 4, 100)
    counting.head("a")
    list(counting.list(""))
    counting.list_folders("")
    counting.delete("a")
    counting.delete_many(key for key in ("b", "c"))
    assert counting.counts() == Counts(
        get=1,
        get_range=2,
        put=1,
        create=1,
        replace=1,
        head=1,
        list=2,
        delete=3,
        bytes_read=5 + 2 + 1,
        bytes_written=3 + 5 + 4,
    )
    counts = counting.counts()
    assert (counts.reads, counts.writes, counts.requests) == (6, 3, 12)


def test_each_range_is_a_request(counting: CountingStore) -> None:
    counting.put("a", b"0123456789")
    assert counting.get_ranges("a", [(0, 2), (5, 1), (9, 9)]) == [b"01", b"5", b"9"]
    counts = counting.counts()
    assert (counts.get_range, counts.bytes_read) == (3, 4)


def test_a_listing_is_a_request_a_page(counting: CountingStore) -> None:
    for number in range(2001):
        counting.put(f"k{number:04}", b"")
    counting.reset()
    assert len(list(counting.list("k"))) == 2001
    assert counting.counts().list == 3
    counting.reset()
    listing = counting.list("k")
    next(listing)
    assert counting.reset() == Counts(list=1)
    assert len(list(counting.list("k1"))) == 1000
    assert counting.counts().list == 1


def test_failed_requests_count(counting: CountingStore) -> None:
    counting.create("a", b"")
    with pytest.raises(AlreadyExists):
        counting.create("a", b"")
    with pytest.raises(ObjectNotFound):
        counting.get("b")
    assert counting.counts() == Counts(create=2, get=1)


def test_no_request_of_many_threads_is_lost(counting: CountingStore) -> None:
    counting.put("a", b"x")
    before = counting.counts()
    counting.concurrently([lambda: counting.get("a")] * 500)
    assert counting.counts() - before == Counts(get=500, bytes_read=500)
    assert counting.reset().get == 500
    assert counting.counts() == Counts()


def test_threads_are_those_of_the_store_within(memory_store: MemoryStore) -> None:
    counting = CountingStore(memory_store)
    view = counting.below("x")
    assert view.start(lambda: 1).result() == counting.start(lambda: 1).result() == 1
    assert memory_store._pool is not None
    assert counting._pool is None
    assert view._pool is None

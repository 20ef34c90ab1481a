"""Large batches go into the bucket as segments, and behave like any other batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import reef
from reef.store import CountingStore, MemoryStore
from support.faults import Clock, FaultyStore, request
from support.waiting import wait_until

OPTIONS = reef.Options(large_batch_bytes=10_000)


def _table(first: int, count: int, mark: str = "x") -> pa.Table:
    return pa.table(
        {
            "id": [f"{n:06d}" for n in range(first, first + count)],
            "n": np.arange(first, first + count),
            "text": [f"{mark}{n}" * 10 for n in range(first, first + count)],
        }
    )


@pytest.fixture
def counting() -> CountingStore:
    return CountingStore(MemoryStore())


def _open(store: CountingStore, **how: object) -> reef.Namespace:
    database = reef.connect(store, options=OPTIONS)
    return database.namespace("n", maintain=False, **how)  # type: ignore[arg-type]


def test_a_large_batch_is_a_segment_and_a_small_log_object(counting: CountingStore) -> None:
    namespace = _open(counting)
    before = counting.counts()
    receipt = namespace.write(upserts=_table(0, 1000), deletes=["000005", "zz"])
    spent = counting.counts() - before
    assert (spent.put, spent.create, spent.requests) == (1, 1, 2)
    assert (receipt.upserted, receipt.deleted) == (1000, 2)
    assert namespace.status().unfolded_ingests == 1
    assert namespace.get("000004") is not None
    assert namespace.get("000005") is None
    assert namespace.count() == 999


def test_it_is_ordered_among_small_ones(counting: CountingStore) -> None:
    namespace = _open(counting)
    namespace.write(upserts=[{"id": "000001", "n": -1, "own": True}])
    namespace.write(upserts=_table(0, 1000))
    namespace.write(patches=[{"id": "000002", "n": -2}])
    namespace.write(deletes=["000003"])
    expected = {"id": "000002", "n": -2, "text": "x2" * 10}

    def check(state: reef.Namespace) -> None:
        first = state.get("000001")
        assert first is not None
        assert (first["n"], "own" in first) == (1, False)
        assert state.get("000002") == expected
        assert state.get("000003") is None
        assert state.count() == 999

    check(namespace)
    check(_open(counting))
    folded = _open(counting)
    folded.index()
    check(folded)
    folded.compact(full=True)
    check(folded)
    assert folded.verify(deep=True).sound


def test_its_changes_and_its_past_can_be_read(counting: CountingStore) -> None:
    namespace = _open(counting)
    first = namespace.write(upserts=_table(0, 500, "a"))
    second = namespace.write(upserts=_table(0, 500, "b"), deletes=["000007"])
    assert namespace.at(lsn=first.lsn).get("000007") is not None
    assert namespace.at(lsn=second.lsn).get("000007") is None
    seen = list(namespace.changes(after=first.lsn))
    assert len(seen) == 500
    assert sum(change.kind == "delete" for change in seen) == 1


def test_its_key_is_remembered(counting: CountingStore) -> None:
    namespace = _open(counting)
    receipt = namespace.write(upserts=_table(0, 500), idempotency_key="once")
    assert namespace.write(upserts=_table(0, 500), idempotency_key="once") == receipt
    namespace.index()
    assert _open(counting).write(upserts=_table(0, 500), idempotency_key="once") == receipt


def test_a_condition_keeps_it_out_of_segments(counting: CountingStore) -> None:
    namespace = _open(counting)
    namespace.write(upserts=_table(0, 500), condition=reef.if_absent())
    assert namespace.status().unfolded_ingests == 0
    with pytest.raises(reef.ConditionFailed):
        namespace.write(upserts=_table(499, 500), condition=reef.if_absent())
    assert namespace.count() == 500


def test_a_fenced_writer_leaves_only_an_orphan(counting: CountingStore) -> None:
    first = _open(counting)
    second = _open(counting)
    with pytest.raises(reef.Fenced):
        first.write(upserts=_table(0, 500))
    assert second.count() == 0
    assert second.verify().orphans == 1


def test_an_upload_that_was_condemned_goes_through_the_log_instead() -> None:
    clock = Clock()
    inner = MemoryStore(clock.environment())
    faulty = FaultyStore(inner)
    settings = reef.Settings(retention=60, grace=60)
    slow = reef.connect(faulty, options=OPTIONS, environment=clock.environment())
    quick = reef.connect(inner, options=OPTIONS, environment=clock.environment())
    writer = slow.namespace("n", maintain=False, settings=settings)
    writer.write(upserts=[{"id": "a"}])
    writer.index()

    def sleep_through_a_collection() -> None:
        clock.advance(600)
        assert quick.namespace("n", "r").gc(apply=True).deleted

    faulty.pause_after(request("put", "segments/"), sleep_through_a_collection)
    writer.write(upserts=_table(0, 500))
    assert writer.status().unfolded_ingests == 0
    assert writer.count() == 501
    assert quick.namespace("n", "r").count() == 501


def test_enough_of_them_are_folded_and_compacted_by_the_worker() -> None:
    options = reef.Options(large_batch_bytes=10_000, fold_segments=2, fan_in=2, most_inputs=2)
    database = reef.connect("memory://", options=options)
    with database.namespace("n") as namespace:
        for batch in range(12):
            namespace.write(upserts=_table(batch * 100, 300))
        assert namespace.count() == 1400
        upkeep = namespace._upkeep
        assert upkeep is not None
        wait_until(upkeep.folding, lambda: namespace.status().wal_floor > 1)
    with database.namespace("n", "r") as reader:
        assert reader.count() == 1400
        assert reader.status().wal_floor > 1

"""The writer below the documents: what goes into the log, and what a failure leaves behind."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

import numpy as np
import pyarrow as pa
import pytest

import reef
from reef.data.plain import PlainRows, as_batch
from reef.data.rows import DELETE, ID, KIND, PATCH, UPSERT
from reef.documents import Namespace
from reef.documents.batches import make_batch
from reef.lsm.records import Condemn, Ingest, decode_record, records_of
from reef.lsm.write.batch import EQUAL, Condition
from reef.store import MemoryStore
from support.faults import FaultyStore, request


@pytest.fixture
def ns(memory_store: MemoryStore) -> Namespace:
    return reef.connect(memory_store).namespace("n", maintain=False)


def test_opening_appends_an_empty_entry_of_its_epoch(ns: Namespace) -> None:
    entry = ns._tree.log.read(1)
    assert (entry.header.epoch, entry.header.guest, entry.header.batches) == (1, False, ())
    assert entry.records == ()
    assert ns._tree.head.manifest.writer_epoch == 1


def test_a_batch_in_the_log(ns: Namespace) -> None:
    ns.write(upserts=[{"id": "a", "n": 1}])
    receipt = ns.write(
        upserts=[{"id": "b", "n": 2}],
        patches=[{"id": "a", "n": None}],
        deletes=["c"],
        condition=reef.if_equal(n=1),
        on_conflict="skip",
        idempotency_key="key",
    )
    entry = ns._tree.log.read(receipt.lsn)
    (batch,) = entry.header.batches
    assert batch.key == "key"
    assert batch.condition == {"kind": "equal", "values": {"n": 1}}
    assert batch.receipt == {"patched": 1, "rejected": ["b", "c"]}
    assert batch.operations == 1
    (record,) = records_of(entry)
    assert isinstance(record, PlainRows)
    rows = as_batch(record)
    assert rows.column(ID).to_pylist() == ["a"]
    assert rows.column(KIND).to_pylist() == [PATCH]


def test_operations_lie_in_the_order_in_which_they_apply(ns: Namespace) -> None:
    receipt = ns.write(
        upserts=[{"id": "b"}, {"id": "a"}], patches=[{"id": "a", "n": 1}], deletes=["b"]
    )
    (record,) = records_of(ns._tree.log.read(receipt.lsn))
    assert isinstance(record, pa.RecordBatch | PlainRows)
    rows = as_batch(record)
    assert rows.column(ID).to_pylist() == ["b", "a", "a", "b"]
    assert rows.column(KIND).to_pylist() == [UPSERT, UPSERT, PATCH, DELETE]
    assert [row["id"] for row in ns.scan().documents()] == ["a"]


def test_a_load_is_a_guest(ns: Namespace, memory_store: MemoryStore) -> None:
    reader = reef.connect(memory_store).namespace("n", "r")
    receipt = reader.load([{"id": "a"}])
    entry = ns._tree.log.read(receipt.lsn)
    assert entry.header.guest
    assert entry.header.epoch == 1
    (record,) = records_of(entry)
    assert isinstance(record, Ingest)
    assert ns.write(upserts=[{"id": "b"}]).lsn == receipt.lsn + 1
    assert ns.get("a") == {"id": "a"}


@pytest.mark.parametrize("record", [b"", b"\x09", b"\x01", b"\x01" * 30, b"\x02{", b"\x03[]"])
def test_records_that_are_not_ours(record: bytes) -> None:
    with pytest.raises((ValueError, Exception)) as caught:
        decode_record(memoryview(record))
    assert isinstance(caught.value, Exception)


def test_condemn_records_are_read(ns: Namespace) -> None:
    assert decode_record(memoryview(b'\x03{"orphan_floor":7}')) == Condemn(7)


def test_an_interrupted_commit_is_uncertain_for_all_that_it_carried(
    memory_store: MemoryStore,
) -> None:
    faulty = FaultyStore(memory_store)
    ns = reef.connect(faulty).namespace("n", maintain=False)
    outcomes: list[object] = []

    def follow() -> None:
        try:
            outcomes.append(ns.write(upserts=[{"id": "b"}]))
        except BaseException as error:
            outcomes.append(error)

    followers = [Thread(target=follow) for _ in range(3)]

    def arrive() -> None:
        for number, follower in enumerate(followers):
            follower.start()
            while ns._writer.waiting < number + 2:  # type: ignore[union-attr]
                pass

    def interrupt() -> None:
        raise KeyboardInterrupt

    faulty.pause_before(request("create", "wal/"), arrive)
    faulty.pause_before(request("create", "wal/"), interrupt, nth=2)
    ns.write(upserts=[{"id": "a"}])
    for follower in followers:
        follower.join()
    kinds = sorted(type(outcome).__name__ for outcome in outcomes)
    assert kinds == ["CommitUncertain", "CommitUncertain", "KeyboardInterrupt"]
    assert ns.write(upserts=[{"id": "d"}]).upserted == 1


def test_a_failed_commit_leaves_the_writer_usable(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    for _ in range(3):
        with pytest.raises(reef.ConditionFailed):
            ns.write(upserts=[{"id": "a", "fresh": 1}], condition=reef.if_absent())
    assert "fresh" not in ns.schema.attributes
    assert ns.write(upserts=[{"id": "b", "fresh": "text"}]).lsn == 3


@pytest.mark.parametrize("value", [object(), "\ud800", np.float64(1), np.str_("a"), 1j])
def test_a_batch_that_cannot_be_encoded_fails_alone(
    memory_store: MemoryStore, value: object
) -> None:
    faulty = FaultyStore(memory_store)
    ns = reef.connect(faulty).namespace("n", maintain=False)
    writer, options = ns._writer, ns._tree.options
    assert writer is not None
    told: dict[str, object] = {}

    def write(id: str) -> None:
        batch = make_batch(ns.schema, options, upserts=[{"id": id}])
        if id == "bad":
            condition = Condition(EQUAL, {"r": value})
            # With a key it is written though the condition holds for nothing of it.
            batch = replace(batch, condition=condition, skip_rejected=True, key="k")
        try:
            told[id] = writer.commit(batch)
        except Exception as error:
            told[id] = error

    ids = ("a", "bad", "b")
    threads = [Thread(target=write, args=(id,)) for id in ids]

    def arrive() -> None:
        for number, thread in enumerate(threads):
            thread.start()
            while writer.waiting < number + 2:
                pass

    faulty.pause_before(request("create", "wal/"), arrive)
    ns.write(upserts=[{"id": "first", "r": 1.0}])
    for thread in threads:
        thread.join()
    assert isinstance(told["bad"], reef.InvalidInput), told
    assert isinstance(told["a"], reef.Receipt)
    assert isinstance(told["b"], reef.Receipt)
    before = len(faulty.requests)
    write("bad")
    assert isinstance(told["bad"], reef.InvalidInput), told
    assert len(faulty.requests) == before
    assert ns.write(upserts=[{"id": "c"}]).upserted == 1
    assert reef.connect(memory_store).namespace("n", "r").count() == 4

"""Memory is bounded in bytes, whatever the size of documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import reef
from reef import Options
from reef.data.measure import bytes_together, chunks
from reef.data.rows import DELETE, ID, KIND, LSN, PATCH, UPSERT, lsns_of
from reef.documents import Namespace
from reef.documents.load import load
from reef.lsm import gathered, pieces
from reef.lsm.gathered import Gathered
from reef.lsm.read import merge as merging
from reef.lsm.read import view as viewing
from reef.lsm.read.merge import merge
from reef.store import MemoryStore
from support.memory import peak_memory

WINDOW = 1 << 20
TEXT = 50_000
DOCUMENTS = 400
NOISE = np.random.default_rng(0)


# What Arrow imports when it first looks at Python values is not counted.
pa.array(["a"])


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(gathered, "SLICE_BYTES", WINDOW // 4)
    monkeypatch.setattr(pieces, "CHUNK_BYTES", WINDOW)


def noise(length: int = TEXT) -> str:
    return NOISE.bytes(length // 2).hex()


def opened(store: MemoryStore, **options: Any) -> Namespace:
    given = {"segment_bytes": 2 * WINDOW, "cache_bytes": 0, **options}
    return reef.connect(store, options=Options(**given)).namespace("n", maintain=False)


def filled(store: MemoryStore, **options: Any) -> Namespace:
    """Twenty windows of documents, half of them in segments, half of those written again."""
    ns = opened(store, **options)
    for start in range(0, DOCUMENTS, 40):
        ns.write(
            upserts=[{"id": f"{n:05}", "s": noise(), "n": n} for n in range(start, start + 40)]
        )
        if start == DOCUMENTS // 2:
            while ns.index():
                pass
    return ns


def rows(ids: list[str], lsn: int, kind: int, length: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            ID: pa.array(ids),
            LSN: pa.array(np.full(len(ids), lsn, np.uint64)),
            KIND: pa.array(np.full(len(ids), kind, np.uint8)),
            "s": pa.array([noise(length) for _ in ids]),
        }
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_a_merge_holds_a_few_windows(reverse: bool) -> None:
    """The rows of two sources come one after the other out of nowhere, sixty windows in all."""

    def source(lsn: int) -> Iterator[pa.RecordBatch]:
        numbers = range(600)
        for number in reversed(numbers) if reverse else numbers:
            yield rows([f"{number:05}"], lsn, UPSERT, TEXT)

    with peak_memory() as peak:
        count = 0
        for batch in merge([source(1), source(2)], reverse=reverse):
            assert batch.nbytes <= WINDOW
            assert set(lsns_of(batch).tolist()) == {2}
            count += batch.num_rows
    assert count == 600
    assert peak.bytes < 6 * WINDOW


def test_what_is_in_hand_by_accident_is_cut() -> None:
    """Sources may hand out batches of any size, here of ten windows each."""
    ids = [f"{n:05}" for n in range(200)]
    sources = [[rows(ids, lsn, UPSERT, TEXT)] for lsn in (1, 2)]
    merged = list(merge(sources))
    assert [id for batch in merged for id in batch.column(ID).to_pylist()] == ids
    assert max(batch.nbytes for batch in merged) <= WINDOW


def test_versions_of_one_id_are_not_put_together() -> None:
    """Eighty patches of a hot document, four windows of them."""
    base = rows(["a"], 1, UPSERT, TEXT)
    patches = [rows(["a"], lsn, PATCH, TEXT) for lsn in range(2, 82)]
    with peak_memory() as peak:
        (merged,) = merge([[patches[::-1]], [base]])
    assert lsns_of(merged).tolist() == [81]
    assert merged.column("s").equals(patches[-1].column("s"))
    assert peak.bytes < WINDOW


def test_gathered_rows_come_in_slices_of_bytes() -> None:
    log = [(lsn, rows([f"{lsn % 40:05}"], lsn, UPSERT, TEXT)) for lsn in range(1, 101)]
    table = Gathered([(lsn, batch.drop_columns([LSN])) for lsn, batch in log])
    for reverse in (False, True):
        found = []
        for piece in table.slices(reverse=reverse):
            assert isinstance(piece, pa.RecordBatch)
            assert piece.nbytes <= WINDOW // 4
            found += piece.column(ID).to_pylist()[:: -1 if reverse else 1]
        assert found == sorted((f"{n:05}" for n in range(40)), reverse=reverse)


def test_gathered_versions_of_one_id_are_a_list() -> None:
    log = [(1, rows(["a"], 1, UPSERT, 10)), (1, rows(["b", "c"], 1, UPSERT, 10))]
    log += [(lsn, rows(["b"], lsn, PATCH, TEXT)) for lsn in range(2, 42)]
    table = Gathered([(lsn, batch.drop_columns([LSN])) for lsn, batch in log])
    for reverse in (False, True):
        whole = [piece for piece in table.slices(reverse=reverse) if isinstance(piece, list)]
        (versions,) = whole
        assert max(batch.nbytes for batch in versions) <= WINDOW // 4
        assert {id for batch in versions for id in batch.column(ID).to_pylist()} == {"b"}
        merged = list(merge([table.slices(reverse=reverse)], reverse=reverse))
        ids = [id for batch in merged for id in batch.column(ID).to_pylist()]
        assert ids == sorted("abc", reverse=reverse)


def test_rows_without_vectors_count_with_them() -> None:
    """A null takes as much room as a vector."""
    dead = pa.RecordBatch.from_pydict(
        {
            ID: pa.array([f"{n:05}" for n in range(2_000)]),
            LSN: pa.array(np.ones(2_000, np.uint64)),
            KIND: pa.array(np.full(2_000, DELETE, np.uint8)),
        }
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4096, np.float32)), 4096)
    wide = pa.RecordBatch.from_pydict(
        {
            ID: pa.array(["01000"]),
            LSN: pa.array(np.full(1, 2, np.uint64)),
            KIND: pa.array(np.zeros(1, np.uint8)),
            "v": vectors,
        }
    )
    assert bytes_together([dead, wide]) > 2_000 * 4 * 4096
    assert [len(some) for some in chunks([dead, dead, wide, dead], WINDOW)] == [2, 1, 1]
    with peak_memory() as peak:
        merged = list(merge([[dead], [wide]], keep_tombstones=True))
    assert sum(batch.num_rows for batch in merged) == 2_000
    assert peak.arrow < 3 * WINDOW + sum(batch.nbytes for batch in merged)
    table = Gathered([(1, dead.drop_columns([LSN])), (2, wide.drop_columns([LSN]))])
    assert max(piece.nbytes for piece in table.slices()) <= WINDOW  # type: ignore[union-attr]


@pytest.mark.parametrize("columns", [None, ["n"]])
def test_scans_and_counts_hold_a_few_windows(memory_store: MemoryStore, columns: Any) -> None:
    ns = filled(memory_store)
    list(ns.scan(columns=["n"]))
    with peak_memory() as peak:
        assert sum(batch.num_rows for batch in ns.scan(columns=columns)) == DOCUMENTS
        assert sum(batch.num_rows for batch in ns.scan(reverse=True)) == DOCUMENTS
        assert ns.count() == DOCUMENTS
    assert peak.bytes < 8 * WINDOW


def test_folding_patches_of_large_documents_holds_a_few_windows(memory_store: MemoryStore) -> None:
    """The patches are small, what they change is twenty windows."""
    ns = filled(memory_store)
    while ns.index():
        pass
    ns.write(patches=[{"id": f"{n:05}", "n": -n} for n in range(DOCUMENTS)])
    ns.write(deletes=["00007"])
    with peak_memory() as peak:
        while ns.index():
            pass
    # Segments are on their way, two at a time, and what the store keeps of them is Python's.
    assert peak.arrow < 16 * WINDOW
    assert sum(row["n"] for row in ns.scan(columns=["n"]).documents()) == 7 - sum(range(DOCUMENTS))


def test_compaction_and_loading_hold_a_few_windows(memory_store: MemoryStore) -> None:
    ns = filled(memory_store)
    while ns.index():
        pass
    with peak_memory() as peak:
        assert ns.compact(full=True) is not None
    assert peak.arrow < 16 * WINDOW
    assert ns.count() == DOCUMENTS

    def documents() -> Iterator[list[dict[str, Any]]]:
        for start in range(0, DOCUMENTS, 10):
            yield [{"id": f"{n % 150:05}", "s": noise()} for n in range(start, start + 10)]

    with peak_memory() as peak:
        load(ns._tree, documents(), truncate=True, stretch_bytes=2 * WINDOW)
    ns.index()
    assert ns.count() == 150
    assert peak.arrow < 16 * WINDOW


def test_a_hot_document_of_many_large_patches_folds(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "a", "n": 0}, {"id": "b", "n": 1}])
    ns.index()
    texts = [noise() for _ in range(60)]
    for number, text in enumerate(texts):
        ns.write(patches=[{"id": "a", "s": text, "n": number}])
    assert [row["n"] for row in ns.scan(columns=["n"]).documents()] == [59, 1]
    while ns.index():
        pass
    assert ns.get("a") == {"id": "a", "n": 59, "s": texts[-1]}
    assert ns.count() == 2


def test_many_gets_hold_a_few_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty groups of a megabyte are looked into, a few at a time, and none stays in the cache."""
    monkeypatch.setattr(viewing, "_IDS_AT_ONCE", 4)
    monkeypatch.setattr(viewing, "_KEPT_BYTES", 0)
    ns = reef.connect(str(tmp_path)).namespace("n", maintain=False)
    documents = [{"id": f"{n:05}", "s": noise(100_000), "n": n} for n in range(400)]
    ns.load(iter([documents[:200], documents[200:]]))
    while ns.index():
        pass
    assert len(ns._tree.view.runs[0].readers[0].groups()) > 20
    ids = [f"{n * 37 % 400:05}" for n in range(400)]
    ns.get("00000", columns=["n"])
    with peak_memory() as peak:
        found = ns.get_many(ids, columns=["n"])
        with pytest.raises(reef.ConditionFailed):
            ns.write(upserts=[{"id": id, "n": 1} for id in ids], condition=reef.if_equal(n=-1))
    assert found == [{"id": id, "n": int(id)} for id in ids]
    # Four groups, and the one before that a reader still had in hand.
    assert peak.bytes < 12 * (1 << 20)


def test_many_gets_keep_their_order(
    memory_store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewing, "_IDS_AT_ONCE", 3)
    ns = opened(memory_store, cache_bytes=1 << 20)

    def check() -> None:
        ids = [f"{n * 7 % 23:02}" for n in range(40)]
        assert ns.get_many(ids) == [ns.get(id) for id in ids]
        assert ns.get_many(ids, columns=["n"]) == [ns.get(id, columns=["n"]) for id in ids]

    for step in range(4):
        ns.write(upserts=[{"id": f"{n:02}", "n": step, "m": n} for n in range(step, 20, step + 1)])
        ns.write(patches=[{"id": "06", "n": -step}], deletes=["03", "04"])
        check()
        while ns.index():
            pass
        check()
    ns.compact(full=True)
    check()


def test_deleting_by_a_filter_takes_any_number(memory_store: MemoryStore) -> None:
    """More ids than a batch may have bytes become segments of tombstones, a few at a time."""
    limits = {"large_batch_bytes": 10_000, "batch_bytes": 20_000}
    ns = opened(memory_store, **limits)
    ns.load([{"id": f"{n:06}" * 4, "n": n} for n in range(20_000)])
    assert ns.write(delete_where="n < 100").deleted == 100
    with peak_memory() as peak:
        receipt = ns.write(delete_where="n >= 500 and n < 19000", idempotency_key="k")
    assert receipt.deleted == 18_500
    assert peak.bytes < 8 * WINDOW
    assert [info.tombstones for info in ns._tree.view.ingests] == [0, 18_500]
    left = [*range(100, 500), *range(19_000, 20_000)]
    assert [row["n"] for row in ns.scan().documents()] == left
    assert ns.write(delete_where="n >= 500 and n < 19000", idempotency_key="k") == receipt
    assert [change.kind for change in ns.changes(after=receipt.lsn - 1)] == ["delete"] * 18_500
    reader = reef.connect(memory_store).namespace(ns.name, "r")
    assert [row["n"] for row in reader.scan().documents()] == left
    while ns.index():
        pass
    ns.compact(full=True)
    assert ns.count() == len(left)


@pytest.mark.parametrize(
    "more",
    [
        {"upserts": [{"id": "a", "n": 1}]},
        {"deletes": ["a"]},
        {"condition": reef.if_exists()},
    ],
)
def test_deleting_by_a_filter_beside_other_operations_has_a_limit(
    memory_store: MemoryStore, more: Any
) -> None:
    ns = opened(memory_store, large_batch_bytes=1_000, batch_bytes=20_000)
    ns.load([{"id": f"{n:06}" * 4, "n": n} for n in range(20_000)])
    assert ns.write(delete_where="n < 100", **more).deleted >= 100
    before = ns.lsn
    with pytest.raises(reef.BatchTooLarge, match="alone"):
        ns.write(delete_where="n >= 0", **more)
    assert ns.lsn == before
    assert ns.count() >= 19_900

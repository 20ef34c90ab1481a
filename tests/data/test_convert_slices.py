"""Columns of more bytes than one array can hold; with the limit lowered, few bytes are enough."""

from __future__ import annotations

import mmap
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import reef
from reef import BatchTooLarge, InvalidId, InvalidInput, Schema, SchemaConflict
from reef.data.convert import convert_deletes, convert_rows, convert_slices, slices
from reef.data.convert.slices import cuts, plain_bytes
from reef.data.documents import documents_of
from reef.data.rows import UPSERT
from reef.documents import Namespace
from reef.store import MemoryStore

ROWS = 400
IDS = [f"id-{row:04}" for row in range(ROWS)]
TEXTS = [None if row % 50 == 7 else f"{row}" * (row % 40) for row in range(ROWS)]
LIMIT = 2_000


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 2,000 bytes were what an array can hold."""
    monkeypatch.setattr(slices, "SLICE_BYTES", LIMIT)
    monkeypatch.setattr(slices, "LARGEST_ARRAY", LIMIT)


def _chunks(array: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([array[:3], array[3:3], array[3:201], array[201:]])


def _text(kind: pa.DataType) -> pa.Array:
    return pa.array(TEXTS, pa.string()).cast(kind)


def _raw(kind: pa.DataType) -> pa.Array:
    return pa.array(TEXTS, pa.string()).cast(pa.binary()).cast(kind)


COLUMNS: dict[str, Any] = {
    "string": _text(pa.string()),
    "large_string": _text(pa.large_string()),
    "string_view": _text(pa.string_view()),
    "binary": _raw(pa.binary()),
    "large_binary": _raw(pa.large_binary()),
    "binary_view": _raw(pa.binary_view()),
    "fixed_binary": pa.array([bytes([row % 256]) * 20 for row in range(ROWS)], pa.binary(20)),
    "dictionary": _text(pa.string()).dictionary_encode(),
    "few_values": pa.array(["x" * 100, None, "y"] * 133 + ["z"]).dictionary_encode(),
    "dictionary_of_views": pa.DictionaryArray.from_arrays(
        pa.array([row % 3 for row in range(ROWS)]), pa.array(["x" * 100, "", "y"], pa.string_view())
    ),
    "run_ends": pa.RunEndEncodedArray.from_arrays([150, 300, 400], ["a" * 90, None, "b" * 60]),
    "lists": pa.array([[row] * (row % 7) for row in range(ROWS)]),
    "large_lists": pa.array([[row] * (row % 7) for row in range(ROWS)], pa.large_list(pa.int32())),
    "lists_of_views": pa.array([["x" * 20] * (row % 4) for row in range(ROWS)],
                               pa.list_(pa.string_view())),
    "list_views": pa.array([[row] * (row % 7) for row in range(ROWS)], pa.list_view(pa.int64())),
    "vectors": pa.array([[row, 0.5] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
    "structs": pa.array([{"a": row, "b": "x" * (row % 9)} for row in range(ROWS)]),
    "maps": pa.array([[("k", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "json": pa.array(['{"a": [1]}'] * ROWS, pa.json_()),
    "nested": pa.array([[[row]] for row in range(ROWS)]),
    "numbers": pa.array(range(ROWS), pa.uint8() if ROWS < 256 else pa.int16()),
    "moments": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC")),
    "nulls": pa.nulls(ROWS),
    "numpy": np.array([f"n{row}" for row in range(ROWS)]),
    "objects": np.array(TEXTS, object),
    "pandas": pd.Series(TEXTS, dtype="string"),
    "polars": pl.Series(TEXTS),
    "texts": TEXTS,
    "values": [{"a": [row]} if row % 2 else "text" for row in range(ROWS)],
    "value_lists": [["x" * 10] * (row % 5) for row in range(ROWS)],
    "value_bytes": [bytes([row % 256]) * 9 for row in range(ROWS)],
}  # fmt: skip
NAMES = list(COLUMNS)


def _documents(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [document for batch in batches for document in documents_of(batch)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("in_chunks", [False, True])
def test_slices_are_what_one_batch_would_be(name: str, in_chunks: bool, lowered: None) -> None:
    column = COLUMNS[name]
    if in_chunks:
        if not isinstance(column, pa.Array):
            pytest.skip("no Arrow array")
        column = _chunks(column)
    data = {"id": IDS, "x": column}
    with pytest.MonkeyPatch.context() as usual:
        usual.setattr(slices, "LARGEST_ARRAY", 1 << 30)
        whole, schema = convert_rows(data, Schema(), kind=UPSERT)
    found = list(convert_slices(data, Schema(), kind=UPSERT))
    assert _documents([batch for batch, _ in found]) == documents_of(whole)
    assert found[-1][1] == schema
    for batch, _ in found:
        assert batch.column("x").type == whole.column("x").type
        assert batch.num_rows == 1 or batch.column("x").nbytes <= LIMIT
    if whole.column("x").nbytes > 2 * LIMIT:
        assert len(found) > 1


@pytest.mark.parametrize("name", NAMES)
def test_what_a_column_comes_to_is_known_before(name: str) -> None:
    column = COLUMNS[name]
    if not isinstance(column, pa.Array):
        pytest.skip("no Arrow array")
    for some in (column, column[100:300], column[7:8], column[:0]):
        data = {"id": IDS[: len(some)], "x": some}
        made = convert_rows(data, Schema(), kind=UPSERT)[0].column("x").nbytes
        assert plain_bytes(some) >= made // 2 - 8
        assert plain_bytes(some) <= 100 * (made + 8) or pa.types.is_null(column.type)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()])
def test_a_little_out_of_the_end_of_a_lot(kind: pa.DataType) -> None:
    """Cut out of 2 GiB, which nobody touches: only its last page is ever there."""
    end = 2**31 + 4096
    with mmap.mmap(-1, end) as memory:
        memory[-6:] = b"onetwo"
        offsets = pa.py_buffer(np.array([end - 6, end - 3, end], np.int64))
        column = pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(memory)])
        lists = pa.LargeListArray.from_arrays([0, 1, 2], column)
        data = {"id": ["a", "b"], "x": column, "l": lists}
        batch, _ = convert_rows(data, Schema(), kind=UPSERT)
        assert [str(v, "utf-8") if isinstance(v, bytes) else v for v in batch["x"].to_pylist()] == [
            "one",
            "two",
        ]
        assert batch["l"].values.to_pylist() == batch["x"].to_pylist()
        if kind == pa.large_string():
            batch, _ = convert_rows({"id": column}, Schema(), kind=UPSERT)
            assert batch["id"].to_pylist() == ["one", "two"]
        del data, lists, column, batch


def test_rows_are_cut_in_order_and_none_is_lost() -> None:
    column = _text(pa.string_view())
    found = list(cuts([column], ROWS, 1_000))
    assert [row for some in found for row in some] == list(range(ROWS))
    assert all(plain_bytes(column[s.start : s.stop]) <= 1_000 or len(s) == 1 for s in found)
    assert [len(some) for some in cuts([], ROWS, 10)] == [ROWS]
    assert list(cuts([column], 0, 10)) == [range(0)]


@pytest.mark.parametrize("name", ["string_view", "dictionary", "large_lists", "texts", "values"])
def test_one_batch_that_cannot_be_is_refused(name: str, lowered: None) -> None:
    with pytest.raises(BatchTooLarge, match=r"400 rows .* load\(\)"):
        convert_rows({"id": IDS, "x": COLUMNS[name]}, Schema(), kind=UPSERT)
    with pytest.raises(BatchTooLarge):
        convert_rows([{"id": id, "x": "x" * 99} for id in IDS], Schema(), kind=UPSERT)
    with pytest.raises(BatchTooLarge):
        convert_deletes(pa.array(IDS, pa.large_string()), Schema())


def test_one_value_that_cannot_be_is_refused(lowered: None) -> None:
    for column in (
        ["x" * 3_000],
        pa.array(["x" * 3_000]),
        pa.array(["x" * 3_000], pa.string_view()),
    ):
        with pytest.raises(InvalidInput):
            list(convert_slices({"id": ["a"], "x": column}, Schema(), kind=UPSERT))


def test_slices_agree_on_types(lowered: None) -> None:
    """An integer in the first slice is a float, if the last has one."""
    values: list[Any] = [*range(ROWS - 1), 0.5]
    data = {"id": IDS, "x": values, "long": TEXTS, "y": [None] * (ROWS - 1) + [[1]]}
    found = list(convert_slices(data, Schema(), kind=UPSERT))
    assert len(found) > 1
    for batch, schema in found:
        assert {n: str(k) for n, k in schema.attributes.items()} == {
            "x": "float64",
            "long": "string",
            "y": "list<int64>",
        }
        assert batch.column("x").type == pa.float64()


def test_errors_name_the_row_of_the_whole(lowered: None) -> None:
    texts = _text(pa.string_view())
    naughty: list[Any] = [*range(ROWS - 3), 2**70, 1, 2]
    with pytest.raises(SchemaConflict, match=f"row {ROWS - 3} \\(id 'id-0397'\\)"):
        list(convert_slices({"id": IDS, "t": texts, "x": naughty}, Schema(), kind=UPSERT))
    ids = [*IDS[:-1], "bad\n"]
    with pytest.raises(InvalidId, match=f"of row {ROWS - 1} "):
        list(convert_slices({"id": ids, "t": texts}, Schema(), kind=UPSERT))
    mixed: list[Any] = [*range(ROWS - 1), "text"]
    with pytest.raises(SchemaConflict, match=f"row {ROWS - 1} \\(id 'id-0399'\\)"):
        list(convert_slices({"id": IDS, "t": texts, "x": mixed}, Schema(), kind=UPSERT))


@pytest.fixture
def ns() -> Namespace:
    return reef.connect(MemoryStore()).namespace("n", maintain=False)


def test_loads_and_writes_of_too_much(ns: Namespace, lowered: None) -> None:
    frame = pl.DataFrame({"id": IDS, "x": TEXTS})
    with pytest.raises(BatchTooLarge):
        ns.write(upserts=frame)
    assert ns.count() == 0
    assert ns.load(frame).upserted == ROWS
    ns.write(deletes=["nobody"])
    assert [row["x"] for row in ns.scan().documents()] == TEXTS


def test_of_rows_of_one_id_in_several_slices_the_last_counts(ns: Namespace, lowered: None) -> None:
    table = pa.table({"id": IDS * 2, "x": pa.array(TEXTS + ["new"] * ROWS, pa.large_string())})
    assert ns.load(table).upserted == ROWS
    ns.refresh()
    ns.write(deletes=["nobody"])
    assert {row["x"] for row in ns.scan().documents()} == {"new"}

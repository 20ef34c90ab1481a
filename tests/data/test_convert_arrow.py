"""Arrow arrays, NumPy columns and DataFrames into batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from reef.data.convert import convert_rows
from reef.data.place import LARGEST_VALUE
from reef.data.rows import KIND, UPSERT, field_of, null_flag
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import InvalidInput, InvalidName, SchemaConflict

MOMENT = datetime(2024, 1, 1, 12, 30, 0, 7, tzinfo=UTC)
MIDNIGHT = datetime(2024, 1, 1, tzinfo=UTC)
UTC_US = pa.timestamp("us", tz="UTC")


def column(array: Any, declared: str | None = None) -> tuple[list[Any], str]:
    """A column through a conversion: as stored, and the type it got."""
    schema = Schema(None, {"a": parse_type(declared)} if declared else {})
    data = {"id": pa.array(range(len(array)), pa.uint64()), "a": array}
    batch, extended = convert_rows(data, schema, kind=UPSERT)
    batch.validate(full=True)
    kind = extended.attributes["a"]
    assert batch.schema.field("a").equals(field_of("a", kind), check_metadata=True)
    if kind.family in ("list", "vector"):
        assert batch.column("a").type.value_field.equals(kind.arrow.value_field)
    stored = batch.column("a").to_pylist()
    flag = batch.schema.get_field_index(null_flag("a"))
    flags = batch.column(flag).to_pylist() if flag >= 0 else [False] * len(stored)
    assert flags == [value is None for value in stored]
    if kind.family == "json":
        stored = [None if text is None else msgspec.json.decode(text) for text in stored]
    return stored, str(kind)


def vectors(values: list[Any], element: pa.DataType, size: int) -> pa.Array:
    return pa.array(values, pa.list_(element, size))


GOOD: list[tuple[Any, str, list[Any]]] = [
    (pa.array([True, None]), "bool", [True, None]),
    *(
        (pa.array([1, None, 3], kind), "int64", [1, None, 3])
        for kind in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(),
            pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        )
    ),
    (pa.array([1.5, None], pa.float32()), "float64", [1.5, None]),
    (pa.array([1.5, None], pa.float16()), "float64", [1.5, None]),
    (pa.array([1.5, None]), "float64", [1.5, None]),
    *(
        (pa.array(["a", None, "é"], kind), "string", ["a", None, "é"])
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ),
    (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
    *(
        (pa.array([b"ab", None], kind), "bytes", [b"ab", None])
        for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2))
    ),
    (pa.array([MOMENT, None], UTC_US), "timestamp", [MOMENT, None]),
    (pa.array([MOMENT], pa.timestamp("us", tz="Asia/Tokyo")), "timestamp", [MOMENT]),
    (pa.array([MOMENT], pa.timestamp("ns", tz="UTC")), "timestamp", [MOMENT]),
    (pa.array([MIDNIGHT], pa.timestamp("s", tz="+02:00")), "timestamp", [MIDNIGHT]),
    (pa.array([date(2024, 1, 1)], pa.date32()), "timestamp", [MIDNIGHT]),
    (pa.array([date(2024, 1, 1)], pa.date64()), "timestamp", [MIDNIGHT]),
    (vectors([[1.5, 2], None], pa.float32(), 2), "vector<float32, 2>", [[1.5, 2.0], None]),
    (vectors([[1.5, 2], None], pa.float16(), 2), "vector<float16, 2>", [[1.5, 2.0], None]),
    (vectors([[1.5, 2], None], pa.float64(), 2), "list<float64>", [[1.5, 2.0], None]),
    (vectors([[1, 2], None], pa.int8(), 2), "list<int64>", [[1, 2], None]),
    *(
        (pa.array([[1, None], None, []], kind(pa.int16())), "list<int64>", [[1, None], None, []])
        for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
    ),
    (pa.array([[1, 2], [3]]), "list<int64>", [[1, 2], [3]]),
    (pa.array([["a"], None], pa.list_(pa.large_string())), "list<string>", [["a"], None]),
    (pa.array([[1.5]], pa.list_(pa.float32())), "list<float64>", [[1.5]]),
    (pa.array([[MOMENT]], pa.list_(UTC_US)), "list<timestamp>", [[MOMENT]]),
    (pa.array([[1]], pa.list_(pa.field("element", pa.int64()))), "list<int64>", [[1]]),
    (pa.array([{"a": 1, "b": [2]}, None]), "json", [{"a": 1, "b": [2]}, None]),
    (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), "json", [{"k": 1}, None]),
    (pa.array([[[1]], None]), "json", [[[1]], None]),
    (pa.nulls(2), "null", [None, None]),
    (pa.array([[], None], pa.list_(pa.null())), "list<null>", [[], None]),
    (pa.array(['{"a": 1}', None], pa.json_()), "json", [{"a": 1}, None]),
    (pa.chunked_array([[1], [], [2]]), "int64", [1, 2]),
    (pa.chunked_array([], pa.int64()), "int64", []),
    (pa.RunEndEncodedArray.from_arrays([2, 3], [5, 6]), "int64", [5, 5, 6]),
    (np.array([1, 2], np.uint8), "int64", [1, 2]),
    (np.array([1, 2], ">i4"), "int64", [1, 2]),
    (np.array([1.5, math.inf]), "float64", [1.5, math.inf]),
    (np.array([1.5], np.float16), "float64", [1.5]),
    (np.array([True, False]), "bool", [True, False]),
    (np.array(["a", "é"]), "string", ["a", "é"]),
    (np.array([b"a", b"bc"]), "bytes", [b"a", b"bc"]),
    (np.ma.masked_array([1, 2], [False, True]), "int64", [1, None]),
    (np.array(["a", None], object), "string", ["a", None]),
    (np.array([[1.5, 2], [3, 4]], np.float32), "vector<float32, 2>", [[1.5, 2.0], [3.0, 4.0]]),
    (np.array([[1.5, 2]], np.float16), "vector<float16, 2>", [[1.5, 2.0]]),
    (np.array([[1.5, 2]]), "list<float64>", [[1.5, 2.0]]),
    (np.array([[1, 2]]), "list<int64>", [[1, 2]]),
    (np.ones((1, 2, 2), np.float32), "json", [[[1.0, 1.0], [1.0, 1.0]]]),
    (np.array([[1, 0, 2], [3, 0, 4]], np.float32)[:, ::2], "vector<float32, 2>", [[1, 2], [3, 4]]),
    (pd.Series([1, 2]), "int64", [1, 2]),
    (pl.Series([1, None]), "int64", [1, None]),
    ([1, None], "int64", [1, None]),
    ((1, 2), "int64", [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("array", "kind", "stored"), GOOD)
def test_inference(array: Any, kind: str, stored: list[Any]) -> None:
    assert column(array) == (stored, kind)
    # And again with the type known, and in the middle of a larger array.
    assert column(array, kind) == (stored, kind)
    if isinstance(array, pa.Array) and len(array) > 1:
        assert column(array[1:], kind)[0] == stored[1:]


@pytest.mark.parametrize(
    ("declared", "array", "stored"),
    [
        ("float64", pa.array([1, None, 2**60]), [1.0, None, 2.0**60]),
        ("float64", pa.array([2**63], pa.uint64()), [2.0**63]),
        ("vector<float32, 2>", pa.array([[1.5, 2.5], None]), [[1.5, 2.5], None]),
        ("vector<float32, 2>", vectors([None, [1, 2]], pa.int32(), 2), [None, [1.0, 2.0]]),
        ("vector<float32, 2>", pa.array([[1, 2]], pa.large_list(pa.float16())), [[1.0, 2.0]]),
        ("vector<float16, 2>", vectors([[1.5, 2]], pa.float32(), 2), [[1.5, 2.0]]),
        ("vector<float32, 2>", np.array([[1.5, 2.5]]), [[1.5, 2.5]]),
        ("vector<float32, 2>", pa.nulls(2), [None, None]),
        ("vector<float32, 2>", vectors([[1, 2], [3, 4]], pa.float32(), 2)[1:], [[3.0, 4.0]]),
        ("list<float64>", vectors([[1.5, 2]], pa.float32(), 2), [[1.5, 2.0]]),
        ("list<float64>", pa.array([[1, 2]]), [[1.0, 2.0]]),
        ("list<string>", pa.array([[], None], pa.list_(pa.null())), [[], None]),
        ("json", pa.array(["a", "1", None]), ["a", "1", None]),
        ("json", pa.array([1, None]), [1, None]),
        ("json", pa.array([[1.5]]), [[1.5]]),
        ("timestamp", pa.nulls(1), [None]),
    ],
)
def test_known_types(declared: str, array: Any, stored: list[Any]) -> None:
    assert column(array, declared) == (stored, declared)


def test_numbers_under_a_null_vector_do_not_matter() -> None:
    numbers = pa.array([1.0, 2.0, math.nan, math.nan], pa.float32())
    array = pa.FixedSizeListArray.from_arrays(numbers, 2, mask=pa.array([False, True]))
    assert column(array)[0] == [[1.0, 2.0], None]


def test_numbers_outside_a_slice_do_not_matter() -> None:
    array = vectors([[math.nan, 0], [1, 2], [math.inf, 0]], pa.float32(), 2)[1:2]
    assert column(array)[0] == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("declared", "array", "words"),
    [
        (None, pa.array([Decimal(1)]), "decimal128"),
        (None, pa.array([time(1)]), "time64"),
        (None, pa.array([timedelta(1)]), "duration"),
        (None, pa.array([datetime(2024, 1, 1)]), "time zone"),
        (None, pa.array([1, 2**63], pa.uint64()), "row 1"),
        (None, pa.array([1001], pa.timestamp("ns", tz="UTC")), "exact as timestamp"),
        (None, pa.array([2**62], pa.timestamp("s", tz="UTC")), "row 0"),
        (None, pa.array([2**62], UTC_US), "years 1 to 9999"),
        (None, pa.array([[datetime(2024, 1, 1)]]), "time zone"),
        (None, vectors([[1, 2], [1, math.nan]], pa.float32(), 2), "row 1"),
        (None, vectors([None, [1, math.inf]], pa.float32(), 2), "row 1"),
        (None, vectors([[1, 2], [1, None]], pa.float32(), 2), "row 1"),
        (None, vectors([[1, math.nan]], pa.float16(), 2), "nan"),
        (None, np.array(["2024-01-01"], "M8[s]"), "datetime64"),
        (None, np.array([1j]), "complex"),
        (None, np.ma.masked_array([[1.0, 2.0]], [[False, True]]), "masked"),
        (None, np.array([1], np.longdouble), "longdouble|float128"),
        (None, np.array([[1.0, math.nan]], np.float32), "row 0"),
        ("int64", pa.array([1.0]), "double"),
        ("int64", pa.array(["1"]), "string"),
        ("int64", pa.array([True]), "bool"),
        ("bool", pa.array([1]), "int64"),
        ("float64", pa.array([0, 2**53 + 1]), "row 1 .*exactly"),
        ("float64", pa.array([2**63 - 1]), "exactly"),
        ("float64", pa.array([2**64 - 1], pa.uint64()), "exactly"),
        ("string", pa.array([b"a"]), "binary"),
        ("bytes", pa.array(["a"]), "string"),
        ("timestamp", pa.array([1]), "int64"),
        ("timestamp", pa.array([datetime(2024, 1, 1)]), "time zone"),
        ("list<int64>", pa.array([1]), "int64"),
        ("list<int64>", pa.array([[1.5]]), "double"),
        ("list<int64>", pa.array([[1], [2, 2**63]], pa.list_(pa.uint64())), "row 1"),
        ("vector<float32, 2>", vectors([[1, 2, 3]], pa.float32(), 3), "dimension 2, not .* 3"),
        ("vector<float32, 2>", pa.array([[1.0, 2.0], [1.0]]), "row 1 .* 2, not of dimension 1"),
        ("vector<float32, 2>", pa.array([None, [1.0, None]]), "row 1 .* null"),
        ("vector<float32, 2>", pa.array([[1.0, 1e300]]), "inf"),
        ("vector<float16, 2>", vectors([[1, 70000]], pa.float32(), 2), "inf"),
        ("vector<float32, 2>", pa.array([["a", "b"]]), "vector"),
        ("vector<float32, 2>", pa.array([1.0]), "vector"),
        ("json", pa.array([MOMENT], UTC_US), "JSON"),
    ],
)
def test_conflicts(declared: str | None, array: Any, words: str) -> None:
    with pytest.raises(SchemaConflict, match=words) as caught:
        column(array, declared)
    assert "attribute 'a'" in str(caught.value)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([b"\xff"]).view(pa.string()),
        pa.array([{"a": math.nan}]),
        pa.array([{"a": b"x"}]),
        pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        pa.array(["{"], pa.json_()),
        pa.array(["x" * (LARGEST_VALUE + 1)]),
        pa.array([["x" * LARGEST_VALUE, "x"]]),
        pa.array([None, [1] * (LARGEST_VALUE // 8 + 1)]),
        np.array(["\ud800"]),
    ],
)
def test_what_no_schema_takes(array: Any) -> None:
    with pytest.raises(InvalidInput):
        column(array)


def test_tables_are_not_copied() -> None:
    table = pa.table(
        {
            "id": ["a", "b"],
            "text": ["x", None],
            "vector": vectors([[1, 2], [3, 4]], pa.float32(), 2),
        }
    )
    batch, schema = convert_rows(table, Schema(), kind=UPSERT)
    assert batch.schema.names == ["id", KIND, "text", "vector", null_flag("text")]
    for name, position in (("id", 2), ("text", 2), ("vector", 2)):
        old = table.column(name).chunk(0).buffers()[position]
        assert batch.column(name).buffers()[position].address == old.address
    assert convert_rows(table.to_batches()[0], schema, kind=UPSERT)[0].equals(batch)


def test_what_reef_gives_out_it_takes_back() -> None:
    rows = [{"id": 1, "extra": {"a": [1]}}, {"id": 2, "extra": None}]
    batch, schema = convert_rows(rows, Schema(), kind=UPSERT)
    given = batch.select(["id", "extra"])
    assert convert_rows(given, schema, kind=UPSERT)[0].equals(batch)
    assert convert_rows(given, Schema(), kind=UPSERT)[1] == schema


FRAMES: list[Callable[[dict[str, Any]], Any]] = [
    pa.table,
    pa.RecordBatch.from_pydict,
    pl.DataFrame,
    pd.DataFrame,
    lambda columns: pd.DataFrame(columns, index=[7] * len(columns["id"])),
    lambda columns: pa.table(columns).to_reader(),
    lambda columns: pa.concat_tables([pa.table(columns)[:1], pa.table(columns)[1:]]),
    lambda columns: {name: pa.array(values) for name, values in columns.items()},
    lambda columns: {name: pl.Series(values) for name, values in columns.items()},
    lambda columns: {name: pd.Series(values) for name, values in columns.items()},
]


@pytest.mark.parametrize("make", FRAMES)
def test_frames(make: Callable[[dict[str, Any]], Any]) -> None:
    columns = {
        "id": ["a", "b", "a"],
        "title": ["Alien", None, ""],
        "score": [1.5, None, 2.5],
        "seen": [True, False, True],
        "at": [MOMENT, MOMENT, None],
        "tags": [["x"], [], ["y", "z"]],
    }
    batch, schema = convert_rows(make(columns), Schema(), kind=UPSERT)
    kinds = {name: str(kind) for name, kind in schema.attributes.items()}
    assert kinds == {
        "title": "string",
        "score": "float64",
        "seen": "bool",
        "at": "timestamp",
        "tags": "list<string>",
    }
    assert batch.select(list(columns)).to_pydict() == columns
    flags = {name for name in batch.schema.names if name.startswith("\0null")}
    assert flags == {null_flag("title"), null_flag("score"), null_flag("at")}


def test_pandas_objects() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "vector": [np.array([1, 2], np.float32), None],
            "mixed": [{"a": 1}, np.nan],
            "group": pd.Categorical(["x", None]),
            "count": pd.array([1, None], "Int64"),
        }
    )
    batch, schema = convert_rows(frame, Schema(), kind=UPSERT)
    assert schema.id_kind == "uint64"
    assert batch.column("vector").to_pylist() == [[1.0, 2.0], None]
    assert batch.column("mixed").to_pylist() == ['{"a":1}', None]
    assert batch.column("group").to_pylist() == ["x", None]
    assert batch.column("count").to_pylist() == [1, None]
    moment = pd.Timestamp(1, unit="ns", tz="UTC")
    with pytest.raises(SchemaConflict, match="whole microseconds"):
        convert_rows([{"id": 1, "a": moment}], Schema(), kind=UPSERT)
    with pytest.raises(SchemaConflict, match="time zone"):
        convert_rows([{"id": 1, "a": pd.NaT}], Schema(), kind=UPSERT)


def test_polars_vectors() -> None:
    frame = pl.DataFrame({"id": ["a"], "v": pl.Series([[1.0, 2.0]], dtype=pl.Array(pl.Float32, 2))})
    batch, schema = convert_rows(frame, Schema(), kind=UPSERT)
    assert str(schema.attributes["v"]) == "vector<float32, 2>"
    assert batch.column("v").to_pylist() == [[1.0, 2.0]]


def test_bad_tables() -> None:
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["id", "id"])
    with pytest.raises(InvalidInput, match="two columns 'id'"):
        convert_rows(twice, Schema(), kind=UPSERT)
    with pytest.raises(InvalidName):
        convert_rows(pd.DataFrame({"id": ["a"], 3: [1]}), Schema(), kind=UPSERT)
    with pytest.raises(InvalidInput, match="pandas Series"):
        convert_rows(pd.Series([1]), Schema(), kind=UPSERT)
    with pytest.raises(InvalidInput):
        convert_rows(pl.Series([1]), Schema(), kind=UPSERT)


def test_an_empty_table_still_brings_its_types() -> None:
    empty = pa.table({"id": pa.array([], pa.string()), "a": pa.array([], pa.int32())})
    batch, schema = convert_rows(empty, Schema(), kind=UPSERT)
    assert batch.num_rows == 0
    assert schema == Schema(None, {"a": parse_type("int64")})

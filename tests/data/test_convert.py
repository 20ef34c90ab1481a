"""Python rows and columns into batches: every type, good and bad."""

from __future__ import annotations

import enum
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.data.convert import convert_rows
from reef.data.convert.few import convert_few_rows
from reef.data.place import LARGEST_VALUE
from reef.data.plain import PlainRows, as_batch, join, tombstone_rows
from reef.data.rows import (
    DELETE,
    ID,
    KIND,
    PATCH,
    UPSERT,
    attributes_of,
    field_of,
    null_flag,
)
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import InvalidId, InvalidInput, InvalidName, SchemaConflict

MOMENT = datetime(2024, 1, 1, 12, 30, 0, 7, tzinfo=UTC)
ELSEWHERE = timezone(timedelta(hours=-5))


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


def back(batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """The rows of a batch as the dicts that they came from."""
    batch.validate(full=True)
    rows = [{"id": value} for value in batch.column(ID).to_pylist()]
    for name in attributes_of(batch):
        kind = schema.attributes[name]
        assert batch.schema.field(name).equals(field_of(name, kind), check_metadata=True)
        flag = batch.schema.get_field_index(null_flag(name))
        flags = batch.column(flag).to_pylist() if flag >= 0 else [False] * len(rows)
        assert flag < 0 or any(flags)
        column = batch.column(name).to_pylist()
        for row, value, null in zip(rows, column, flags, strict=True):
            if value is not None:
                row[name] = msgspec.json.decode(value) if kind.family == "json" else value
            elif null:
                row[name] = None
    return rows


def one(value: Any, declared: str | None = None) -> tuple[Any, str]:
    """A value through a two-row conversion: as stored, and the type it got."""
    schema = Schema("string", {"a": parse_type(declared)} if declared else {})
    data = [{"id": "x", "a": value}, {"id": "y"}]
    batch, extended = convert_rows(data, schema, kind=UPSERT)
    if declared:
        assert extended is schema
        single, _ = convert_rows(data[:1], schema, kind=UPSERT)
        assert repr(back(single, extended)[0]) == repr(back(batch, extended)[0])
    return back(batch, extended)[0]["a"], str(extended.attributes["a"])


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (True, "bool", True),
        (np.bool_(False), "bool", False),
        (3, "int64", 3),
        (-(2**63), "int64", -(2**63)),
        (np.int16(3), "int64", 3),
        (np.uint64(3), "int64", 3),
        (Colour.RED, "int64", 1),
        (1.5, "float64", 1.5),
        (np.float32(1.5), "float64", 1.5),
        (math.inf, "float64", math.inf),
        ("Alien", "string", "Alien"),
        ("", "string", ""),
        ("a\0b", "string", "a\0b"),
        (np.str_("x"), "string", "x"),
        (Text("x"), "string", "x"),
        (b"\x00\xff", "bytes", b"\x00\xff"),
        (bytearray(b"ab"), "bytes", b"ab"),
        (MOMENT, "timestamp", MOMENT),
        (MOMENT.astimezone(ELSEWHERE), "timestamp", MOMENT),
        (date(2024, 1, 1), "timestamp", datetime(2024, 1, 1, tzinfo=UTC)),
        ([1, 2], "list<int64>", [1, 2]),
        ((1, 2), "list<int64>", [1, 2]),
        ([1, 2.5], "list<float64>", [1.0, 2.5]),
        ([True], "list<bool>", [True]),
        (["a", None], "list<string>", ["a", None]),
        ([b"a"], "list<bytes>", [b"a"]),
        ([MOMENT], "list<timestamp>", [MOMENT]),
        (np.array([1.5, 2.5]), "list<float64>", [1.5, 2.5]),
        (np.array([1, 2], np.int8), "list<int64>", [1, 2]),
        (np.array(["a", "b"]), "list<string>", ["a", "b"]),
        (np.array([1.5, 2.5], np.float32), "vector<float32, 2>", [1.5, 2.5]),
        (np.array([1.5, 2.5], np.float16), "vector<float16, 2>", [1.5, 2.5]),
        ({"a": [1, {"b": None}]}, "json", {"a": [1, {"b": None}]}),
        ({}, "json", {}),
        ([[1], [2]], "json", [[1], [2]]),
        ([1, "a"], "json", [1, "a"]),
        ([2**60 + 1, 0.5], "json", [2**60 + 1, 0.5]),
        ([{"a": 1}], "json", [{"a": 1}]),
        (np.zeros((2, 2), np.float32), "json", [[0.0, 0.0], [0.0, 0.0]]),
        ([], "list<null>", []),
        ([None], "list<null>", [None]),
        (None, "null", None),
    ],
)
def test_inference(value: Any, kind: str, stored: Any) -> None:
    found = one(value)
    assert found == (stored, kind)
    assert type(found[0]) is type(stored)


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        ("float64", 3, 3.0),
        ("float64", 2**60, 2.0**60),
        ("float64", math.nan, math.nan),
        ("string", None, None),
        ("list<int64>", [], []),
        ("list<int64>", None, None),
        ("list<float64>", [1, 2], [1.0, 2.0]),
        ("list<float64>", np.array([1.5], np.float32), [1.5]),
        ("vector<float32, 2>", [1.5, 2.5], [1.5, 2.5]),
        ("vector<float32, 2>", (1, 2), [1.0, 2.0]),
        ("vector<float32, 2>", [1, 2**25 + 1], [1.0, 2.0**25]),
        ("vector<float32, 2>", np.array([1, 2]), [1.0, 2.0]),
        ("vector<float32, 2>", np.array([1.5, 2.5]), [1.5, 2.5]),
        ("vector<float32, 2>", [np.float32(1.5), np.int8(2)], [1.5, 2.0]),
        ("vector<float16, 2>", [1.5, 65504], [1.5, 65504.0]),
        ("vector<float16, 2>", np.array([1.5, 2.5], np.float32), [1.5, 2.5]),
        ("vector<float32, 2>", None, None),
        ("json", "text", "text"),
        ("json", 2**70, 2**70),
        ("json", 1.0, 1.0),
        ("json", True, True),
        ("json", (1, np.int8(2)), [1, 2]),
        ("json", np.arange(3), [0, 1, 2]),
        ("json", None, None),
    ],
)
def test_known_types(declared: str, value: Any, stored: Any) -> None:
    found, _ = one(value, declared)
    assert repr(found) == repr(stored)


@pytest.mark.parametrize(
    ("declared", "value", "words"),
    [
        ("bool", 1, "bool"),
        ("bool", "true", "bool"),
        ("int64", True, "int64"),
        ("int64", 1.0, "the float 1.0"),
        ("int64", np.float64(1), "int64"),
        ("int64", "1", "the str '1'"),
        ("int64", 2**63, "64 bits"),
        ("int64", -(2**63) - 1, "64 bits"),
        ("int64", Decimal(1), "Decimal"),
        pytest.param("int64", 10**5000, "64 bits", id="huge"),
        pytest.param("float64", 10**5000, "exactly", id="huge float"),
        ("int64", DEEP, "a list"),
        ("float64", 2**53 + 1, "exactly"),
        ("float64", 10**400, "exactly"),
        ("float64", True, "float64"),
        ("float64", "1.5", "float64"),
        ("string", 1, "string"),
        ("string", b"a", "string"),
        ("bytes", "a", "bytes"),
        ("timestamp", datetime(2024, 1, 1), "time zone"),
        ("timestamp", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        ("timestamp", 3, "timestamp"),
        ("timestamp", "2024-01-01T00:00:00Z", "timestamp"),
        ("timestamp", np.datetime64("2024-01-01T00:00:00.000000"), "timestamp"),
        ("list<int64>", [1, "a"], "int64"),
        ("list<int64>", [1.5], "int64"),
        ("list<int64>", 3, "list<int64>"),
        ("list<int64>", "ab", "list<int64>"),
        ("list<string>", [["a"]], "string"),
        ("list<int64>", [2**63], "64 bits"),
        ("list<timestamp>", [datetime(2024, 1, 1)], "time zone"),
        ("vector<float32, 2>", [1.0], "dimension 2, not of dimension 1"),
        ("vector<float32, 2>", np.zeros(3), "dimension 2, not of dimension 3"),
        ("vector<float32, 2>", np.zeros((2, 2)), "2-D"),
        ("vector<float32, 2>", [1.0, math.nan], "nan"),
        ("vector<float32, 2>", [1.0, 1e300], "inf"),
        ("vector<float32, 2>", np.array([1.0, 1e300]), "inf"),
        ("vector<float32, 2>", [1.0, -math.inf], "inf"),
        ("vector<float16, 2>", [1.0, 70000.0], "inf"),
        ("vector<float16, 2>", np.array([1.0, 70000.0], np.float32), "inf"),
        ("vector<float32, 2>", [1.0, None], "None"),
        ("vector<float32, 2>", [1.5, True], "True"),
        ("vector<float32, 2>", ["a", "b"], "'a'"),
        ("vector<float32, 2>", "ab", "vector"),
        ("vector<float32, 2>", np.array(["a", "b"]), "vector"),
        ("vector<float32, 2>", 3.0, "vector"),
    ],
)
def test_conflicts(declared: str, value: Any, words: str) -> None:
    schema = Schema("string", {"a": parse_type(declared)})
    with pytest.raises(SchemaConflict, match=r"'a' of row 1 \(id 'y'\) must be") as caught:
        convert_rows([{"id": "x"}, {"id": "y", "a": value}], schema, kind=UPSERT)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(SchemaConflict, match="row 0"):
        convert_rows([{"id": "x", "a": value}], schema, kind=UPSERT)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("string", "\ud800"),
        ("list<string>", ["a", "\ud800"]),
        ("json", {"a": "\ud800"}),
        ("json", math.nan),
        ("json", [math.inf]),
        ("json", {1: 2}),
        ("json", {"a": b"x"}),
        ("json", {"a": MOMENT}),
        ("json", {"a", "b"}),
        ("json", [10**5000]),
        ("string", "x" * (LARGEST_VALUE + 1)),
        ("bytes", b"x" * (LARGEST_VALUE + 1)),
        ("json", ["x" * LARGEST_VALUE]),
        ("list<string>", ["x" * LARGEST_VALUE, "x"]),
        ("list<int64>", [1] * (LARGEST_VALUE // 8 + 1)),
    ],
)
def test_what_no_schema_takes(declared: str, value: Any) -> None:
    schema = Schema("string", {"a": parse_type(declared)})
    for data in ([{"id": "x", "a": value}], [{"id": "y"}, {"id": "x", "a": value}]):
        with pytest.raises(InvalidInput, match=r"'a' of row \d \(id 'x'\)"):
            convert_rows(data, schema, kind=UPSERT)


def test_the_largest_values_pass() -> None:
    text = "x" * LARGEST_VALUE
    batch, _ = convert_rows([{"id": "x", "a": text}, {"id": "y", "a": text}], Schema(), kind=0)
    assert batch.column("a")[1].as_py() == text


def test_json_nests_within_reason() -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    assert one(value)[0] == value
    with pytest.raises(InvalidInput, match="deeper"):
        one(DEEP)


@pytest.mark.parametrize(
    "values",
    [
        [1, "a"],
        [1.5, "a"],
        [True, 1],
        ["a", b"a"],
        [[1], 1],
        [2**53 + 1, 0.5],
        [datetime(2024, 1, 1)],
        [2**63],
        [Decimal("1.5")],
        [{1, 2}],
        [1j],
        [object()],
        [np.datetime64("2024-01-01")],
        [np.longdouble(1)],
        [np.zeros(2, np.float32), np.zeros(3, np.float32)],
        [np.array(["2024-01-01"], "M8[s]")],
        [np.zeros(70_000, np.float32)],
    ],
)
def test_values_that_no_type_fits(values: list[Any]) -> None:
    rows = [{"id": str(number), "a": value} for number, value in enumerate(values)]
    with pytest.raises(SchemaConflict, match="attribute 'a' of row"):
        convert_rows(rows, Schema(), kind=UPSERT)


def test_columns_settle_on_one_type() -> None:
    def kind(*values: Any) -> str:
        rows = [{"id": str(number), "a": value} for number, value in enumerate(values)]
        return str(convert_rows(rows, Schema(), kind=UPSERT)[1].attributes["a"])

    assert kind(1, 2.5, None) == "float64"
    assert kind([], [1]) == "list<int64>"
    assert kind(None, [1], [2.5]) == "list<float64>"
    assert kind([1], ["a"]) == "json"
    assert kind({"a": 1}, 3, "x", [1]) == "json"
    assert kind([None], []) == "list<null>"
    assert kind(None, None) == "null"
    assert kind([], {}) == "json"
    assert kind(np.zeros(2, np.float16), np.zeros(2, np.float32)) == "vector<float32, 2>"
    assert kind([1.0, 2.0], np.zeros(2, np.float32)) == "vector<float32, 2>"


def test_rows_and_flags() -> None:
    rows = [
        {"id": "b", "year": 1979, "title": "Alien"},
        {"title": None, "id": "a"},
        {"id": "b", "year": None},
    ]
    batch, schema = convert_rows(rows, Schema(), kind=PATCH)
    assert batch.schema.names == [
        "id",
        KIND,
        "year",
        "title",
        null_flag("year"),
        null_flag("title"),
    ]
    assert batch.column(KIND).to_pylist() == [PATCH] * 3
    assert batch.column(null_flag("year")).to_pylist() == [False, False, True]
    assert back(batch, schema) == rows
    assert schema == Schema("string", {"year": parse_type("int64"), "title": parse_type("string")})
    again, same = convert_rows(rows, schema, kind=PATCH)
    assert same is schema
    assert again.equals(batch)


def test_absent_without_nulls_has_no_flag() -> None:
    batch, _ = convert_rows([{"id": "a", "x": 1}, {"id": "b"}], Schema(), kind=UPSERT)
    assert batch.schema.names == ["id", KIND, "x"]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ([{"a": 1}], InvalidId, "row 0"),
        ([{"id": "a"}, {"a": 1}], InvalidId, "row 1"),
        ([{"id": "a"}, {"id": None}], InvalidId, "row 1"),
        ([{"id": "a"}, {"id": 1}], InvalidId, "row 1"),
        ([{"id": "a"}, "b"], InvalidInput, "row 1 must be a dict, not str"),
        ([{"id": "a", "": 1}], InvalidName, "attribute name"),
        ([{"id": "a", 3: 1}], InvalidName, "attribute name"),
        ([{"id": "a", "\0kind": 1}], InvalidName, "attribute name"),
        ({"id": ["a"], "x": [1, 2]}, InvalidInput, "has 2 rows"),
        ({"id": "a", "x": 1}, InvalidInput, "column 'id' must be a list"),
        ({"x": [1]}, InvalidId, "row 0"),
        ("text", InvalidInput, "not a str"),
        (3, InvalidInput, "not a int"),
        (None, InvalidInput, "not a NoneType"),
    ],
)
def test_bad_shapes(data: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        convert_rows(data, Schema(), kind=UPSERT)


def test_without_inference_new_attributes_are_refused() -> None:
    schema = Schema("string", {"a": parse_type("int64")})
    convert_rows([{"id": "x", "a": 1}], schema, kind=UPSERT, infer=False)
    with pytest.raises(SchemaConflict, match="'b'"):
        convert_rows([{"id": "x", "b": 1}], schema, kind=UPSERT, infer=False)


def test_no_rows() -> None:
    empty: tuple[Any, ...] = ([], {}, {"id": [], "a": []})
    for data in empty:
        batch, schema = convert_rows(data, Schema("uint64"), kind=UPSERT)
        assert batch.num_rows == 0
        assert batch.column(ID).type == pa.uint64()
        assert schema == Schema("uint64")


SCHEMA = Schema(
    "string",
    {
        name: parse_type(kind)
        for name, kind in {
            "flag": "bool",
            "count": "int64",
            "ratio": "float64",
            "text": "string",
            "raw": "bytes",
            "moment": "timestamp",
            "names": "list<string>",
            "sizes": "list<int64>",
            "extra": "json",
            "vector": "vector<float32, 3>",
        }.items()
    },
)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.one_of(
        st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=5,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "count": st.integers(-(2**63), 2**63 - 1),
    "ratio": st.floats(allow_nan=False),
    "text": st.text(),
    "raw": st.binary(),
    "moment": st.datetimes(timezones=st.just(UTC)),
    "names": st.lists(st.one_of(st.none(), st.text()), max_size=3),
    "sizes": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    "extra": JSON,
    "vector": st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
    ),
}
IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)


def rows_of(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    optional = {name: st.none() | value for name, value in values.items()}
    row = st.fixed_dictionaries({"id": IDS}, optional=optional)
    return st.lists(row, min_size=1, max_size=5)


ROWS = rows_of(VALUES)


@settings(deadline=None)
@given(ROWS)
def test_rows_come_back(rows: list[dict[str, Any]]) -> None:
    batch, schema = convert_rows(rows, SCHEMA, kind=UPSERT)
    assert schema is SCHEMA
    assert back(batch, schema) == rows


@settings(deadline=None)
@given(rows_of({**VALUES, "extra": st.dictionaries(st.text(), JSON, max_size=3)}))
def test_inferred_rows_come_back(rows: list[dict[str, Any]]) -> None:
    batch, schema = convert_rows(rows, Schema(), kind=UPSERT)
    assert back(batch, schema) == rows


@st.composite
def alike(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows with the same keys."""
    names = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=5))
    row = st.fixed_dictionaries({"id": IDS, **{n: st.none() | VALUES[n] for n in sorted(names)}})
    return draw(st.lists(row, min_size=1, max_size=4))


def through_the_log(plain: PlainRows) -> PlainRows:
    return PlainRows.decode(memoryview(b"".join(plain.encode())))


@settings(deadline=None)
@given(st.one_of(ROWS, alike()))
def test_few_rows_take_either_way_alike(rows: list[dict[str, Any]]) -> None:
    for data in (rows, rows[:1]):
        plain = convert_few_rows(data, SCHEMA, UPSERT)
        if plain is None:
            continue
        for short in (plain, through_the_log(plain)):
            batch = as_batch(short)
            by_id = {row["id"]: row for row in data}
            assert {row["id"]: row for row in back(batch, SCHEMA)} == by_id
            for number, identity in enumerate(short.ids()):
                assert short.document(number) == by_id[identity]
                assert short.document(number, ("count",)).keys() <= {"id", "count"}


def test_the_short_way_is_taken() -> None:
    row = {"id": "a", "text": "x", "count": 1, "vector": [1.0, 2.0, 3.0], "extra": {"a": 1}}
    rows = [row, {**row, "id": "b", "text": None, "vector": None, "extra": None}, {"id": "c"}]
    plain = convert_few_rows(rows, SCHEMA, PATCH)
    assert plain is not None
    assert plain.kinds == bytes([PATCH] * 3)
    batch = as_batch(plain)
    assert back(batch, SCHEMA) == rows
    assert json.loads(batch.column("extra")[0].as_py()) == {"a": 1}


def test_plain_rows_keep_nothing_of_their_makers() -> None:
    row: dict[str, Any] = {"id": "a", "sizes": [1, 2], "extra": {"a": [1]}}
    plain = convert_few_rows([row], SCHEMA, UPSERT)
    assert plain is not None
    row["sizes"].append(3)
    row["extra"]["a"].append(2)
    plain.document(0)["sizes"].append(4)
    assert plain.document(0) == {"id": "a", "sizes": [1, 2], "extra": {"a": [1]}}


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "count": 2**63},
        {"id": "a", "count": True},
        {"id": "a", "ratio": 1},
        {"id": "a", "text": "\ud800"},
        {"id": "a", "vector": [1.0, math.inf, 0.0]},
        {"id": "a", "vector": [1.0, 1e39, 0.0]},
        {"id": "a", "vector": [1.0, 2.0]},
        {"id": "a", "moment": datetime(2024, 1, 1)},
        {"id": "a", "unknown": 1},
        {"id": "a", "extra": {"x": math.nan}},
        {"id": ""},
        {"id": 1},
        {"text": "x"},
    ],
)
def test_what_is_not_plain_takes_the_long_way(row: dict[str, Any]) -> None:
    assert convert_few_rows([{"id": "z"}, row], SCHEMA, UPSERT) is None


def test_joined_rows_are_those_of_all() -> None:
    first = convert_few_rows([{"id": "a", "count": 1}], SCHEMA, UPSERT)
    second = convert_few_rows([{"id": "b", "text": "x"}], SCHEMA, PATCH)
    assert first is not None
    assert second is not None
    both = join([first, second, tombstone_rows(["c"], "string")])
    assert isinstance(both, PlainRows)
    again = through_the_log(both)
    assert again.kinds == bytes([UPSERT, PATCH, DELETE])
    assert [again.document(n) for n in range(3)] == [
        {"id": "a", "count": 1},
        {"id": "b", "text": "x"},
        {"id": "c"},
    ]
    mixed = join([both, as_batch(first)])
    assert isinstance(mixed, pa.RecordBatch)
    assert mixed.column(ID).to_pylist() == ["a", "b", "c", "a"]


def test_equal_keys_under_another_schema_do_not_share_a_plan() -> None:
    row = {"id": "a", "x": 1}
    for declared in ("int64", "float64", "json"):
        schema = Schema("string", {"x": parse_type(declared)})
        batch, _ = convert_rows([row], schema, kind=UPSERT)
        assert batch.schema.field("x").type == schema.attributes["x"].arrow


def test_integer_ids_and_bare_rows() -> None:
    schema = Schema("uint64", {"x": parse_type("int64")})
    for rows in ([{"id": 2**64 - 1, "x": 1}], [{"id": 0}, {"id": 5}]):
        batch, same = convert_rows(rows, schema, kind=PATCH)
        assert same is schema
        assert back(batch, schema) == rows
    with pytest.raises(InvalidId, match="uint64 ids"):
        convert_rows([{"id": "a"}], schema, kind=UPSERT)
    with pytest.raises(InvalidId, match="row 1"):
        convert_rows([{"id": 1}, {"id": -1}], schema, kind=UPSERT)

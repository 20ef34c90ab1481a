"""Filters: the tree, its checks against a schema, and evaluation."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest

from reef.data.filter import (
    And,
    Compare,
    Exists,
    Expression,
    IsNull,
    Not,
    Or,
    attribute,
    check,
    columns,
    evaluate,
    id_range,
)
from reef.data.rows import field_of, null_flag
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import InvalidFilter

MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
KINDS = {
    "year": "int64",
    "score": "float64",
    "seen": "bool",
    "title": "string",
    "raw": "bytes",
    "at": "timestamp",
    "tags": "list<string>",
    "sizes": "list<float64>",
    "extra": "json",
    "embedding": "vector<float32, 2>",
}
SCHEMA = Schema("string", {name: parse_type(kind) for name, kind in KINDS.items()})
VALUES = {
    "year": [1979, None, -(2**63), 2**63 - 1],
    "score": [1.5, math.nan, None, -0.0],
    "seen": [True, False, None, True],
    "title": ["Alien", "Ålien", "", None],
    "raw": [b"\x00\xff", b"", None, b"ab"],
    "at": [MOMENT, MOMENT + timedelta(microseconds=1), None, MOMENT - timedelta(days=1)],
    "tags": [["a", "b"], [], None, ["b", None]],
    "sizes": [[1.0, 2.0], [math.nan], [0.0], None],
}
BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array(["a", "b", "c", "d"]),
        *(pa.array(values, SCHEMA.attributes[n].arrow) for n, values in VALUES.items()),
        pa.array([False, True, False, False]),
    ],
    schema=pa.schema(
        [
            pa.field("id", pa.string()),
            *(field_of(name, SCHEMA.attributes[name]) for name in VALUES),
            pa.field(null_flag("year"), pa.bool_()),
        ]
    ),
)
year, score, title, at = map(attribute, ["year", "score", "title", "at"])


def kept(expression: Expression, batch: pa.RecordBatch = BATCH) -> str:
    check(expression, SCHEMA)
    return "".join(batch.column("id").filter(pa.array(evaluate(expression, batch))).to_pylist())


@pytest.mark.parametrize(
    ("expression", "ids"),
    [
        (year == 1979, "a"),
        (year != 1979, "cd"),
        (year >= 1978.5, "ad"),
        (year >= 1979.5, "d"),
        (year < 1979.5, "ac"),
        (year == 1979.0, "a"),
        (year == 1979.5, ""),
        (year != 1979.5, "acd"),
        (year < 2**63, "acd"),
        (year <= 2.0**63, "acd"),
        (year > 2**63, ""),
        (year >= -(2**63) - 1, "acd"),
        (year > 2**63 - 2, "d"),
        (year > float(2**62), "d"),
        (year < math.inf, "acd"),
        (year > -math.inf, "acd"),
        (year == math.nan, ""),
        (year != math.nan, "acd"),
        (~(year == math.nan), "acd"),
        (year == np.int32(1979), "a"),
        (year.is_in([1979, 2.0**63, 1.5, math.nan]), "a"),
        (~year.is_in([1979]), "cd"),
        (year.is_in([]), ""),
        (~year.is_in([]), "acd"),
        (score == 0, "d"),
        (score.is_in([0]), "d"),
        (score.is_in([math.nan]), ""),
        (score == math.nan, ""),
        (score != 1.5, "bd"),
        (~(score < 5), "b"),
        (score < 2**53 + 1, "ad"),
        (score < 10**400, "ad"),
        (score > -(10**400), "ad"),
        (attribute("seen") == True, "ad"),  # noqa: E712
        (attribute("seen") < True, "b"),
        (title.starts_with("Al"), "a"),
        (title.starts_with(""), "abc"),
        (title.contains("lien"), "ab"),
        (title > "B", "b"),
        (attribute("raw") == b"\x00\xff", "a"),
        (attribute("raw").contains(b"\xff"), "a"),
        (attribute("raw").starts_with(b"a"), "d"),
        (at == MOMENT.astimezone(timezone(timedelta(hours=5))), "a"),
        (at > MOMENT, "b"),
        (attribute("tags").contains("b"), "ad"),
        (~attribute("tags").contains("b"), "b"),
        (attribute("sizes").contains(2), "a"),
        (attribute("sizes").contains(math.nan), ""),
        (attribute("sizes").contains(2**53 + 1), ""),
        (attribute("id") >= "c", "cd"),
        (attribute("id").is_null(), ""),
        (attribute("id").exists(), "abcd"),
        (year.is_null(), "b"),
        (year.exists(), "abcd"),
        (score.is_null(), "c"),
        (score.exists(), "abd"),
        (attribute("extra").is_null(), "abcd"),
        (attribute("extra").exists(), ""),
        (~attribute("extra").exists(), "abcd"),
        ((year == 1979) | (score == 0), "ad"),
        ((year == 1979) & (score > 1), "a"),
        (~((year == 0) & (score == 0)), "abcd"),
        ((year == 0) | title.is_null(), "d"),
        (And(()), "abcd"),
        (Or(()), ""),
    ],
)
def test_evaluation(expression: Expression, ids: str) -> None:
    assert kept(expression) == ids
    sliced = kept(expression, BATCH.slice(1))
    assert sliced == ids.replace("a", "")


def test_floats_are_not_rounded_to_a_large_integer() -> None:
    batch = pa.record_batch({"id": ["a", "b"], "score": [float(2**53), float(2**53 + 2)]})
    assert kept(score < 2**53 + 1, batch) == "a"
    assert kept(score > 2**53 + 1, batch) == "b"
    assert kept(score == 2**53 + 1, batch) == ""
    assert kept(score.is_in([2**53 + 1, 2**53 + 2]), batch) == "b"


def test_a_missing_column_is_unknown() -> None:
    batch = BATCH.select(["id"])
    for expression in (year == 1, year != 1, ~(year == 1), year.is_in([1]), title.contains("a")):
        assert kept(expression, batch) == ""


def test_integer_ids() -> None:
    batch = pa.record_batch({"id": pa.array([0, 5, 2**64 - 1], pa.uint64())})
    identity = attribute("id")
    check(identity > 2.5, Schema("uint64"))
    assert evaluate(identity > 2.5, batch).tolist() == [False, True, True]
    assert evaluate(identity == 2**64 - 1, batch).tolist() == [False, False, True]
    assert evaluate(identity >= -1, batch).tolist() == [True, True, True]
    with pytest.raises(InvalidFilter):
        check(identity == "a", Schema("uint64"))
    check(identity == "a", Schema(None))


@pytest.mark.parametrize(
    "expression",
    [
        attribute("nothing") == 1,
        year == "1979",
        year == True,  # noqa: E712
        year.is_in([1, "b"]),
        title < 3,
        title < 10**5000,
        title == b"a",
        attribute("seen") == 1,
        at > 3,
        at > "2024-01-01",
        attribute("raw") == "a",
        attribute("id") == 1,
        attribute("extra") == "a",
        attribute("extra").contains("a"),
        attribute("tags") == "a",
        attribute("tags").starts_with("a"),
        attribute("tags").contains(1),
        attribute("embedding") == 1.0,
        attribute("embedding").contains(1.0),
        year.starts_with("1"),
        year.contains(1),
    ],
)
def test_what_cannot_be_compared(expression: Expression) -> None:
    with pytest.raises(InvalidFilter):
        check(expression, SCHEMA)
    if columns(expression) <= set(BATCH.schema.names):
        with pytest.raises(InvalidFilter):
            evaluate(expression, BATCH)


def test_null_tests_go_with_every_type() -> None:
    for name in KINDS:
        check(attribute(name).is_null() & attribute(name).exists(), SCHEMA)


@pytest.mark.parametrize(
    "build",
    [
        lambda: year == None,  # noqa: E711
        lambda: year == [1],
        lambda: year == score,
        lambda: at > datetime(2024, 1, 1),
        lambda: title == "\ud800",
        lambda: title.is_in("abc"),
        lambda: title.starts_with(3),
        lambda: attribute(""),
        lambda: attribute("a\0b"),
        lambda: Compare("year", "~", 1),
        lambda: (year == 1) & True,
        lambda: (year == 1) and (year == 2),
        lambda: Not("x"),
        lambda: And((1,)),
    ],
)
def test_what_is_no_filter(build: object) -> None:
    with pytest.raises(InvalidFilter):
        build()  # type: ignore[operator]


def test_depth_is_limited_and_chains_are_flat() -> None:
    expression: Expression = year == 0
    for number in range(2000):
        expression = expression | (year == number)
    assert expression.depth == 2
    for _ in range(98):
        expression = ~expression
    with pytest.raises(InvalidFilter, match="deeper"):
        _ = ~expression


def test_columns() -> None:
    assert columns((year == 1) & ~(title.is_null() | (attribute("id") < "b"))) == {
        "year",
        "title",
        "id",
    }
    assert year.exists() == Exists("year")
    assert year.is_null() == IsNull("year")


identity = attribute("id")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (identity == "a", ("a", "a\0")),
        (identity != "a", (None, None)),
        (identity < "a", (None, "a")),
        (identity <= "a", (None, "a\0")),
        (identity > "a", ("a\0", None)),
        (identity >= "a", ("a", None)),
        (~(identity >= "a"), (None, "a")),
        (~(identity != "a"), ("a", "a\0")),
        (identity.is_in(["c", "a", "b"]), ("a", "c\0")),
        (~identity.is_in(["c"]), (None, None)),
        (identity.starts_with("ab"), ("ab", "ac")),
        (identity.starts_with("a\ud7ff"), ("a\ud7ff", "a\ue000")),
        (identity.starts_with("a\U0010ffff"), ("a\U0010ffff", "b")),
        (identity.starts_with("\U0010ffff"), ("\U0010ffff", None)),
        ((identity > "a") & (year == 1) & (identity < "c"), ("a\0", "c")),
        ((identity > "a") | (year == 1), (None, None)),
        ((identity == "a") | (identity == "x"), ("a", "x\0")),
        (~((identity < "a") | (identity > "c")), ("a", "c\0")),
        ((identity == "a") | ((identity > "y") & (identity < "x")), ("a", "a\0")),
        (year == 1, (None, None)),
        (identity == 5, (5, 6)),
        (identity >= 4.5, (5, None)),
        (identity < 4.5, (None, 5)),
        (identity > 2**64, (0, 0)),
        (identity < 0, (0, 0)),
        (identity > 2**64 - 1, (0, 0)),
        (identity <= 2**64 - 1, (None, None)),
        (identity >= -3, (None, None)),
        (identity == math.nan, (0, 0)),
        (~(identity < math.nan), (None, None)),
        ((identity == "a") | (identity == 1), (None, None)),
    ],
)
def test_id_range(expression: Expression, expected: tuple[object, object]) -> None:
    assert id_range(expression) == expected

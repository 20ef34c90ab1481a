"""Evaluation against a model, and pruning and id ranges against evaluation."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.data.filter import (
    And,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    StartsWith,
    attribute,
    check,
    evaluate,
    id_range,
    may_match,
)
from reef.data.rows import field_of, null_flag
from reef.data.schema import Schema
from reef.data.statistics import ColumnStatistics
from reef.data.types import parse_type

ABSENT = "absent"
SCHEMA = Schema(
    "string",
    {
        "i": parse_type("int64"),
        "f": parse_type("float64"),
        "s": parse_type("string"),
        "b": parse_type("bool"),
        "t": parse_type("timestamp"),
        "l": parse_type("list<int64>"),
    },
)
INTEGERS = st.one_of(
    st.integers(-3, 3), st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**62 + 1])
)
FLOATS = st.sampled_from(
    [-1.5, -0.0, 0.0, 1.0, 1.5, 2.0**53, 2.0**53 + 2, 1e300, math.inf, -math.inf, math.nan]
)
NUMBERS = st.one_of(INTEGERS, FLOATS, st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**400]))
STRINGS = st.text(alphabet="ab\uffff\U00010000", max_size=3)
MOMENTS = st.integers(0, 3).map(lambda n: datetime(2024, 1, 1, 0, 0, 0, n, tzinfo=UTC))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": INTEGERS,
    "f": FLOATS,
    "s": STRINGS,
    "b": st.booleans(),
    "t": MOMENTS,
    "l": st.lists(st.one_of(st.none(), st.integers(-1, 2)), max_size=2),
}
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": NUMBERS,
    "f": NUMBERS,
    "s": STRINGS,
    "b": st.booleans(),
    "t": MOMENTS,
    "id": STRINGS,
}
ROW = st.fixed_dictionaries(
    {"id": STRINGS.filter(len)},
    optional={name: st.one_of(st.none(), values) for name, values in VALUES.items()},
)


@st.composite
def leaves(draw: st.DrawFn) -> Expression:
    name = draw(st.sampled_from(["i", "f", "s", "b", "t", "l", "id"]))
    test = draw(st.sampled_from(["compare", "compare", "in", "null", "exists", "prefix", "has"]))
    if test == "null":
        return IsNull(name)
    if test == "exists":
        return Exists(name)
    if test == "prefix":
        return StartsWith(draw(st.sampled_from(["s", "id"])), draw(STRINGS))
    if test == "has":
        return draw(
            st.one_of(
                st.builds(Contains, st.just("s"), STRINGS),
                st.builds(Contains, st.just("l"), NUMBERS),
            )
        )
    if name == "l":
        name = "f"
    if test == "in":
        return In(name, tuple(draw(st.lists(LITERALS[name], max_size=3))))
    return Compare(
        name, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), draw(LITERALS[name])
    )


EXPRESSIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def model(expression: Expression, row: dict[str, Any]) -> bool | None:
    if isinstance(expression, Not):
        inner = model(expression.operand, row)
        return None if inner is None else not inner
    if isinstance(expression, And | Or):
        answers = [model(operand, row) for operand in expression.operands]
        decisive = isinstance(expression, Or)
        return decisive if decisive in answers else None if None in answers else not decisive
    value = row.get(expression.name)  # type: ignore[attr-defined]
    if isinstance(expression, IsNull):
        return value is None
    if isinstance(expression, Exists):
        return expression.name in row
    if value is None:
        return None
    if isinstance(expression, StartsWith):
        return bool(value.startswith(expression.prefix))
    if isinstance(expression, Contains):
        if isinstance(value, str):
            return expression.value in value  # type: ignore[operator]
        return any(element == expression.value for element in value)
    if isinstance(expression, In):
        return any(value == other for other in expression.values)
    assert isinstance(expression, Compare)
    other: Any = expression.value
    return {
        "=": value == other,
        "!=": value != other,
        "<": value < other,
        "<=": value <= other,
        ">": value > other,
        ">=": value >= other,
    }[expression.op]


def to_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    fields = [pa.field("id", pa.string())]
    arrays = [pa.array([row["id"] for row in rows], pa.string())]
    for name, kind in SCHEMA.attributes.items():
        if any(name in row for row in rows):
            fields.append(field_of(name, kind))
            arrays.append(pa.array([row.get(name) for row in rows], kind.arrow))
            flags = [name in row and row[name] is None for row in rows]
            if any(flags):
                fields.append(pa.field(null_flag(name), pa.bool_()))
                arrays.append(pa.array(flags))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@st.composite
def statistics_of(draw: st.DrawFn, rows: list[dict[str, Any]]) -> dict[str, ColumnStatistics]:
    found = {}
    for name in SCHEMA.attributes:
        values = [row.get(name, ABSENT) for row in rows]
        valid = [v for v in values if v is not None and v is not ABSENT]
        ordered = [] if name == "l" else [v for v in valid if v == v]
        low, high = min(ordered, default=None), max(ordered, default=None)
        if draw(st.booleans()):
            loose = draw(VALUES[name]) if name != "l" else None
            if ordered and loose == loose:
                low, high = min(low, loose), max(high, loose)
            if name == "s" and low is not None:
                low = low[:1]
        low = draw(st.sampled_from([low, None]))
        high = draw(st.sampled_from([high, None]))
        absent = sum(v is ABSENT for v in values)
        if absent < len(rows):
            found[name] = ColumnStatistics(
                low, high, len(valid), len(values) - len(valid) - absent, absent
            )
    return found


@settings(max_examples=600, deadline=None)
@given(st.data(), st.lists(ROW, min_size=1, max_size=5), EXPRESSIONS)
def test_evaluation_pruning_and_ranges(
    data: st.DataObject, rows: list[dict[str, Any]], expression: Expression
) -> None:
    check(expression, SCHEMA)
    answers = evaluate(expression, to_batch(rows)).tolist()
    assert answers == [model(expression, row) is True for row in rows]
    statistics = data.draw(statistics_of(rows))
    ids = [row["id"] for row in rows]
    if any(answers):
        assert may_match(expression, statistics, min(ids), max(ids))
        assert may_match(expression, statistics, None, None)
    start, stop = id_range(expression)
    for identity, answer in zip(ids, answers, strict=True):
        if answer:
            assert start is None or start <= identity
            assert stop is None or identity < stop


a, identity = attribute("a"), attribute("id")


@pytest.mark.parametrize(
    ("expression", "statistics"),
    [
        (a == 5, ColumnStatistics(6, 9, 3, 0, 0)),
        (a > 9, ColumnStatistics(6, 9, 3, 0, 0)),
        (a >= 9.5, ColumnStatistics(6, 9, 3, 0, 0)),
        (a < 6, ColumnStatistics(6, None, 3, 0, 0)),
        (a != 6, ColumnStatistics(6, 6, 3, 1, 1)),
        (~(a < 10), ColumnStatistics(6, 9, 3, 0, 0)),
        (~(a == 6), ColumnStatistics(6, 6, 3, 0, 0)),
        (a.is_in([1, 10]), ColumnStatistics(6, 9, 3, 0, 0)),
        (~a.is_in([1, 6]), ColumnStatistics(6, 6, 3, 0, 0)),
        (a.starts_with("b"), ColumnStatistics("c", "d", 3, 0, 0)),
        (a.starts_with("b"), ColumnStatistics("a", "az", 3, 0, 0)),
        (~a.starts_with("b"), ColumnStatistics("ba", "bz", 3, 0, 0)),
        (a == 5, ColumnStatistics(None, None, 0, 3, 0)),
        (~(a == 5), ColumnStatistics(None, None, 0, 3, 0)),
        (a == 5, None),
        (a != 5, None),
        (a.contains("x"), None),
        (a.exists(), None),
        (a.exists(), ColumnStatistics(None, None, 0, 0, 3)),
        (~a.is_null(), None),
        (~a.is_null(), ColumnStatistics(None, None, 0, 2, 1)),
        (a.is_null(), ColumnStatistics(1, 2, 3, 0, 0)),
        (~a.exists(), ColumnStatistics(1, 2, 3, 1, 0)),
        (a == math.nan, ColumnStatistics(1.0, 2.0, 3, 0, 0)),
        (a > datetime(2024, 1, 1, tzinfo=UTC), ColumnStatistics(0, 1_000_000, 3, 0, 0)),
        (identity == "zz", ColumnStatistics(1, 2, 3, 0, 0)),
        ((a == 7) & (identity < "a"), ColumnStatistics(6, 9, 3, 0, 0)),
        ((a == 5) | (a == 10), ColumnStatistics(6, 9, 3, 0, 0)),
    ],
)
def test_blocks_that_are_skipped(
    expression: Expression, statistics: ColumnStatistics | None
) -> None:
    known = {} if statistics is None else {"a": statistics}
    assert not may_match(expression, known, "b", "y")


@pytest.mark.parametrize(
    ("expression", "statistics"),
    [
        (~(a < 10), ColumnStatistics(6.0, 9.0, 3, 0, 0)),
        (a != 6, ColumnStatistics(6.0, 6.0, 3, 0, 0)),
        (a == 5, ColumnStatistics("not", "numbers", 3, 0, 0)),
        (a == 5, ColumnStatistics(math.nan, math.nan, 3, 0, 0)),
        (a.contains("x"), ColumnStatistics("a", "b", 3, 0, 0)),
        (a.is_null(), ColumnStatistics(1, 2, 3, 0, 1)),
        (a.is_null(), ColumnStatistics(1, 2, 3, 1, 0)),
        (~a.is_null(), ColumnStatistics(1, 2, 1, 1, 1)),
        (a.exists(), ColumnStatistics(None, None, 0, 1, 2)),
        (~a.exists(), ColumnStatistics(1, 2, 3, 0, 1)),
        (~a.starts_with("b"), ColumnStatistics("ba", None, 3, 0, 0)),
    ],
)
def test_blocks_that_must_be_read(expression: Expression, statistics: ColumnStatistics) -> None:
    assert may_match(expression, {"a": statistics}, "b", "y")

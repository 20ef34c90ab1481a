"""Spark's filters as Reef's: whatever Spark keeps, Reef must keep."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from reef.data.filter import (
    And,
    Compare,
    Contains,
    Expression,
    In,
    IsNull,
    Not,
    Or,
    StartsWith,
    check,
    evaluate,
    id_range,
    may_match,
)
from reef.data.rows import field_of
from reef.data.schema import Schema
from reef.data.statistics import ColumnStatistics
from reef.data.types import parse_type
from reef.spark.filters import pushed

NAN = float("nan")
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
KINDS = {
    "flag": "bool",
    "year": "int64",
    "price": "float64",
    "name": "string",
    "data": "bytes",
    "when": "timestamp",
    "tree": "json",
    "tags": "list<string>",
    "v": "vector<float32, 2>",
}
SCHEMA = Schema("string", {name: parse_type(kind) for name, kind in KINDS.items()})


def not_null(name: str) -> Expression:
    return Not(IsNull(name))


TABLE: list[tuple[spark.Filter, Expression | None]] = [
    (spark.EqualTo(("year",), 5), Compare("year", "=", 5)),
    (spark.Not(spark.EqualTo(("year",), 5)), Compare("year", "!=", 5)),
    (spark.EqualNullSafe(("year",), 5), Compare("year", "=", 5)),
    (spark.EqualNullSafe(("year",), None), IsNull("year")),
    (spark.Not(spark.EqualNullSafe(("year",), None)), not_null("year")),
    (
        spark.Not(spark.EqualNullSafe(("year",), 5)),
        Or((IsNull("year"), Compare("year", "!=", 5))),
    ),
    (spark.GreaterThan(("year",), 5), Compare("year", ">", 5)),
    (spark.Not(spark.GreaterThan(("year",), 5)), Compare("year", "<=", 5)),
    (spark.LessThanOrEqual(("id",), "k"), Compare("id", "<=", "k")),
    (spark.GreaterThan(("price",), 5.0), Not(Compare("price", "<=", 5.0))),
    (spark.GreaterThanOrEqual(("price",), 5.0), Not(Compare("price", "<", 5.0))),
    (spark.LessThan(("price",), 5.0), Compare("price", "<", 5.0)),
    (spark.Not(spark.LessThan(("price",), 5.0)), Not(Compare("price", "<", 5.0))),
    (spark.LessThan(("price",), NAN), not_null("price")),
    (spark.EqualTo(("price",), NAN), not_null("price")),
    (spark.Not(spark.EqualNullSafe(("price",), NAN)), None),
    (spark.In(("year",), (1, None, 2)), In("year", (1, 2))),
    (spark.Not(spark.In(("year",), (1, 2))), Not(In("year", (1, 2)))),
    (spark.In(("price",), (1.0, NAN)), not_null("price")),
    (spark.Not(spark.In(("price",), (1.0, NAN))), not_null("price")),
    (
        spark.In(("year",), tuple(range(1000))),
        And((Compare("year", ">=", 0), Compare("year", "<=", 999))),
    ),
    (spark.Not(spark.In(("year",), tuple(range(1000)))), not_null("year")),
    (spark.IsNull(("tree",)), IsNull("tree")),
    (spark.Not(spark.IsNull(("tree",))), not_null("tree")),
    (spark.IsNotNull(("v",)), not_null("v")),
    (spark.Not(spark.IsNotNull(("v",))), IsNull("v")),
    (spark.IsNotNull(("id",)), None),
    (spark.StringStartsWith(("name",), "a"), StartsWith("name", "a")),
    (spark.Not(spark.StringStartsWith(("name",), "a")), Not(StartsWith("name", "a"))),
    (spark.StringContains(("name",), "a"), Contains("name", "a")),
    (spark.StringEndsWith(("name",), "a"), Contains("name", "a")),
    (spark.Not(spark.StringEndsWith(("name",), "a")), not_null("name")),
    (spark.EqualTo(("tree",), '{"a":1}'), not_null("tree")),
    (spark.StringContains(("tree",), "a"), not_null("tree")),
    (spark.EqualTo(("tags",), ["a"]), not_null("tags")),
    (spark.EqualTo(("flag",), True), Compare("flag", "=", True)),
    (spark.GreaterThan(("flag",), False), not_null("flag")),
    (spark.EqualTo(("when",), WHEN), Compare("when", "=", WHEN)),
    (spark.EqualTo(("when",), WHEN.replace(tzinfo=None)), not_null("when")),
    (spark.EqualTo(("year",), True), not_null("year")),
    (spark.EqualTo(("year",), 5.0), not_null("year")),
    (spark.EqualTo(("a", "b"), 5), None),
    (spark.EqualTo(("gone",), 5), None),
]


@pytest.mark.parametrize(("filter", "expected"), TABLE, ids=lambda each: str(each)[:60])
def test_each_kind(filter: spark.Filter, expected: Expression | None) -> None:
    found = pushed([filter], SCHEMA)
    assert found == expected
    if found is not None:
        check(found, SCHEMA)
        assert pickle.loads(pickle.dumps(found)) == found


def test_several_are_all_of_them() -> None:
    both = [spark.IsNotNull(("year",)), spark.GreaterThan(("year",), 5), spark.EqualTo(("q",), 1)]
    assert pushed(both, SCHEMA) == And((not_null("year"), Compare("year", ">", 5)))
    assert pushed([], SCHEMA) is None


def test_ids_that_are_integers() -> None:
    schema = Schema("uint64")
    filters: list[spark.Filter] = [
        spark.GreaterThanOrEqual(("id",), Decimal(10)),
        spark.LessThan(("id",), 20),
        spark.EqualTo(("id",), Decimal("1.5")),
    ]
    found = pushed(filters, schema)
    assert found is not None
    assert id_range(found) == (10, 20)


# What Spark makes of a value and a filter: True, False, or None for unknown.


def order(value: Any) -> Any:
    """Spark's order of doubles: NaN above everything, and equal to itself."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def holds(filter: spark.Filter, value: Any) -> bool | None:
    if isinstance(filter, spark.Not):
        inner = holds(filter.child, value)
        return None if inner is None else not inner
    if isinstance(filter, spark.IsNull):
        return value is None
    if isinstance(filter, spark.IsNotNull):
        return value is not None
    wanted: Any = filter.value  # type: ignore[attr-defined]
    if isinstance(filter, spark.EqualNullSafe):
        if value is None or wanted is None:
            return value is wanted
        return bool(order(value) == order(wanted))
    if value is None:
        return None
    if isinstance(filter, spark.In):
        if any(each is not None and order(each) == order(value) for each in wanted):
            return True
        return None if None in wanted else False
    if wanted is None:
        return None
    if isinstance(filter, spark.EqualTo):
        return bool(order(value) == order(wanted))
    if isinstance(filter, spark.GreaterThan):
        return bool(order(value) > order(wanted))
    if isinstance(filter, spark.GreaterThanOrEqual):
        return bool(order(value) >= order(wanted))
    if isinstance(filter, spark.LessThan):
        return bool(order(value) < order(wanted))
    if isinstance(filter, spark.LessThanOrEqual):
        return bool(order(value) <= order(wanted))
    if isinstance(filter, spark.StringStartsWith):
        return bool(value.startswith(wanted))
    if isinstance(filter, spark.StringEndsWith):
        return bool(value.endswith(wanted))
    assert isinstance(filter, spark.StringContains)
    return wanted in value


OF_KIND: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "year": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
    "price": st.sampled_from([NAN, 0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, 5e-324]),
    "name": st.text("ab\u00e9\U0001f600", max_size=3),
    "data": st.binary(max_size=2),
    "when": st.integers(-3, 3).map(lambda n: WHEN + timedelta(microseconds=n)),
}
COMPARISONS = [
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
]
TEXTS = [spark.StringStartsWith, spark.StringEndsWith, spark.StringContains]


@st.composite
def filters_of(draw: st.DrawFn, name: str) -> spark.Filter:
    values = OF_KIND[name]
    path = (name,)
    # Nulls are drawn now and then only: most filters never hold with them.
    some = st.integers(0, 9).flatmap(lambda n: values if n else st.none())
    made: list[st.SearchStrategy[spark.Filter]] = [
        *(st.builds(kind, st.just(path), some) for kind in COMPARISONS),
        st.builds(spark.In, st.just(path), st.lists(some, max_size=3).map(tuple)),
        st.just(spark.IsNull(path)),
        st.just(spark.IsNotNull(path)),
    ]
    if name in ("name", "data"):
        made += [st.builds(kind, st.just(path), values) for kind in TEXTS]
    found = draw(st.one_of(made))
    return spark.Not(found) if draw(st.booleans()) else found


@st.composite
def columns_and_filters(draw: st.DrawFn) -> tuple[str, list[Any], list[spark.Filter]]:
    name = draw(st.sampled_from(sorted(OF_KIND)))
    values = draw(st.lists(OF_KIND[name] | st.none(), min_size=1, max_size=8))
    return name, values, draw(st.lists(filters_of(name), min_size=1, max_size=2))


def statistics(name: str, values: list[Any]) -> dict[str, ColumnStatistics]:
    solid = [value for value in values if value is not None]
    bounds = [value for value in solid if value == value]
    low, high = (min(bounds), max(bounds)) if bounds else (None, None)
    if name == "price" and not bounds:
        low = high = NAN
    absent = len(values) - len(solid)
    return {name: ColumnStatistics(low, high, len(solid), 0, absent)}


@settings(max_examples=500, deadline=None)
@given(columns_and_filters())
def test_nothing_that_spark_keeps_is_lost(
    case: tuple[str, list[Any], list[spark.Filter]],
) -> None:
    name, values, filters = case
    found = pushed(filters, SCHEMA)
    if found is None:
        return
    check(found, SCHEMA)
    kind = SCHEMA.attributes[name]
    fields = [pa.field("id", pa.string()), field_of(name, kind)]
    ids = pa.array([str(place) for place in range(len(values))])
    batch = pa.RecordBatch.from_arrays(
        [ids, pa.array(values, kind.arrow)], schema=pa.schema(fields)
    )
    kept = evaluate(found, batch).tolist()
    by_spark = [all(holds(each, value) for each in filters) for value in values]
    for value, reef_keeps, spark_keeps in zip(values, kept, by_spark, strict=True):
        assert reef_keeps or not spark_keeps, (value, filters, found)
    if any(by_spark):
        assert may_match(found, statistics(name, values), "0", "9")


@settings(max_examples=150, deadline=None)
@given(columns_and_filters())
def test_numbers_and_text_are_filtered_exactly(
    case: tuple[str, list[Any], list[spark.Filter]],
) -> None:
    """Saying less is allowed, and only done where Reef has no word for it."""
    name, values, filters = case
    inner = [each.child if isinstance(each, spark.Not) else each for each in filters]
    if name not in ("year", "name", "when") or any(
        isinstance(each, spark.StringEndsWith) or None in _values(each) for each in inner
    ):
        return
    found = pushed(filters, SCHEMA)
    kind = SCHEMA.attributes[name]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, kind.arrow)], schema=pa.schema([field_of(name, kind)])
    )
    assert found is not None
    assert evaluate(found, batch).tolist() == [
        all(holds(each, value) for each in filters) for value in values
    ]


def _values(filter: Any) -> tuple[Any, ...]:
    value = getattr(filter, "value", 0)
    return tuple(value) if isinstance(value, tuple) else (value,)

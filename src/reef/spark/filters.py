"""Filters that Spark offers to a source, as Reef's.

What is given to Reef must hold wherever the filter of Spark's does: Spark looks at the rows again,
and decides, but a row that Reef leaves out is gone. They differ in NaN, which for Spark is
equal to itself and above every number; `not (x <= 5)` is Reef's way to say so. Where Reef cannot
say the same it says less, at the least that the column is not null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as spark

from reef.data.filter import (
    And,
    Compare,
    Contains,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
)
from reef.data.rows import ID
from reef.data.schema import STRING_IDS, Schema
from reef.data.types import AttributeType

_ORDER: dict[type[spark.Filter], str] = {
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_BELOW = {">": "<=", ">=": "<"}
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_TEXT = ("string", "bytes")
# Each value is held against the statistics of each row group.
_MOST_VALUES = 256


def pushed(filters: Iterable[spark.Filter], schema: Schema) -> Expression | None:
    """A filter that every row satisfies that satisfies all of Spark's; None if there is nothing
    to say."""
    found = [each for each in (_pushed(one, schema) for one in filters) if each is not None]
    if not found:
        return None
    return found[0] if len(found) == 1 else And(tuple(dict.fromkeys(found)))


def _pushed(filter: spark.Filter, schema: Schema) -> Expression | None:
    negated = isinstance(filter, spark.Not)
    inner: Any = filter.child if isinstance(filter, spark.Not) else filter
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1:
        return None
    column = _Column.named(path[0], schema)
    if column is None:
        return None
    return column.unless(inner) if negated else column.where(inner)


class _Column:
    """A column, and what can be said of it."""

    def __init__(self, name: str, kind: AttributeType) -> None:
        self._name = name
        self._kind = kind
        self._element = kind.element if kind.family == "scalar" else ""

    @staticmethod
    def named(name: str, schema: Schema) -> _Column | None:
        """The column of that name, if there is one."""
        if name == ID:
            return _Column(ID, AttributeType("scalar", schema.id_kind or STRING_IDS))
        kind = schema.attributes.get(name)
        return None if kind is None else _Column(name, kind)

    def where(self, filter: spark.Filter) -> Expression | None:
        """What holds where the filter does."""
        if isinstance(filter, spark.IsNull):
            return IsNull(self._name)
        if isinstance(filter, spark.EqualNullSafe) and filter.value is None:
            return IsNull(self._name)
        found: Expression | None = None
        if isinstance(filter, spark.EqualTo | spark.EqualNullSafe):
            value = self._literal(filter.value)
            found = None if value is None else Compare(self._name, "=", value)
        elif type(filter) in _ORDER:
            found = self._ordered(_ORDER[type(filter)], filter.value)  # type: ignore[attr-defined]
        elif isinstance(filter, spark.In):
            found = self._in(filter.value)
        elif isinstance(filter, spark.StringStartsWith):
            prefix = self._text(filter.value)
            found = None if prefix is None else StartsWith(self._name, prefix)
        elif isinstance(filter, spark.StringContains | spark.StringEndsWith):
            part = self._text(filter.value)
            found = None if part is None else Contains(self._name, part)
        elif not isinstance(filter, spark.IsNotNull):
            return None
        return self._not_null() if found is None else found

    def unless(self, filter: spark.Filter) -> Expression | None:
        """What holds where the filter is false; where it is unknown, nothing need hold."""
        if isinstance(filter, spark.IsNull):
            return self._not_null()
        if isinstance(filter, spark.IsNotNull):
            return IsNull(self._name)
        if isinstance(filter, spark.EqualNullSafe):
            if filter.value is None:
                return self._not_null()
            value = self._literal(filter.value)
            if value is None:
                return None
            return Or((IsNull(self._name), Compare(self._name, "!=", value)))
        found: Expression | None = None
        if isinstance(filter, spark.EqualTo):
            value = self._literal(filter.value)
            found = None if value is None else Compare(self._name, "!=", value)
        elif type(filter) in _ORDER:
            opposite = _OPPOSITE[_ORDER[type(filter)]]
            found = self._ordered(opposite, filter.value)  # type: ignore[attr-defined]
        elif isinstance(filter, spark.In):
            # With a null among the values it never holds, and saying less is right too.
            some = self._in(filter.value)
            found = Not(some) if isinstance(some, In) else None
        elif isinstance(filter, spark.StringStartsWith):
            prefix = self._text(filter.value)
            found = None if prefix is None else Not(StartsWith(self._name, prefix))
        elif isinstance(filter, spark.StringContains):
            part = self._text(filter.value)
            found = None if part is None else Not(Contains(self._name, part))
        elif not isinstance(filter, spark.StringEndsWith):
            return None
        return self._not_null() if found is None else found

    def _not_null(self) -> Expression | None:
        return None if self._name == ID else Not(IsNull(self._name))

    def _ordered(self, op: str, value: object) -> Expression | None:
        bound = self._literal(value)
        if bound is None or self._element == "bool":
            return None
        if self._element == "float64" and op in _BELOW:
            return Not(Compare(self._name, _BELOW[op], bound))
        return Compare(self._name, op, bound)

    def _in(self, values: Iterable[object]) -> Expression | None:
        """Equal to one of them, or between them; None if one of them cannot be said. Nothing
        equals null."""
        given = [value for value in values if value is not None]
        found = [each for each in map(self._literal, given) if each is not None]
        if len(found) < len(given):
            return None
        if len(found) <= _MOST_VALUES:
            return In(self._name, tuple(found))
        low, high = min(found), max(found)  # type: ignore[type-var]
        return And((Compare(self._name, ">=", low), Compare(self._name, "<=", high)))

    def _text(self, value: object) -> str | bytes | None:
        found = self._literal(value) if self._element in _TEXT else None
        return found if isinstance(found, str | bytes) else None

    def _literal(self, value: object) -> Literal | None:
        """The value as Reef compares it with this column; None if the two may not agree."""
        element = self._element
        if element == "uint64" and isinstance(value, Decimal):
            whole = value.is_finite() and value == value.to_integral_value()
            return int(value) if whole else None
        if element in ("int64", "uint64"):
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        if element == "float64":
            return value if isinstance(value, float) and not math.isnan(value) else None
        if element == "timestamp":
            return value if isinstance(value, datetime) and value.tzinfo is not None else None
        if element == "bool":
            return value if isinstance(value, bool) else None
        if element == "string":
            return value if isinstance(value, str) else None
        if element == "bytes":
            return bytes(value) if isinstance(value, bytes | bytearray) else None
        return None

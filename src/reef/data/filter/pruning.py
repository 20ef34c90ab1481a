"""Deciding from statistics alone whether a block can hold a row that a filter keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from reef.data.filter.tree import (
    And,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    IsNull,
    Leaf,
    Not,
    Or,
    StartsWith,
)
from reef.data.rows import ID
from reef.data.statistics import ColumnStatistics
from reef.errors import InvalidFilter

# For each part of a filter: can it be true of some row, and can it be false of some row?
# Unknown needs no third answer: it never makes a row kept, under any operators.
Possible = tuple[bool, bool]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ANYTHING: Possible = (True, True)
_NOTHING: Possible = (False, False)


def may_match(
    expression: Expression,
    statistics: Mapping[str, ColumnStatistics],
    id_min: str | int | None,
    id_max: str | int | None,
) -> bool:
    """Whether some row of the block may match; False only if certainly none does.

    It is about the block's own rows: where another run may hold a newer version of a row, the
    answer says nothing of the merged row.
    """
    ids = ColumnStatistics(id_min, id_max, valid=1, nulls=0, absent=0)
    return _possible(expression, lambda name: ids if name == ID else statistics.get(name))[0]


def _possible(expression: Expression, known: Callable[[str], ColumnStatistics | None]) -> Possible:
    if isinstance(expression, Leaf):
        return _leaf(expression, known(expression.name))
    if isinstance(expression, Not):
        true, false = _possible(expression.operand, known)
        return false, true
    if isinstance(expression, And | Or):
        parts = [_possible(operand, known) for operand in expression.operands]
        if isinstance(expression, And):
            return all(true for true, _ in parts), any(false for _, false in parts)
        return any(true for true, _ in parts), all(false for _, false in parts)
    raise InvalidFilter(f"{expression!r} is not a filter")


def _leaf(leaf: Leaf, column: ColumnStatistics | None) -> Possible:
    if isinstance(leaf, IsNull):
        if column is None:
            return True, False
        return column.nulls + column.absent > 0, column.valid > 0
    if isinstance(leaf, Exists):
        if column is None:
            return False, True
        return column.valid + column.nulls > 0, column.absent > 0
    if column is None or not column.valid:
        return _NOTHING
    low, high = _bound(column.minimum), _bound(column.maximum)
    # A float column may hold NaN, which its bounds leave out.
    nan = isinstance(low, float) or isinstance(high, float)
    try:
        if isinstance(leaf, Compare):
            return _compare(leaf.op, _bound(leaf.value, literal=True), low, high, nan)
        if isinstance(leaf, In):
            each = [_compare("=", _bound(v, literal=True), low, high, nan) for v in leaf.values]
            return any(true for true, _ in each), all(false for _, false in each)
        if isinstance(leaf, StartsWith):
            return _starts(leaf.prefix, low, high)
    except TypeError:
        return _ANYTHING
    assert isinstance(leaf, Contains)
    return _ANYTHING


def _bound(value: object, *, literal: bool = False) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, float) and math.isnan(value) and not literal:
        return None
    return value


def _compare(op: str, value: Any, low: Any, high: Any, nan: bool) -> Possible:
    if isinstance(value, float) and math.isnan(value):
        return op == "!=", op != "!="
    if op in ("!=", ">=", ">"):
        opposite = {"!=": "=", ">=": "<", ">": "<="}[op]
        true, false = _compare(opposite, value, low, high, nan=False)
        return (false or nan, true) if op == "!=" else (false, true or nan)
    above_low = low is None or low <= value
    below_high = high is None or value <= high
    if op == "=":
        only = low is not None and high is not None and low == value == high
        return above_low and below_high, not only or nan
    if op == "<":
        return low is None or low < value, high is None or high >= value or nan
    return above_low, high is None or high > value or nan


def _starts(prefix: Any, low: Any, high: Any) -> Possible:
    length = len(prefix)
    reaches = (low is None or low[:length] <= prefix) and (high is None or high >= prefix)
    # Whatever lies between two strings that begin alike begins alike.
    every = low is not None and high is not None and low[:length] == prefix == high[:length]
    return reaches, not every

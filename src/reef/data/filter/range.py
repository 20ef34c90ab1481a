"""The range of ids that a filter leaves possible, so that a scan can seek."""

from __future__ import annotations

from typing import Any

from reef.data.filter.numbers import against_integers
from reef.data.filter.tree import And, Compare, Expression, In, Literal, Not, Or, StartsWith
from reef.data.interval import after_prefix
from reef.data.rows import ID

Range = tuple[Any, Any]
_ALL: Range = (None, None)
_NO_INTEGER: Range = (0, 0)
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


def id_range(expression: Expression) -> tuple[str | int | None, str | int | None]:
    """(start, stop) such that every matching id is at least `start` and below `stop`.

    None is no bound. Conservative: ids in the range need not match. If `start` is not below
    `stop`, no id matches.
    """
    try:
        return _range(expression, negated=False)
    except TypeError:
        # Strings and integers side by side: one of them is wrong, and `check` says which.
        return _ALL


def _range(expression: Expression, negated: bool) -> Range:
    if isinstance(expression, Not):
        return _range(expression.operand, not negated)
    if isinstance(expression, And | Or):
        ranges = [_range(operand, negated) for operand in expression.operands]
        return _narrowest(ranges) if isinstance(expression, And) != negated else _hull(ranges)
    # An id is never null, so that the opposite of a comparison is the opposite comparison.
    if isinstance(expression, Compare) and expression.name == ID:
        op = _OPPOSITE[expression.op] if negated else expression.op
        return _compare(op, expression.value, negated)
    if negated:
        return _ALL
    if isinstance(expression, In) and expression.name == ID:
        return _hull([_compare("=", value, negated) for value in expression.values])
    if isinstance(expression, StartsWith) and expression.name == ID:
        prefix = expression.prefix
        return (prefix, after_prefix(prefix)) if isinstance(prefix, str) else _ALL
    return _ALL


def _compare(op: str, value: Literal, negated: bool) -> Range:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return _ALL
    if isinstance(value, str):
        if op == "!=":
            return _ALL
        start = {"=": value, ">=": value, ">": value + "\0"}.get(op)
        return start, {"=": value + "\0", "<=": value + "\0", "<": value}.get(op)
    if value != value:
        # NaN: the opposite of a comparison that never holds is true of every id.
        return _NO_INTEGER if op != "!=" and not negated else _ALL
    narrowed = against_integers(op, value, "uint64")
    if isinstance(narrowed, bool):
        return _ALL if narrowed else _NO_INTEGER
    op, whole = narrowed
    if op == "!=":
        return _ALL
    first = {"=": whole, ">=": whole, ">": whole + 1}.get(op)
    last = {"=": whole, "<=": whole, "<": whole - 1}.get(op)
    if (first is not None and first >= 2**64) or (last is not None and last < 0):
        return _NO_INTEGER
    return first or None, None if last is None or last >= 2**64 - 1 else last + 1


def _narrowest(ranges: list[Range]) -> Range:
    starts = [start for start, _ in ranges if start is not None]
    stops = [stop for _, stop in ranges if stop is not None]
    return max(starts, default=None), min(stops, default=None)


def _hull(ranges: list[Range]) -> Range:
    if not ranges:
        return _ALL
    some = [r for r in ranges if None in r or r[0] < r[1]]
    if not some:
        return ranges[0]
    starts, stops = zip(*some, strict=True)
    return (
        None if None in starts else min(starts),
        None if None in stops else max(stops),
    )

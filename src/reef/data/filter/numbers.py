"""Comparing a column of numbers with a literal of another number type, exactly.

An int64 column against 1979.5 or 2**63, or a float64 column against 2**53 + 1, must answer as
mathematics does, not as a cast would. Each comparison is turned into one against a literal of
the column's own type, or into one answer for every number.
"""

from __future__ import annotations

import math
import sys

INTEGER_RANGES = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


def against_integers(op: str, value: int | float, kind: str) -> bool | tuple[str, int]:
    """The comparison for a column of that integer kind: one answer for all, or an exact one."""
    if isinstance(value, float):
        if math.isnan(value):
            return op == "!="
        if math.isinf(value):
            return _beyond(op, value > 0)
        whole = math.floor(value)
        if whole != value:
            if op in ("=", "!="):
                return op == "!="
            # Between whole and whole + 1: less means at most whole, greater means above it.
            op = "<=" if op in ("<", "<=") else ">"
        value = whole
    lowest, highest = INTEGER_RANGES[kind]
    if value > highest:
        return _beyond(op, above=True)
    if value < lowest:
        return _beyond(op, above=False)
    return op, value


def against_floats(op: str, value: int | float) -> bool | tuple[str, float]:
    """The comparison for a float64 column. A plain answer holds for NaN too."""
    if isinstance(value, float):
        return op, value
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if near == value:
        return op, near
    if op in ("=", "!="):
        return op == "!="
    if near > value:
        below = sys.float_info.max if near == math.inf else math.nextafter(near, -math.inf)
    else:
        below = near
    # No float lies between `below` and the value, so less means at most `below`.
    return ("<=" if op in ("<", "<=") else ">"), below


def _beyond(op: str, above: bool) -> bool:
    return op == "!=" or (op in ("<", "<=") if above else op in (">", ">="))

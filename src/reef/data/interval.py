"""Intervals of ids, as scans take them: start <= id < stop.

A bound need not be an id. It may be empty, longer than any id or outside of what integers reach,
and have control characters: the least text above all that begins with "~" ends in one.
"""

from __future__ import annotations

import numpy as np

from reef.data.place import shown
from reef.data.schema import INTEGER_IDS, STRING_IDS, Schema
from reef.errors import InvalidId, InvalidInput

Bound = str | int | None
Interval = tuple[Bound, Bound]

_HIGHEST = 2**64 - 1
_NO_INTEGER: Interval = (0, 0)


def interval_of(start: object, stop: object, schema: Schema) -> Interval:
    """The interval with plain bounds that fit the ids, or `InvalidId`. None is no bound."""
    low, high = _bound(start, schema, "start"), _bound(stop, schema, "stop")
    if isinstance(low, int):
        if low > _HIGHEST:
            return _NO_INTEGER
        low = max(low, 0)
    if isinstance(high, int):
        if high < 0:
            return _NO_INTEGER
        high = None if high > _HIGHEST else high
    return low, high


def prefix_interval(prefix: object, schema: Schema) -> Interval:
    """The ids that begin so."""
    if schema.id_kind not in (STRING_IDS, None) or not isinstance(prefix, str):
        raise InvalidInput("a prefix scan needs ids that are strings, and a prefix that is one")
    start, _ = interval_of(prefix, None, schema)
    return start, after_prefix(str(start))


def after_prefix(prefix: str) -> str | None:
    """The least text above every text that begins so; None if there is no such text."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point <= 0x10FFFF:
            # Surrogates are not characters: the next one after U+D7FF is U+E000.
            return prefix[: end - 1] + chr(0xE000 if point == 0xD800 else point)
    return None


def _bound(value: object, schema: Schema, what: str) -> Bound:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return None
    if isinstance(value, str):
        if schema.id_kind == INTEGER_IDS:
            raise InvalidId(f"{what} is {shown(value)}, and this namespace has integers")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidId(f"{what} {value[:80]!r} is not valid Unicode") from None
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if schema.id_kind == STRING_IDS:
            raise InvalidId(f"{what} is {shown(value)}, and this namespace has strings")
        return int(value)
    raise InvalidId(f"{what} must be a string or an integer, not {type(value).__name__}")

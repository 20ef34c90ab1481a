"""The smallest and the largest value of a column of a group, as its statistics keep them.

Values are stored as plain msgpack: timestamps as microseconds since 1970, strings and bytes cut to
64 bytes, the upper bound then rounded up. None where a bound is unknown or makes no sense.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.types import AttributeType
from reef.segment.encode import numpy_of

Bounds = tuple[object, object]

LONGEST = 64
_UNKNOWN: Bounds = (None, None)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds_of(values: pa.Array, kind: AttributeType) -> Bounds:
    """Lower and upper bound of the valid values."""
    if kind.family != "scalar" or len(values) == values.null_count:
        return _UNKNOWN
    if kind.element in ("int64", "timestamp", "float64"):
        dtype = np.dtype(np.float64 if kind.element == "float64" else np.int64)
        numbers = numpy_of(values, dtype)
        if values.null_count:
            numbers = numbers[values.is_valid().to_numpy(zero_copy_only=False)]
        lowest, highest = numbers.min().item(), numbers.max().item()
        return (lowest, highest) if lowest == lowest else _UNKNOWN
    found = pc.min_max(values).as_py()
    lowest, highest = found["min"], found["max"]
    if kind.element == "string":
        return shorten_text(lowest), raise_text(highest)
    if kind.element == "bytes":
        return lowest[:LONGEST], raise_bytes(highest)
    return lowest, highest


def shorten_text(text: str) -> str:
    """The longest beginning of at most 64 bytes of UTF-8."""
    if len(text) * 4 <= LONGEST:
        return text
    return text.encode()[:LONGEST].decode("utf-8", "ignore")


def raise_text(text: str) -> str | None:
    """A text of at most 64 bytes that no text beginning with the same bytes exceeds."""
    short = shorten_text(text)
    if len(short) == len(text):
        return text
    while short:
        point = ord(short[-1]) + 1
        # The surrogates are no characters.
        point = 0xE000 if 0xD800 <= point < 0xE000 else point
        if point <= 0x10FFFF:
            raised = short[:-1] + chr(point)
            if len(raised.encode()) <= LONGEST:
                return raised
        short = short[:-1]
    return None


def raise_bytes(data: bytes) -> bytes | None:
    """Bytes, at most 64, that no bytes beginning as these do exceed."""
    if len(data) <= LONGEST:
        return data
    short = data[:LONGEST].rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


def python_bound(value: object, kind: AttributeType) -> object:
    """A stored bound as the Python value that documents hold."""
    if kind.element == "timestamp" and isinstance(value, int):
        try:
            return _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return None
    return value

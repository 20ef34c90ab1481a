"""JSON lines, a block at a time."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import IO, Annotated, Any

import msgspec

from reef.data.schema import Schema
from reef.data.types import AttributeType
from reef.errors import InvalidInput

_CHUNK = 1 << 20
_decoder = msgspec.json.Decoder(dict[str, Any])
_MOMENTS = list[Annotated[datetime, msgspec.Meta(tz=True)] | None]
_BYTES = list[bytes | None]
NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

Lines = tuple[list[dict[str, Any]], int, tuple[int, ...]]
"""Rows, the number of the first line, and of every row's line if some lines have none."""


def json_blocks(
    file: IO[bytes], name: str, schema: Schema, most: int, largest: int
) -> Iterator[Lines]:
    """Rows, at most that many and from at most about that many bytes at a time.

    Where the schema says timestamp or bytes, strings are read as ISO 8601 (UTC unless they say
    otherwise) and base64; where it says float64, "NaN", "Infinity" and "-Infinity" are numbers.
    """
    special = {
        attribute: kind
        for attribute, kind in schema.attributes.items()
        if kind.element in ("timestamp", "bytes", "float64")
    }
    line = 1
    for text, lines in _texts(file, most, largest):
        rows, numbers = _decoded(text, lines, line, name)
        if rows:
            for attribute, kind in special.items():
                _read_strings(rows, attribute, kind, name, numbers or range(line, line + lines))
            yield rows, line, numbers
        line += lines


def _texts(file: IO[bytes], most: int, largest: int) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and how many they are."""
    parts: list[bytes] = []
    size = lines = 0
    began = False
    while True:
        # What a pipe holds now: rows must not wait for a chunk to fill.
        chunk = file.read1(_CHUNK)  # type: ignore[attr-defined]
        if not began:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            began = True
        if not chunk:
            break
        parts.append(chunk)
        size += len(chunk)
        lines += chunk.count(b"\n")
        if lines and (lines >= most or size >= largest):
            held = b"".join(parts)
            end = held.rfind(b"\n") + 1
            while end and (len(held) >= largest or lines >= most):
                cut, taken = _cut(held, end, most)
                yield held[:cut], taken
                held = held[cut:]
                end -= cut
                lines -= taken
            parts, size = [held], len(held)
    held = b"".join(parts)
    while held:
        cut, taken = _cut(held, len(held), most)
        yield held[:cut], taken
        held = held[cut:]


def _cut(text: bytes, end: int, most: int) -> tuple[int, int]:
    """Where the first `most` lines before `end` end, and how many they are."""
    lines = text.count(b"\n", 0, end)
    if lines <= most:
        return end, lines if text[end - 1 : end] == b"\n" else lines + 1
    low, high = 0, end
    # The byte after which exactly `most` lines have ended.
    while low < high:
        middle = (low + high) // 2
        if text.count(b"\n", 0, middle) >= most:
            high = middle
        else:
            low = middle + 1
    return low, most


def _decoded(
    text: bytes, lines: int, first: int, name: str
) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    try:
        rows = _decoder.decode_lines(text)
        if len(rows) == lines:
            return rows, ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the walk below says which line it was
    rows = []
    numbers = []
    for number, part in enumerate(text.split(b"\n"), first):
        if not part.strip():
            continue
        try:
            rows.append(_decoder.decode(part))
        except msgspec.ValidationError:
            raise InvalidInput(f"{name}: line {number} is not a JSON object") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"{name}: line {number} is not JSON: {error}") from None
        numbers.append(number)
    return rows, tuple(numbers)


def _read_strings(
    rows: list[dict[str, Any]], attribute: str, kind: AttributeType, name: str, numbers: Any
) -> None:
    """Replace strings of this attribute by what the schema says they stand for."""
    having = [row for row in rows if attribute in row]
    values = [row[attribute] for row in having]
    if kind.element == "float64":
        # Only numbers that JSON lacks come as strings.
        found = values if kind.family == "scalar" else chain.from_iterable(filter(None, values))
        try:
            if str not in set(map(type, found)):
                return
        except TypeError:
            return  # not lists; the schema's check will say so
    elif kind.family == "scalar":
        try:
            wanted = _MOMENTS if kind.element == "timestamp" else _BYTES
            _replace(having, attribute, msgspec.convert(values, wanted))
            return
        except msgspec.ValidationError:
            pass  # one by one, with more forms allowed and the line known
    for row, number in zip(rows, numbers, strict=False):
        if attribute not in row:
            continue
        value = row[attribute]
        try:
            if kind.family == "list" and isinstance(value, list):
                row[attribute] = [_read(item, kind.element) for item in value]
            elif kind.family == "scalar":
                row[attribute] = _read(value, kind.element)
        except ValueError as error:
            raise InvalidInput(
                f"{name}: attribute {attribute!r} in line {number} {error}"
            ) from None


def _replace(rows: list[dict[str, Any]], attribute: str, values: list[Any]) -> None:
    for row, value in zip(rows, values, strict=True):
        row[attribute] = value


def _read(value: Any, element: str) -> Any:
    if not isinstance(value, str):
        return value
    if element == "timestamp":
        return parse_moment(value)
    if element == "bytes":
        return parse_base64(value)
    return NOT_FINITE.get(value, value)


def parse_moment(text: str) -> datetime:
    """ISO 8601; UTC unless it says otherwise."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"must be an ISO 8601 timestamp, not {text[:60]!r}") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def parse_base64(text: str) -> bytes:
    """Bytes that are written as base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"must be base64, not {text[:60]!r}") from None

"""RFWAL1, the log object. All integers are little-endian.

    magic "RFWAL1\\0\\0" | format version u32
    header:   length u32 | crc32c u32 | JSON of LogHeader
    record:   length u32 | crc32c u32 | payload            (any number)
    footer:   record count u32 | crc32c u32 of all bytes before the footer

The checksums of header and records say where the damage is; the footer's says that nothing
is missing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from crc32c import crc32c

from reef.errors import Corruption, InvalidInput, UnsupportedFormat
from reef.store.contract import Buffer, size_of

MAGIC = b"RFWAL1\0\0"
VERSION = 2
"""The newest; an object is written in the lowest that can say what it holds."""
SECOND = 16
"""The first byte of a record is its tag. Tags from this one on came with version 2."""

_PREAMBLE = struct.Struct("<8sI")
_FRAME = struct.Struct("<II")
_SMALL = 64 * 1024


class BatchHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the batches that were committed together.

    `operations` is how many rows of the object's records are this batch's, in order.
    `condition` is a copy of the predicate it was admitted under, `receipt` what its caller
    was told, so that a replayed idempotency key gets the same answer for ever.
    """

    operations: int
    key: str | None = None
    condition: dict[str, Any] | None = None
    receipt: dict[str, Any] | None = None


class LogHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wrote a log object, and what is in it.

    `guest` marks an append by somebody who is not the namespace's writer (a bulk load, a
    collector): it carries the epoch it found and fences nobody. `skips` names the slots
    directly before this one whose objects were found damaged and given up.
    """

    lsn: int
    writer: str
    epoch: int
    nonce: str
    created_at: float
    guest: bool = False
    skips: tuple[int, ...] = ()
    batches: tuple[BatchHeader, ...] = ()


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A log object, read and checked."""

    header: LogHeader
    records: tuple[memoryview, ...]
    size: int

    @property
    def lsn(self) -> int:
        """The slot it holds."""
        return self.header.lsn


_encode_header = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(LogHeader).decode
# The latter two for text that is no Unicode, or nests too deep.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
_UNWRITABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def encode(header: LogHeader, records: Sequence[Sequence[Buffer]]) -> list[Buffer]:
    """The object's bytes in parts; each record is given in parts too, none of them copied unless
    all of it is small. `InvalidInput` if the header holds what JSON cannot say."""
    try:
        head = _encode_header(header)
    except _UNWRITABLE as error:
        raise InvalidInput(f"it cannot be written into the log ({error})") from None
    version = 2 if max(map(_tag, records), default=0) >= SECOND else 1
    parts: list[Buffer] = [
        _PREAMBLE.pack(MAGIC, version) + _FRAME.pack(len(head), crc32c(head)) + head
    ]
    size = 0
    for record in records:
        length = 0
        checksum = 0
        for part in record:
            length += size_of(part)
            checksum = crc32c(part, checksum)
        size += length
        parts.append(_FRAME.pack(length, checksum))
        parts.extend(record)
    if size < _SMALL:
        parts = [b"".join(parts)]
    total = 0
    for part in parts:
        total = crc32c(part, total)
    parts.append(_FRAME.pack(len(records), total))
    return parts


def _tag(record: Sequence[Buffer]) -> int:
    for part in record:
        if len(part):
            return part[0]
    return 0


def decode(key: str, data: memoryview) -> LogEntry:
    """Check everything and take the object apart, or `Corruption` naming the offset."""
    end = len(data) - _FRAME.size
    if end < _PREAMBLE.size + _FRAME.size:
        raise Corruption(key, f"a log object cannot be {len(data)} bytes long")
    magic, version = _PREAMBLE.unpack_from(data)
    if magic != MAGIC:
        raise Corruption(key, "it does not start like a log object")
    if not 1 <= version <= VERSION:
        if crc32c(data[:end]) == _FRAME.unpack_from(data, end)[1]:
            raise UnsupportedFormat(f"{key} has log format {version}; this Reef reads {VERSION}")
        raise Corruption(key, "its format version is damaged", 8)
    head, offset = _framed(key, data, _PREAMBLE.size, end, "header")
    records: list[memoryview] = []
    while offset < end:
        record, offset = _framed(key, data, offset, end, f"record {len(records)}")
        records.append(record)
    count, checksum = _FRAME.unpack_from(data, end)
    if count != len(records) or checksum != crc32c(data[:end]):
        raise Corruption(key, "its footer does not match its records", end)
    return LogEntry(_header_of(key, head), tuple(records), len(data))


def decode_front(key: str, front: memoryview) -> tuple[LogHeader, memoryview] | None:
    """The header, and how the first record begins, out of an object's first bytes.

    None if they are too few, or not those of a log object that this Reef reads: `decode` of the
    whole then says what is wrong. Only the header is checked.
    """
    start = _PREAMBLE.size + _FRAME.size
    if len(front) < start:
        return None
    magic, version = _PREAMBLE.unpack_from(front)
    if magic != MAGIC or not 1 <= version <= VERSION:
        return None
    length, _ = _FRAME.unpack_from(front, _PREAMBLE.size)
    if start + length + _FRAME.size >= len(front):
        return None
    head, offset = _framed(key, front, _PREAMBLE.size, len(front), "header")
    return _header_of(key, head), front[offset + _FRAME.size :]


def _header_of(key: str, head: memoryview) -> LogHeader:
    try:
        return _decode_header(head)
    except _UNREADABLE as error:
        raise Corruption(key, f"its header cannot be read ({error})", _PREAMBLE.size) from None


def _framed(key: str, data: memoryview, offset: int, end: int, what: str) -> tuple[memoryview, int]:
    start = offset + _FRAME.size
    if start > end:
        raise Corruption(key, f"its {what} is cut off", offset)
    length, checksum = _FRAME.unpack_from(data, offset)
    if length > end - start:
        raise Corruption(key, f"its {what} claims {length} bytes", offset)
    payload = data[start : start + length]
    if crc32c(payload) != checksum:
        raise Corruption(key, f"the checksum of its {what} is wrong", offset)
    return payload, start + length

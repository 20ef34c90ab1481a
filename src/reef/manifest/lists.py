"""RFLST1, the list object: what a root names by the list instead of one by one.

    magic "RFLST1\\0\\0" | format version u32 | raw length u32
    zstd of a MessagePack array: descriptions of segments, or entries of what was superseded
    crc32c u32 of all bytes before it

A list is immutable, like the segments it names, and has a birth as they do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

import msgspec
import pyarrow as pa
from crc32c import crc32c

from reef.errors import Corruption, UnsupportedFormat
from reef.manifest.runs import RunSummary, summarize
from reef.segment.info import SegmentInfo

PREFIX = "lists/"
MAGIC = b"RFLST1\0\0"
VERSION = 1
_SUFFIX = ".list"
MOST_SEGMENTS = 1_000

_HEAD = struct.Struct("<8sII")
_FOOT = struct.Struct("<I")
# Far above what the largest list can take, so that a damaged length cannot ask for much memory.
_MOST_BYTES = 16 * 1024 * 1024
_CODEC = "zstd"


class ListInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A list object as a root names it. Of one that names segments, `runs` says what is known of
    them without reading it, run after run in the list's order."""

    id: str
    birth: int
    items: int
    size: int
    checksum: int
    runs: tuple[RunSummary, ...] = ()

    @property
    def key(self) -> str:
        """Where it lies below the namespace's prefix."""
        return f"{PREFIX}{self.birth:020d}-{self.id}{_SUFFIX}"


def birth_of_list(key: str) -> int | None:
    """The birth that a list's key names, or None if it is no list's key."""
    number = key.removeprefix(PREFIX)[:20]
    whole = key.startswith(PREFIX) and key.endswith(_SUFFIX) and number.isdecimal()
    return int(number) if whole else None


Item = TypeVar("Item", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


def encode_segments(segments: Sequence[SegmentInfo], id: str, birth: int) -> tuple[bytes, ListInfo]:
    """A list of segments as bytes, and what a root says of it. Those of a run come together."""
    data, info = encode_list(segments, id, birth)
    runs = [summarize(list(run)) for _, run in groupby(segments, lambda s: (s.run, s.lsn))]
    return data, msgspec.structs.replace(info, runs=tuple(runs))


def encode_list(items: Sequence[Item], id: str, birth: int) -> tuple[bytes, ListInfo]:
    """A list object's bytes, and what a root says of it."""
    raw = _encode(tuple(items))
    body = pa.Codec(_CODEC, 3).compress(raw, asbytes=True)
    data = _HEAD.pack(MAGIC, VERSION, len(raw)) + body
    checksum = crc32c(data)
    data += _FOOT.pack(checksum)
    return data, ListInfo(id, birth, len(items), len(data), checksum)


def decode_list(info: ListInfo, data: memoryview, kind: type[Item]) -> tuple[Item, ...]:
    """What a list names, or `Corruption`, or `UnsupportedFormat`."""
    key = info.key
    if len(data) < _HEAD.size + _FOOT.size:
        raise Corruption(key, f"a list of segments cannot be {len(data)} bytes long")
    magic, version, length = _HEAD.unpack_from(data)
    end = len(data) - _FOOT.size
    checksum = crc32c(data[:end])
    if magic != MAGIC:
        raise Corruption(key, "it does not start like a list of segments")
    if checksum != _FOOT.unpack_from(data, end)[0]:
        raise Corruption(key, "its checksum is wrong", end)
    if version != VERSION:
        raise UnsupportedFormat(f"{key} has list format {version}; this Reef reads {VERSION}")
    if (checksum, len(data)) != (info.checksum, info.size) or length > _MOST_BYTES:
        raise Corruption(key, "it is not the list that the manifest names")
    try:
        raw = pa.Codec(_CODEC).decompress(data[_HEAD.size : end], length, asbytes=True)
        items = msgspec.msgpack.decode(raw, type=tuple[kind, ...])  # type: ignore[valid-type]
    except _UNREADABLE as error:
        raise Corruption(key, f"it cannot be read ({error})", _HEAD.size) from None
    if len(items) != info.items:
        raise Corruption(key, f"it names {len(items)} objects, not {info.items}")
    return items

"""The frame of a segment object: what stands at its head and at its end.

    head      magic "RFSEG1\\0\\0" | format version u32 | zero u32
    groups    from byte 16, each block at a multiple of 8 (zeros between)
    filter    ids, see `reef.segment.bloom`
    index     see `reef.segment.index`
    footer    msgpack of `Footer`
    trailer   footer length u32 | format version u32 | crc32c u32 of the footer and those two |
              zero u32 | magic

Integers are little-endian. The trailer keeps this shape in every later version, so that an older
reader can tell a newer format from damage. Everything behind the last group is the tail.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
from crc32c import crc32c

from reef.data.schema import INTEGER_IDS, Schema
from reef.errors import Corruption, UnsupportedFormat
from reef.segment.info import SegmentInfo

MAGIC = b"RFSEG1\0\0"
VERSION = 2
"""The newest; a segment is written in the lowest that can say its schema."""
HEAD = struct.Struct("<8sII")
ALIGNMENT = 8
TRAILER = struct.Struct("<IIII8s")
_COVERED = struct.Struct("<II")

LARGEST_RATIO = 40_000
"""Zstandard cannot shrink further than one part in 32,768: a larger claim is not believed."""


class Section(msgspec.Struct, frozen=True, array_like=True):
    """Where one section of the tail lies. `raw` is its length uncompressed; 0: stored so."""

    offset: int
    length: int
    raw: int
    crc: int


class Footer(msgspec.Struct, frozen=True):
    """What a segment says of itself; enough to make a `SegmentInfo` from the object alone."""

    id: str
    birth: int
    run: str
    level: int
    rows: int
    tombstones: int
    min_id: str | int
    max_id: str | int
    min_lsn: int
    max_lsn: int
    data_end: int
    filter: Section
    index: Section
    schema: dict[str, object]

    def describe(self, size: int, checksum: int) -> SegmentInfo:
        """What a manifest says of a segment of that size and checksum with this footer."""
        return SegmentInfo(
            id=self.id,
            birth=self.birth,
            run=self.run,
            level=self.level,
            rows=self.rows,
            tombstones=self.tombstones,
            min_id=self.min_id,
            max_id=self.max_id,
            min_lsn=self.min_lsn,
            max_lsn=self.max_lsn,
            size=size,
            tail=size - self.data_end,
            checksum=checksum,
        )


_footer_decoder = msgspec.msgpack.Decoder(Footer)


def padding(length: int) -> int:
    """How many zeros bring a length to the next aligned one."""
    return -length % ALIGNMENT


def encode_head(version: int) -> bytes:
    """The first bytes of every segment."""
    return HEAD.pack(MAGIC, version, 0)


def check_head(key: str, head: memoryview) -> None:
    """Raise unless these are the first bytes of a segment that this version reads."""
    if len(head) < HEAD.size:
        raise Corruption(key, "it ends inside its head", len(head))
    magic, version, zero = HEAD.unpack_from(head)
    if magic != MAGIC:
        raise Corruption(key, "it does not begin as a segment does", 0)
    if version > VERSION:
        raise UnsupportedFormat(f"{key} has segment format {version}; this Reef reads {VERSION}")
    if not 1 <= version <= VERSION or zero:
        raise Corruption(key, "its head is not one that was ever written", 8)


def encode_footer(footer: Footer, version: int) -> bytes:
    """Footer and trailer: the last bytes of a segment."""
    body = msgspec.msgpack.encode(footer)
    crc = crc32c(_COVERED.pack(len(body), version), crc32c(body))
    return body + TRAILER.pack(len(body), version, crc, 0, MAGIC)


def footer_length(key: str, tail: memoryview, end: int) -> int:
    """Length of footer and trailer, from bytes of which the last is the object's last."""
    if len(tail) < TRAILER.size:
        raise Corruption(key, "it ends inside its trailer", end - len(tail))
    length, _, _, _, magic = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    if magic != MAGIC:
        raise Corruption(key, "it does not end as a segment does", end - len(MAGIC))
    return int(length) + TRAILER.size


def decode_footer(key: str, tail: memoryview, end: int) -> tuple[Footer, Schema]:
    """The footer at the end of these bytes, checked; `end` is the object's size."""
    length = footer_length(key, tail, end)
    if length > len(tail):
        raise Corruption(key, "its footer claims more bytes than there are", end - TRAILER.size)
    body = tail[len(tail) - length : len(tail) - TRAILER.size]
    size, version, crc, zero, _ = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
    if crc != crc32c(_COVERED.pack(size, version), crc32c(body)) or zero:
        raise Corruption(key, "the checksum of its footer does not match", end - length)
    if version > VERSION:
        raise UnsupportedFormat(f"{key} has segment format {version}; this Reef reads {VERSION}")
    try:
        footer = _footer_decoder.decode(body)
        schema = Schema.from_dict(footer.schema)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Corruption(key, f"its footer does not parse: {error}", end - length) from error
    if not holds_ids(schema, (footer.min_id, footer.max_id)):
        raise Corruption(key, "its footer has ids of another kind than its schema", end - length)
    start = footer.data_end
    for section in (footer.filter, footer.index):
        if section.offset != start or section.length < 0 or section.raw < 0:
            raise Corruption(key, "its footer names sections that do not follow", end - length)
        start += section.length
    if start != end - length or footer.data_end < HEAD.size:
        raise Corruption(key, "its sections do not fill it", end - length)
    return footer, schema


def holds_ids(schema: Schema, ids: Iterable[object]) -> bool:
    """Whether all of these are ids of the schema's kind."""
    return set(map(type, ids)) == {int if schema.id_kind == INTEGER_IDS else str}


def check_section(key: str, section: Section, data: memoryview, meaning: str) -> memoryview:
    """The bytes themselves, once their length and checksum are what the footer says."""
    if len(data) != section.length:
        raise Corruption(key, f"its {meaning} is cut short", section.offset + len(data))
    if crc32c(data) != section.crc:
        raise Corruption(key, f"the checksum of its {meaning} does not match", section.offset)
    if section.raw > section.length * LARGEST_RATIO:
        raise Corruption(key, f"its {meaning} claims an impossible length", section.offset)
    return data

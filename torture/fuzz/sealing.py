"""Putting checksums right: objects that are damaged and yet pass every check at the door."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
from crc32c import crc32c

from reef.log.codec import MAGIC as LOG_MAGIC
from reef.segment.block import DESCRIPTION, HEADER, PREFIX, zstd
from reef.segment.layout import MAGIC, TRAILER, VERSION, decode_footer

_FRAME = struct.Struct("<II")
_COVERED = struct.Struct("<II")


def sealed_log(header: bytes, records: Sequence[bytes], count: int | None = None) -> bytes:
    """A log object of that header text and those records."""
    parts = [LOG_MAGIC, (1).to_bytes(4, "little")]
    for part in (header, *records):
        parts += (_FRAME.pack(len(part), crc32c(part)), part)
    body = b"".join(parts)
    return body + _FRAME.pack(len(records) if count is None else count, crc32c(body))


def with_log_footer(data: bytes) -> bytes:
    """The same with a footer whose checksum is right; the rest may be anything."""
    if len(data) < _FRAME.size:
        return data
    body = data[: -_FRAME.size]
    return body + data[-_FRAME.size : -4] + crc32c(body).to_bytes(4, "little")


def sealed_manifest(text: bytes) -> bytes:
    """A manifest of that text."""
    return b'{"checksum":"%08x","manifest":%b}' % (crc32c(text), text)


def sealed_block(described: bytes) -> tuple[bytes, int]:
    """A block of what stands behind its prefix (raw length, codec, body), and its checksum."""
    crc = crc32c(described)
    return PREFIX.pack(len(described), crc) + described, crc


def described(body: bytes) -> bytes:
    """What stands behind the prefix of a block that stores that body as it is."""
    return DESCRIPTION.pack(len(body), 0) + body


def packed(body: bytes) -> bytes:
    """The same for a block that compresses it."""
    return DESCRIPTION.pack(len(body), 1) + bytes(zstd().compress(body, asbytes=True))


class Anatomy:
    """A segment taken apart into trees, to be put together again from other ones."""

    def __init__(self, data: bytes) -> None:
        view = memoryview(data)
        footer, self.schema = decode_footer("seed", view, len(data))
        self.footer: dict[str, Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(footer))
        self.groups = data[: footer.data_end]
        self.filter = data[footer.filter.offset : footer.index.offset]
        stored = view[footer.index.offset : footer.index.offset + footer.index.length]
        raw = zstd().decompress(stored, decompressed_size=footer.index.raw)
        # Columns, then first, last, rows, tombstones, LSNs, offset; lengths, crcs; facts.
        self.index: list[Any] = msgspec.msgpack.decode(raw)
        self.rows: list[int] = self.index[3]
        self.blocks = self._blocks()

    def _blocks(self) -> list[tuple[int, int, bytes]]:
        """Of every block its group, its place in the group, and its body."""
        found = []
        width = 1 + len(self.index[0])
        lengths = struct.unpack(f"<{len(self.rows) * width}I", self.index[8])
        for group, at in enumerate(self.index[7]):
            for place, length in enumerate(lengths[group * width : (group + 1) * width]):
                if length:
                    raw, codec = DESCRIPTION.unpack_from(self.groups, at + PREFIX.size)
                    body = self.groups[at + HEADER : at + length]
                    if codec:
                        body = zstd().decompress(body, decompressed_size=raw, asbytes=True)
                    found.append((group, place, body))
                at += length + -length % 8
        return found

    def with_block(self, which: int, block: bytes) -> tuple[bytes, list[Any]]:
        """Groups and index with another block (described, not yet sealed) in the place of one."""
        groups, crcs, lengths = bytearray(self.groups[:16]), bytearray(), bytearray()
        offsets = []
        width = 1 + len(self.index[0])
        bodies = {(group, place): body for group, place, body in self.blocks}
        group_of, place_of, _ = self.blocks[which]
        for group in range(len(self.rows)):
            offsets.append(len(groups))
            for place in range(width):
                body = bodies.get((group, place))
                if body is None:
                    framed, crc = b"", 0
                else:
                    mine = (group, place) == (group_of, place_of)
                    framed, crc = sealed_block(block if mine else described(body))
                groups += framed + bytes(-len(framed) % 8)
                lengths += len(framed).to_bytes(4, "little")
                crcs += crc.to_bytes(4, "little")
        index = [*self.index[:7], offsets, bytes(lengths), bytes(crcs), self.index[10]]
        return bytes(groups), index

    def footer_of(self, groups: bytes, filter: bytes, index: bytes, raw: int) -> dict[str, Any]:
        """A footer that agrees with those sections."""
        end = len(groups)
        return {
            **self.footer,
            "data_end": end,
            "filter": [end, len(filter), 0, crc32c(filter)],
            "index": [end + len(filter), len(index), raw, crc32c(index)],
        }


def sealed_segment(groups: bytes, filter: bytes, index: bytes, footer: bytes) -> bytes:
    """A segment of those sections, with a trailer that fits."""
    crc = crc32c(_COVERED.pack(len(footer), VERSION), crc32c(footer))
    trailer = TRAILER.pack(len(footer), VERSION, crc, 0, MAGIC)
    return b"".join((groups, filter, index, footer, trailer))

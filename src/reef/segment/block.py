"""Blocks: encoded columns, compressed where that pays, checked before they are believed.

    length u32       of everything behind the crc
    crc32c u32       of everything behind it
    raw length u32   of the body before compression
    codec u8         0 stored, 1 zstd; then three zeros
    body

A body is stored as it is unless compression saves a tenth of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from threading import local

import pyarrow as pa
from crc32c import crc32c

from reef.errors import Corruption, InvalidInput
from reef.segment.layout import LARGEST_RATIO
from reef.store.contract import Buffer

PREFIX = struct.Struct("<II")
DESCRIPTION = struct.Struct("<IB3x")
HEADER = PREFIX.size + DESCRIPTION.size

_STORED, _ZSTD = 0, 1
_LARGEST = (1 << 32) - 64
_WORTH = 0.9
_SAMPLE = 4096
_SAMPLED_FROM = 16 * _SAMPLE
# A sample compresses a little worse than the whole it is taken from.
_SAMPLE_WORTH = 0.95


_codecs = local()


def zstd(level: int = 1) -> pa.Codec:
    """This thread's codec; its calls release the interpreter lock."""
    codec = getattr(_codecs, str(level), None)
    if codec is None:
        codec = pa.Codec("zstd", compression_level=level)
        setattr(_codecs, str(level), codec)
    return codec


def encode_block(parts: Sequence[Buffer], level: int = 1) -> tuple[list[Buffer], int, int]:
    """Frame a body given in parts: the buffers to write, their total length, and the crc."""
    raw = sum(map(len, parts))
    if raw > _LARGEST:
        raise InvalidInput("one row group cannot hold more than 4 GiB in a column")
    codec, body = _STORED, list(parts)
    if _may_shrink(parts, raw, level):
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        # Not as an Arrow buffer: a memoryview of one that was shrunk reports a stale length.
        packed = zstd(level).compress(whole, asbytes=True)
        if len(packed) < raw * _WORTH:
            codec, body = _ZSTD, [packed]
    description = DESCRIPTION.pack(raw, codec)
    crc = crc32c(description)
    for part in body:
        crc = crc32c(part, crc)
    length = DESCRIPTION.size + sum(map(len, body))
    return [PREFIX.pack(length, crc), description, *body], PREFIX.size + length, crc


def _may_shrink(parts: Sequence[Buffer], raw: int, level: int) -> bool:
    """Trying costs more than anything else done to a block of random floats: sample first."""
    if raw < 64:
        return False
    if raw < _SAMPLED_FROM:
        return True
    largest = memoryview(max(parts, key=len))
    if len(largest) < raw // 2:
        return True
    sample = b"".join(
        largest[at : at + _SAMPLE] for at in (0, len(largest) // 2, len(largest) - _SAMPLE)
    )
    return bool(zstd(level).compress(sample).size < len(sample) * _SAMPLE_WORTH)


def raw_length(data: memoryview) -> int:
    """What a block's body takes decompressed, beyond the block itself; 0 when stored as it is."""
    raw, codec = DESCRIPTION.unpack_from(data, PREFIX.size)
    return int(raw) if codec == _ZSTD else 0


def decode_block(key: str, offset: int, data: memoryview, length: int, crc: int) -> pa.Buffer:
    """The body of the block that lies at that offset of the object, checked."""
    if len(data) != length or length < HEADER:
        raise Corruption(key, "a block is cut short", offset + len(data))
    stated, written = PREFIX.unpack_from(data)
    if stated != length - PREFIX.size or written != crc:
        raise Corruption(key, "a block is not the one that the index names", offset)
    if crc32c(data[PREFIX.size :]) != crc:
        raise Corruption(key, "the checksum of a block does not match", offset)
    raw, codec = DESCRIPTION.unpack_from(data, PREFIX.size)
    body = data[HEADER:]
    if codec == _STORED and raw == len(body):
        return pa.py_buffer(body)
    if codec != _ZSTD or raw > len(body) * LARGEST_RATIO:
        raise Corruption(key, "a block has a frame that was never written", offset)
    try:
        unpacked = zstd().decompress(body, decompressed_size=raw)
    except (OSError, ValueError) as error:
        raise Corruption(key, f"a block does not decompress: {error}", offset) from error
    if unpacked.size != raw:
        raise Corruption(key, "a block decompresses to another length than it states", offset)
    return unpacked

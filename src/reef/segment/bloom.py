"""The id filter: a Bloom filter that says of most absent ids that they are absent.

    bits u64 | probes u32 | zero u32 | the bits, little-endian in each byte

Probe i of an id looks at bit (low + i × (high | 1)) mod bits, where low and high are the halves of
a 64-bit hash: xxh3 of a string's UTF-8, splitmix64 of an integer.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from reef.errors import Corruption

_HEADER = struct.Struct("<QII")
BITS_PER_ID = 10
_PROBES = 7
_LOW = 0xFFFF_FFFF
_ALL = 0xFFFF_FFFF_FFFF_FFFF
_CHUNK = 1 << 16


def hash_ids(ids: pa.Array) -> np.ndarray:
    """The 64-bit hash of every id."""
    if pa.types.is_uint64(ids.type):
        return _mix_many(np.asarray(ids))
    texts = ids.view(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return np.fromiter(map(xxh3_64_intdigest, texts), np.uint64, len(texts))


def hash_id(identity: str | int) -> int:
    """The hash of one id, the same as `hash_ids` gives."""
    if isinstance(identity, str):
        return int(xxh3_64_intdigest(identity.encode()))
    value = (identity + 0x9E3779B97F4A7C15) & _ALL
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _ALL
    return value ^ (value >> 31)


def _mix_many(values: np.ndarray) -> np.ndarray:
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def build_filter(hashes: np.ndarray) -> bytes:
    """A filter that holds exactly the ids with these hashes."""
    size = max(64, -(-len(hashes) * BITS_PER_ID // 64) * 64)
    bits = np.zeros(size, dtype=bool)
    for start in range(0, len(hashes), _CHUNK):
        probe, step = _first_probe(hashes[start : start + _CHUNK])
        for _ in range(_PROBES):
            bits[probe % np.uint64(size)] = True
            probe += step
    return _HEADER.pack(size, _PROBES, 0) + np.packbits(bits, bitorder="little").tobytes()


def _first_probe(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return hashes & np.uint64(_LOW), hashes >> np.uint64(32) | np.uint64(1)


class BloomFilter:
    """A filter as it was stored. False means certainly absent."""

    __slots__ = ("_bits", "_probes", "_size")

    def __init__(self, key: str, offset: int, data: memoryview) -> None:
        if len(data) < _HEADER.size:
            raise Corruption(key, "its filter is cut short", offset)
        size, probes, _ = _HEADER.unpack_from(data)
        bits = data[_HEADER.size :]
        if size == 0 or size != 8 * len(bits) or not 0 < probes <= 64:
            raise Corruption(key, "its filter has a shape that was never written", offset)
        self._size = size
        self._probes = probes
        # bytes index faster than a memoryview.
        self._bits = bytes(bits)

    def may_contain(self, identity: str | int) -> bool:
        """Whether the id may be there."""
        if isinstance(identity, str):
            hashed = xxh3_64_intdigest(identity.encode())
        else:
            hashed = hash_id(identity)
        probe = hashed & _LOW
        step = hashed >> 32 | 1
        size = self._size
        bits = self._bits
        for place in range(probe, probe + self._probes * step, step):
            at = place % size
            if not bits[at >> 3] >> (at & 7) & 1:
                return False
        return True

    def may_contain_hashes(self, hashes: np.ndarray) -> np.ndarray:
        """Per hash, whether its id may be there."""
        bits = np.frombuffer(self._bits, np.uint8)
        probe, step = _first_probe(hashes)
        found = np.ones(len(hashes), dtype=bool)
        for _ in range(self._probes):
            at = probe % np.uint64(self._size)
            byte = bits[at >> np.uint64(3)]
            found &= (byte >> (at & np.uint64(7)).astype(np.uint8) & 1).astype(bool)
            probe = probe + step
        return found

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return len(self._bits)

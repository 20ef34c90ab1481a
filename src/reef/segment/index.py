"""The block index: for every row group its ids, counts and LSNs, and where its blocks lie.

It is msgpack, compressed as a whole. The blocks of a group follow one another from the group's
offset, each padded to 8 bytes: the key block, then the columns in the index's order. Their lengths
and crcs are two tables of u32, a row a group; length 0 says that the group has no such block.
Statistics are kept apart inside, so that a point read does not parse them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType

import msgspec
import numpy as np

from reef.data.schema import Schema
from reef.data.statistics import ColumnStatistics
from reef.data.types import AttributeType
from reef.errors import Corruption
from reef.segment.block import HEADER, zstd
from reef.segment.bounds import python_bound
from reef.segment.layout import HEAD, Section


class ColumnFacts(msgspec.Struct, array_like=True):
    """Statistics of one column, a value a group."""

    minimum: list[object]
    maximum: list[object]
    valid: list[int]
    nulls: list[int]


class IndexRecord(msgspec.Struct, array_like=True):
    """The index as it is stored. Lists have a value a group."""

    columns: list[str]
    first: list[str | int]
    last: list[str | int]
    rows: list[int]
    tombstones: list[int]
    min_lsn: list[int]
    max_lsn: list[int]
    offset: list[int]
    lengths: bytes
    crcs: bytes
    facts: msgspec.Raw


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """One block: where it lies, how long it is (without padding), and its crc."""

    offset: int
    length: int
    crc: int


_BOUNDS: dict[str, type] = {
    "bool": bool,
    "int64": int,
    "float64": float,
    "string": str,
    "bytes": bytes,
    "timestamp": int,
}
_UNREADABLE = (OSError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
_record_decoder = msgspec.msgpack.Decoder(IndexRecord)
_facts_decoder = msgspec.msgpack.Decoder(list[ColumnFacts])
_LARGEST_INDEX = 1 << 31
LARGEST_GROUP = 1 << 16
"""How many rows a group may say that it has. A few bytes can stand for any number of equal
values, so a reader has to stop believing somewhere; writers stop far below."""


def encode_index(record: IndexRecord) -> tuple[bytes, int]:
    """The stored bytes, and their length before compression."""
    raw = msgspec.msgpack.encode(record)
    return zstd().compress(raw, asbytes=True), len(raw)


class Index:
    """A parsed index; every offset in it lies inside the groups."""

    def __init__(self, key: str, section: Section, data: memoryview, end: int) -> None:
        if not 0 < section.raw < _LARGEST_INDEX:
            raise Corruption(key, "its index claims an impossible length", section.offset)
        try:
            raw = zstd().decompress(data, decompressed_size=section.raw)
            self._record = record = _record_decoder.decode(raw)
            self.count = count = len(record.first)
            width = 1 + len(record.columns)
            self._lengths = np.frombuffer(record.lengths, "<u4").reshape(count, width)
            self._crcs = np.frombuffer(record.crcs, "<u4").reshape(count, width)
            self._starts = _starts(self._lengths, record.offset)
        except _UNREADABLE as error:
            raise Corruption(key, f"its index does not parse: {error}", section.offset) from error
        lists = (
            *(record.last, record.rows, record.tombstones),
            *(record.min_lsn, record.max_lsn, record.offset),
        )
        if not count or any(len(values) != count for values in lists) or not self._sound(end):
            raise Corruption(key, "its index names blocks that cannot be", section.offset)
        self.first = record.first
        self.last = record.last
        self.rows = record.rows
        self.tombstones = record.tombstones
        self.min_lsn = record.min_lsn
        self.max_lsn = record.max_lsn
        self.columns = record.columns
        self.nbytes = int(section.raw) * 2
        self._key = key
        self._section = section
        self._places: dict[int, dict[str | None, BlockPlace]] = {}
        self._facts: dict[str, ColumnFacts] | None = None

    def _sound(self, end: int) -> bool:
        starts, lengths = self._starts, self._lengths
        ends = starts[:, -1] + lengths[:, -1]
        used = lengths[lengths > 0]
        return bool(
            0 < min(self._record.rows) <= max(self._record.rows) <= LARGEST_GROUP
            and len(set(self._record.columns)) == len(self._record.columns)
            and int(starts[0, 0]) == HEAD.size
            and np.all(lengths[:, 0] > 0)
            and int(used.min()) >= HEADER
            and np.all(ends[:-1] <= starts[1:, 0])
            and int(ends[-1]) <= end
        )

    def places(self, group: int) -> dict[str | None, BlockPlace]:
        """The blocks that a group has; its key block under None."""
        places = self._places.get(group)
        if places is None:
            rows = zip(
                (None, *self.columns),
                self._starts[group].tolist(),
                self._lengths[group].tolist(),
                self._crcs[group].tolist(),
                strict=True,
            )
            places = {name: BlockPlace(at, size, crc) for name, at, size, crc in rows if size}
            self._places[group] = places
        return places

    def span(self, group: int) -> tuple[int, int]:
        """Offset and length of a whole group."""
        start = int(self._starts[group, 0])
        return start, int(self._starts[group, -1]) + int(self._lengths[group, -1]) - start

    def _fits(self, fact: ColumnFacts, kind: AttributeType) -> bool:
        """Whether there are bounds and counts for every group, of the column's type or none."""
        lists = (fact.minimum, fact.maximum, fact.valid, fact.nulls)
        bound = _BOUNDS[kind.element] if kind.family == "scalar" else NoneType
        types = {*map(type, fact.minimum), *map(type, fact.maximum)}
        return all(len(values) == self.count for values in lists) and types <= {bound, NoneType}

    def statistics(
        self, group: int, schema: Schema, columns: Iterable[str] | None = None
    ) -> Mapping[str, ColumnStatistics]:
        """Statistics of every column that has a block somewhere in the segment, or of some."""
        if self._facts is None:
            try:
                facts = _facts_decoder.decode(self._record.facts)
            except _UNREADABLE as error:
                raise Corruption(
                    self._key, f"its statistics do not parse: {error}", self._section.offset
                ) from error
            kinds = [schema.attributes[name] for name in self.columns]
            if len(facts) != len(kinds) or not all(map(self._fits, facts, kinds)):
                raise Corruption(
                    self._key, "its statistics are not those of its columns", self._section.offset
                )
            self._facts = dict(zip(self.columns, facts, strict=True))
        rows = self.rows[group]
        found: dict[str, ColumnStatistics] = {}
        for name in self.columns if columns is None else columns:
            fact = self._facts.get(name)
            if fact is None:
                continue
            kind = schema.attributes[name]
            valid, nulls = fact.valid[group], fact.nulls[group]
            found[name] = ColumnStatistics(
                python_bound(fact.minimum[group], kind),
                python_bound(fact.maximum[group], kind),
                valid,
                nulls,
                rows - valid - nulls,
            )
        return found


def _starts(lengths: np.ndarray, offsets: list[int]) -> np.ndarray:
    padded = lengths.astype(np.int64)
    padded += -padded % 8
    starts = np.zeros(lengths.shape, np.int64)
    np.cumsum(padded[:, :-1], axis=1, out=starts[:, 1:])
    starts += np.array(offsets, np.int64)[:, None]
    return starts

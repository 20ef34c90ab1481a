"""Writing a segment: rows in id order in, the parts of one object out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from reef.data.measure import bytes_together
from reef.data.rows import ID, KIND, LSN, attributes_of, concat, field_of, is_attribute
from reef.data.schema import Schema
from reef.data.settling import lifted_batch
from reef.errors import InvalidInput
from reef.segment.bloom import BITS_PER_ID, build_filter
from reef.segment.encoded_group import EncodedBlock, EncodedGroup, encode_group
from reef.segment.index import ColumnFacts, IndexRecord, encode_index
from reef.segment.info import SegmentInfo
from reef.segment.layout import HEAD, Footer, Section, encode_footer, encode_head, padding
from reef.store.contract import Buffer, Pending

GROUP_BYTES = 1024 * 1024
GROUP_ROWS = 8192
_ZEROS = bytes(8)
_GROUPS_AHEAD = 4
_NO_BLOCK = EncodedBlock([], 0, 0)

Start = Callable[[Callable[[], EncodedGroup]], Pending[EncodedGroup]]
"""Begins a call and returns what to wait for."""


class _Column:
    """What the index will say of one column, a value a group so far."""

    def __init__(self, groups: int) -> None:
        self.lengths = [0] * groups
        self.crcs = [0] * groups
        self.facts = ColumnFacts([None] * groups, [None] * groups, [0] * groups, [0] * groups)

    def add(self, block: EncodedBlock) -> None:
        self.lengths.append(block.length)
        self.crcs.append(block.crc)
        self.facts.minimum.append(block.bounds[0])
        self.facts.maximum.append(block.bounds[1])
        self.facts.valid.append(block.valid)
        self.facts.nulls.append(block.nulls)


class SegmentWriter:
    """Takes batches in id order and encodes a row group whenever one is full.

    Memory is bounded by the bytes encoded so far, a few groups, and 8 bytes a row. With `after`,
    the first id must come after that one. With `start`, groups are encoded by whatever that
    runs calls on, a few at a time; what comes out is the same.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        group_bytes: int = GROUP_BYTES,
        compression_level: int = 1,
        after: str | int | None = None,
        start: Start | None = None,
    ) -> None:
        self.schema = schema
        self._start = start
        self._under_way: deque[tuple[int, Pending[EncodedGroup]]] = deque()
        self.rows = 0
        self._finished = False
        self._group_bytes = max(1, group_bytes)
        self._level = compression_level
        self._pending: deque[pa.RecordBatch] = deque()
        self._pending_rows = 0
        self._pending_bytes = 0
        head = encode_head(schema.format)
        self._parts: list[Buffer] = [head]
        self._encoded = HEAD.size
        self._checksum = crc32c(head)
        self._hashes: list[np.ndarray] = []
        self.last = after
        self._known_schema: pa.Schema | None = None
        self._keys = _Column(0)
        self._columns: dict[str, _Column] = {}
        self._record = IndexRecord([], [], [], [], [], [], [], [], b"", b"", msgspec.Raw())

    @property
    def size(self) -> int:
        """Bytes encoded so far, those waiting as they are in memory, and the id filter to come."""
        filter_bytes = 0 if self._finished else self.rows * BITS_PER_ID // 8
        under_way = sum(size for size, _ in self._under_way)
        return self._encoded + self._pending_bytes + under_way + filter_bytes

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows whose ids ascend and come after all before; `InvalidInput` otherwise."""
        if not batch.num_rows:
            return
        batch = self._checked(batch)
        self.rows += batch.num_rows
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._group_bytes or self._pending_rows >= GROUP_ROWS:
            self._cut(everything=False)

    def finish(
        self,
        *,
        id: str,
        birth: int,
        run: str,
        level: int,
    ) -> tuple[list[Buffer], SegmentInfo]:
        """The parts to be written as one object, and what a manifest says of it."""
        if not self.rows:
            raise InvalidInput("a segment needs at least one row")
        self._cut(everything=True)
        while self._under_way:
            self._take_in(self._under_way.popleft()[1].result())
        self._finished = True
        record, data_end = self._record, self._encoded
        record.columns = list(self._columns)
        table = [self._keys, *self._columns.values()]
        record.lengths = np.array([c.lengths for c in table], "<u4").T.tobytes()
        record.crcs = np.array([c.crcs for c in table], "<u4").T.tobytes()
        record.facts = msgspec.Raw(
            msgspec.msgpack.encode([column.facts for column in self._columns.values()])
        )
        filter_bytes = build_filter(np.concatenate(self._hashes))
        index_bytes, raw = encode_index(record)
        index_at = data_end + len(filter_bytes)
        footer = Footer(
            id=id,
            birth=birth,
            run=run,
            level=level,
            rows=self.rows,
            tombstones=sum(record.tombstones),
            min_id=record.first[0],
            max_id=record.last[-1],
            min_lsn=min(record.min_lsn),
            max_lsn=max(record.max_lsn),
            data_end=data_end,
            filter=Section(data_end, len(filter_bytes), 0, crc32c(filter_bytes)),
            index=Section(index_at, len(index_bytes), raw, crc32c(index_bytes)),
            schema=self.schema.to_dict(),
        )
        for part in (filter_bytes, index_bytes, encode_footer(footer, self.schema.format)):
            self._emit(part)
        return self._parts, footer.describe(self._encoded, self._checksum)

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = batch.schema
        if self._known_schema is None or not schema.equals(self._known_schema):
            batch = self._lifted(batch)
            self._check_schema(batch.schema)
            if batch.schema is schema:
                self._known_schema = schema
        ids = batch.column(ID)
        if ids.null_count:
            raise InvalidInput("a row without an id cannot go into a segment")
        first, last = ids[0].as_py(), ids[-1].as_py()
        if self.last is not None and not self.last < first:
            raise InvalidInput(f"id {first!r} does not come after id {self.last!r}")
        if len(ids) > 1:
            if pa.types.is_uint64(ids.type):
                numbers = np.asarray(ids)
                ascending = bool(np.all(numbers[:-1] < numbers[1:]))
            else:
                ascending = pc.all(pc.less(ids[:-1], ids[1:])).as_py()
            if not ascending:
                raise InvalidInput(f"the ids between {first!r} and {last!r} do not ascend")
        self.last = last
        return batch

    def _lifted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with columns of types that were not known yet as the schema has them now."""
        fields = [
            field_of(name, self.schema.attributes[name])
            for name in attributes_of(batch)
            if name in self.schema.attributes
        ]
        return lifted_batch(batch, pa.schema(fields))

    def _check_schema(self, given: pa.Schema) -> None:
        for name, arrow in ((ID, self.schema.id_type), (LSN, pa.uint64()), (KIND, pa.uint8())):
            position = given.get_field_index(name)
            if position < 0 or not given.field(position).type.equals(arrow):
                raise InvalidInput(f"a batch of rows needs one column {name!r} of type {arrow}")
        attributes = self.schema.attributes
        seen: set[str] = set()
        for field in given:
            name = field.name
            if not is_attribute(name):
                continue
            kind = attributes.get(name)
            if kind is None:
                raise InvalidInput(f"column {name!r} is not in the schema")
            if name in seen or not field.type.equals(kind.arrow):
                raise InvalidInput(f"column {name!r} is not one column of type {kind}")
            seen.add(name)

    def _cut(self, *, everything: bool) -> None:
        """Encode full groups out of the waiting rows, and the rest too if asked."""
        while self._pending_rows:
            average = max(1, self._pending_bytes // self._pending_rows)
            usual = min(GROUP_ROWS, max(1, self._group_bytes // average))
            if self._pending_rows < usual and not everything:
                return
            count = min(usual, self._pending_rows)
            pieces = self._first_rows(count)
            size = bytes_together(pieces)
            while count > 1 and size > 2 * self._group_bytes:
                self._pending.extendleft(reversed(pieces))
                count = (count + 1) // 2
                pieces = self._first_rows(count)
                size = bytes_together(pieces)
            self._pending_rows -= count
            self._pending_bytes = max(0, self._pending_bytes - size)
            # Copied only where they come from several batches.
            self._encode(concat(pieces))

    def _first_rows(self, count: int) -> list[pa.RecordBatch]:
        """That many of the waiting rows."""
        pieces: list[pa.RecordBatch] = []
        while count:
            batch = self._pending.popleft()
            if batch.num_rows > count:
                self._pending.appendleft(batch.slice(count))
                batch = batch.slice(0, count)
            pieces.append(batch)
            count -= batch.num_rows
        return pieces

    def _encode(self, group: pa.RecordBatch) -> None:
        """Encode a group, elsewhere if there is an elsewhere, and take in those that are done."""
        call = partial(encode_group, group, self.schema, self._level)
        if self._start is None:
            self._take_in(call())
            return
        self._under_way.append((group.nbytes, self._start(call)))
        while len(self._under_way) > _GROUPS_AHEAD:
            self._take_in(self._under_way.popleft()[1].result())

    def _take_in(self, group: EncodedGroup) -> None:
        record, count = self._record, len(self._record.first)
        record.first.append(group.first)
        record.last.append(group.last)
        record.rows.append(group.rows)
        record.tombstones.append(group.tombstones)
        record.min_lsn.append(group.min_lsn)
        record.max_lsn.append(group.max_lsn)
        record.offset.append(self._encoded)
        self._hashes.append(group.hashes)
        self._keys.add(group.keys)
        buffers = _padded(group.keys)
        for name, block in group.columns.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(count)
            column.add(block)
        if not count:
            # Small columns lie next to the keys, so that reading a few of them is one request.
            by_size = sorted(self._columns, key=lambda name: self._columns[name].lengths[0])
            self._columns = {name: self._columns[name] for name in by_size}
        for name, column in self._columns.items():
            if name in group.columns:
                buffers += _padded(group.columns[name])
            else:
                column.add(_NO_BLOCK)
        for part in buffers:
            self._emit(part)

    def _emit(self, part: Buffer) -> None:
        self._parts.append(part)
        self._encoded += len(part)
        self._checksum = crc32c(part, self._checksum)


def _padded(block: EncodedBlock) -> list[Buffer]:
    rest = padding(block.length)
    return [*block.parts, _ZEROS[:rest]] if rest else block.parts

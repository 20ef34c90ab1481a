"""The unfolded log as a state: what the entries above the floor amount to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from reef.data.documents import is_json
from reef.data.plain import PlainRows, Types
from reef.data.rows import ID, is_attribute
from reef.data.schema import INTEGER_IDS, STRING_IDS, Schema
from reef.data.types import AttributeType, type_of_arrow
from reef.errors import Corruption, InvalidInput
from reef.log.codec import LogEntry
from reef.log.naming import WAL
from reef.lsm.memtable import Memtable
from reef.lsm.options import Options
from reef.lsm.records import Condemn, Drop, Ingest, Record, placed, records_of
from reef.segment.info import SegmentInfo


@dataclass(frozen=True, slots=True)
class Remembered:
    """An idempotency key that was used: in which slot, when, and what its caller was told."""

    lsn: int
    created_at: float
    receipt: dict[str, Any]


class Unfolded:
    """What the log above the floor says, applied entry by entry in slot order.

    One thread applies at a time. Readers may look at any moment: rows of one entry appear
    together, and `ingests` and `truncated_at` are replaced, never changed. So is `memtable`
    with each ingest: taken together with `ingests`, it holds nothing above an ingest not there.
    `shape` counts these replacements: a view made at another count is out of date.
    `dropped` are ingested segments that a truncation hides: the past still needs them. `dropped_at`
    is the slot with which the namespace ended, 0 as long as it is there.
    """

    def __init__(self, floor: int, schema: Schema, orphan_floor: int) -> None:
        self.memtable = Memtable()
        self.ingests: tuple[SegmentInfo, ...] = ()
        self.dropped: tuple[SegmentInfo, ...] = ()
        self.truncated_at = 0
        self.dropped_at = 0
        self.shape = 0
        self.keys: dict[str, Remembered] = {}
        self.schema = schema
        self.epoch = 0
        self.orphan_floor = orphan_floor
        self.floor = floor
        self.next_lsn = floor
        self.objects = 0
        self.nbytes = 0
        self._sizes: dict[int, int] = {}
        self._last_schema: pa.Schema | None = None
        self._last_types: Types | None = None

    def apply(self, entry: LogEntry, records: list[Record] | None = None) -> None:
        """Take the entry of the next slot in."""
        header = entry.header
        if header.lsn < self.next_lsn:
            raise Corruption(WAL.key(header.lsn), f"slot {self.next_lsn} was expected")
        if header.epoch < self.epoch and not header.guest:
            raise Corruption(
                WAL.key(header.lsn),
                f"it has writer epoch {header.epoch}, below {self.epoch} of an earlier slot",
            )
        if records is None:
            records = records_of(entry)
        try:
            for record in records:
                self._apply_record(header.lsn, record)
        except InvalidInput as error:
            # It was admitted when it was written.
            raise Corruption(WAL.key(header.lsn), f"a record does not fit ({error})") from None
        for batch in header.batches:
            if batch.key is not None:
                self.keys[batch.key] = Remembered(
                    header.lsn, header.created_at, batch.receipt or {}
                )
        self.epoch = max(self.epoch, header.epoch)
        self.next_lsn = header.lsn + 1
        self.objects += 1
        self.nbytes += entry.size
        self._sizes[header.lsn] = entry.size

    def _apply_record(self, lsn: int, record: Record) -> None:
        if isinstance(record, Ingest):
            segments = placed(record, lsn)
            added = Schema.from_dict(record.schema)
            self.schema = self.schema.extended(added.attributes, added.id_kind)
            if record.truncate or segments:
                self.shape += 1
            if record.truncate:
                self.truncated_at = lsn
                self.memtable = Memtable()
                self.dropped = (*self.dropped, *self.ingests)
                self.ingests = segments
            elif segments:
                # Rows above the load go into a memtable of their own: a view without the load
                # must not see them.
                self.memtable = self.memtable.after(0)
                self.ingests = (*self.ingests, *segments)
        elif isinstance(record, Condemn):
            self.orphan_floor = max(self.orphan_floor, record.orphan_floor)
        elif isinstance(record, Drop):
            self.orphan_floor = max(self.orphan_floor, record.orphan_floor)
            self.truncated_at = self.dropped_at = lsn
            self.memtable = Memtable()
            self.dropped = (*self.dropped, *self.ingests)
            self.ingests = ()
            self.keys = {}
            self.shape += 1
        elif isinstance(record, PlainRows):
            types = record.types
            if types is not self._last_types:
                self.schema = self.schema.extended(types.attributes, types.id_kind)
                self._last_types = types
            self.memtable.add(lsn, record)
        else:
            last = self._last_schema
            if last is None or not last.equals(record.schema, check_metadata=True):
                self.schema = self.schema.extended(*schema_of(record))
                self._last_schema = record.schema
            self.memtable.add(lsn, record)

    @property
    def named(self) -> tuple[SegmentInfo, ...]:
        """Every segment that ingest records of the unfolded log name."""
        return (*self.ingests, *self.dropped)

    def wants_folding(self, options: Options) -> bool:
        """Whether there is enough of it to be worth folding."""
        return (
            self.nbytes >= min(options.fold_bytes, options.backlog_bytes)
            or self.objects >= min(options.fold_objects, options.backlog_objects)
            or len(self.ingests) >= options.fold_segments
        )

    def last_within(self, limit: int) -> int | None:
        """The last slot to fold if at most `limit` bytes of log are to be folded, but one slot
        at least; None when there is no slot.

        Never a slot before a truncation: what was written before it is not held here any more.
        """
        last = None
        size = 0
        for slot, length in list(self._sizes.items()):
            size += length
            if last is not None and size > limit and last >= self.truncated_at:
                break
            last = slot
        return last

    def after(self, lsn: int, orphan_floor: int) -> Unfolded:
        """What is left when everything through `lsn` has been folded."""
        rest = Unfolded(lsn + 1, self.schema, max(orphan_floor, self.orphan_floor))
        rest.epoch = self.epoch
        rest.memtable = self.memtable.after(lsn)
        rest.ingests = tuple(info for info in self.ingests if info.lsn > lsn)
        rest.dropped = tuple(info for info in self.dropped if info.lsn > lsn)
        rest.truncated_at = self.truncated_at if self.truncated_at > lsn else 0
        rest.dropped_at = self.dropped_at if self.dropped_at > lsn else 0
        rest.keys = {key: use for key, use in self.keys.items() if use.lsn > lsn}
        rest.next_lsn = max(self.next_lsn, lsn + 1)
        rest._sizes = {slot: size for slot, size in self._sizes.items() if slot > lsn}
        rest.objects = len(rest._sizes)
        rest.nbytes = sum(rest._sizes.values())
        return rest


def schema_of(batch: pa.RecordBatch) -> tuple[dict[str, AttributeType], str]:
    """The attribute types and the kind of ids of a batch of rows."""
    # Not cached by the schema: Arrow's are equal, whatever their metadata say, and those tell json
    # from text.
    schema = batch.schema
    attributes: dict[str, AttributeType] = {}
    for field in schema:
        if not is_attribute(field.name):
            continue
        kind = type_of_arrow(field.type, json=is_json(field))
        if kind is None:
            raise ValueError(f"a column of type {field.type}")
        attributes[field.name] = kind
    id_kind = INTEGER_IDS if pa.types.is_uint64(schema.field(ID).type) else STRING_IDS
    return attributes, id_kind

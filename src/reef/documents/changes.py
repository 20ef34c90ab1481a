"""The log as a feed of changes: one by one, or in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.documents import documents_of
from reef.data.measure import chunks
from reef.data.plain import PlainRows, Rows, as_batch
from reef.data.rows import DELETE, ID, KIND, LSN, LSN_FIELD, PATCH, concat, lsns_of, with_lsn
from reef.errors import InvalidInput, NamespaceDropped, ObjectNotFound, PastRetention
from reef.log import LogEntry, LogTail
from reef.log.tail import MissingSlot
from reef.lsm.gathered import Gathered
from reef.lsm.memtable import Memtable
from reef.lsm.read.merge import merge
from reef.lsm.read.view import runs_of
from reef.lsm.records import Condemn, Drop, Ingest, is_drop, placed, records_of
from reef.lsm.retention.reachability import first_retained_slot
from reef.lsm.tree import Tree
from reef.segment import SegmentInfo

_NAMES = {0: "upsert", DELETE: "delete", PATCH: "patch"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WINDOW_SLOTS = 1_024
_WINDOW_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Change:
    """One operation of the log. `document` holds what an upsert or a patch set; for a delete it
    is None. `kind` is "upsert", "patch", "delete", or "truncate" (everything before is gone)."""

    lsn: int
    kind: str
    id: str | int | None
    document: dict[str, Any] | None
    created_at: datetime


@dataclass(frozen=True)
class ChangeBatch:
    """Operations of neighbouring slots, in the order of the log.

    `rows` are row batches with their LSNs, which hold an id at most once for each LSN; None is a
    truncation. `moments` say when each row was committed, in microseconds since 1970.
    """

    lsn: int
    rows: pa.RecordBatch | None
    moments: np.ndarray


def entries_between(tree: Tree, after: int, through: int | None = None) -> Iterator[LogEntry]:
    """The log's entries above slot `after`, in order, to slot `through` or the end of the log; from
    the first slot of the namespace on if `after` is 0.

    `PastRetention` if some of them were collected already, or are of a namespace of the same name
    that was dropped; `NamespaceNotFound` where this one was.
    """
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise InvalidInput(f"changes are read after an LSN, a number from 0 on, not {after!r}")
    head = tree.register.head()
    manifest = head.manifest
    tree.check_root(manifest)
    after = after or manifest.life.lsn - 1
    if after + 1 < first_retained_slot(manifest):
        raise _collected(after)
    # What a feed has told it cannot take back, be it given up later.
    tail = LogTail(tree.log, after + 1, through, takes_back=False)
    try:
        for entry in tail:
            confirmed = tree.confirmed(head, entry.lsn)
            if confirmed is None:
                raise _collected(after)
            head = confirmed
            if is_drop(entry):
                raise NamespaceDropped(tree.name, entry.lsn)
            yield entry
    except (MissingSlot, ObjectNotFound):
        raise _collected(after) from None
    if tail.next_lsn < (manifest.wal_floor if through is None else through + 1):
        raise _collected(after)


def change_batches(tree: Tree, after: int) -> Iterator[tuple[LogEntry, pa.RecordBatch | None]]:
    """The log's operations above slot `after`, in order, as row batches; None for a truncation.

    `PastRetention` if some of them were collected already.
    """
    try:
        for entry in entries_between(tree, after):
            for record in records_of(entry):
                if isinstance(record, Condemn | Drop):
                    continue
                if not isinstance(record, Ingest):
                    yield entry, with_lsn(as_batch(record), entry.lsn)
                    continue
                if record.truncate:
                    yield entry, None
                for run in runs_of(placed(record, entry.lsn), tree.reader_of):
                    for batch in run.rows():
                        yield entry, batch
    except ObjectNotFound:
        raise _collected(after) from None


def _collected(after: int) -> PastRetention:
    return PastRetention(f"the log after LSN {after} is no longer retained as a whole")


def changes(tree: Tree, after: int) -> Iterator[Change]:
    """The log's operations above slot `after`, one by one."""
    for entry, batch in change_batches(tree, after):
        moment = datetime.fromtimestamp(entry.header.created_at, UTC)
        if batch is None:
            yield Change(entry.lsn, "truncate", None, None, moment)
            continue
        step = max(1, batch.num_rows * _WINDOW_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            some = batch.slice(start, step)
            kinds = some.column(KIND).to_pylist()
            for kind, document in zip(kinds, documents_of(some), strict=True):
                yield Change(
                    entry.lsn,
                    _NAMES[kind],
                    cast("str | int", document["id"]),
                    None if kind == DELETE else document,
                    moment,
                )


def microseconds(created_at: float) -> int:
    """A recorded time in whole microseconds since 1970, rounded as `Change.created_at` is."""
    return (datetime.fromtimestamp(created_at, UTC) - _EPOCH) // _MICROSECOND


def changes_between(
    tree: Tree, after: int, through: int, columns: Sequence[str] | None = None
) -> Iterator[ChangeBatch]:
    """The operations of the slots above `after` through `through`, in bulk.

    Of several operations of one slot on one id only what they come to is shown: the slot is
    atomic, so nobody ever saw another state. Of ingested segments only `columns` are fetched, if
    given. `PastRetention` if some of it was collected already.
    """
    window = _Window()
    for entry in entries_between(tree, after, through):
        created = microseconds(entry.header.created_at)
        for record in records_of(entry):
            if isinstance(record, Condemn | Drop):
                continue
            if not isinstance(record, Ingest):
                window.add(entry.lsn, created, one_of_each(record), entry.size)
                continue
            yield from window.flush()
            yield from ingested(
                tree, placed(record, entry.lsn), entry.lsn, created, record.truncate, columns
            )
        if window.is_full:
            yield from window.flush()
    yield from window.flush()


def ingested(
    tree: Tree,
    segments: Sequence[SegmentInfo],
    lsn: int,
    created: int,
    truncate: bool,
    columns: Sequence[str] | None = None,
) -> Iterator[ChangeBatch]:
    """The operations of an ingest record, or of some of its segments, placed in its slot."""
    if truncate:
        yield ChangeBatch(lsn, None, np.array([created], np.int64))
    try:
        for info in sorted(segments, key=lambda info: info.min_id):
            reader = tree.reader_of(info)
            for batch in reader.read(list(reader.groups()), columns):
                yield ChangeBatch(lsn, batch, np.full(batch.num_rows, created, np.int64))
    except ObjectNotFound:
        raise PastRetention(f"segments that LSN {lsn} brought in are no longer retained") from None


class _Window:
    """Rows of some slots on their way to become one batch: small ones cost more than they hold."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._rows = Memtable()
        self._created: dict[int, int] = {}
        self._bytes = 0

    def add(self, lsn: int, created: int, rows: Rows, size: int) -> None:
        self._rows.add(lsn, rows)
        self._created[lsn] = created
        self._bytes += size

    @property
    def is_full(self) -> bool:
        return self._bytes >= _WINDOW_BYTES or len(self._created) >= _WINDOW_SLOTS

    def flush(self) -> Iterator[ChangeBatch]:
        pieces = self._rows.batches()
        if pieces:
            slots = np.fromiter(self._created, np.uint64, len(self._created))
            created = np.fromiter(self._created.values(), np.int64, len(self._created))
            placed = [batch.add_column(1, LSN_FIELD, pa.array(lsns)) for lsns, batch in pieces]
            for some in chunks(placed, 8 * _WINDOW_BYTES):
                rows = concat(some)
                lsns = lsns_of(rows)
                moments = created[np.searchsorted(slots, lsns)]
                yield ChangeBatch(int(lsns[-1]), rows, moments)
        self._start()


def one_of_each(rows: Rows) -> Rows:
    """What the operations of one slot come to: each id once. The same rows if they are that."""
    if len(rows) < 2:
        return rows
    if isinstance(rows, PlainRows):
        if len(set(rows.ids())) == len(rows):
            return rows
    elif pc.count_distinct(rows.column(ID)).as_py() == len(rows):
        return rows
    batch = as_batch(rows)
    ids = batch.column(ID)
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    # A patch comes after another of its id only if a document or a tombstone is among them: a
    # batch that reads what a neighbour writes is given a slot of its own.
    based = ids.filter(pc.not_equal(batch.column(KIND), PATCH))
    several = pc.and_(pc.is_in(ids, repeated), pc.is_in(ids, based))
    merged = merge([Gathered([(0, batch.filter(several))]).slices()], keep_tombstones=True)
    return concat(
        [batch.filter(pc.invert(several)), *(rows.drop_columns([LSN]) for rows in merged)]
    )

"""The log as a feed of changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa

from reef.data.documents import documents_of
from reef.data.plain import as_batch
from reef.data.rows import DELETE, KIND, PATCH, with_lsn
from reef.errors import InvalidInput, ObjectNotFound, PastRetention
from reef.log import LogEntry, LogTail
from reef.log.tail import MissingSlot
from reef.lsm.reachability import first_retained_slot
from reef.lsm.records import Condemn, Ingest, placed, records_of
from reef.lsm.tree import Tree
from reef.lsm.view import runs_of

_NAMES = {0: "upsert", DELETE: "delete", PATCH: "patch"}


@dataclass(frozen=True)
class Change:
    """One operation of the log. `document` holds what an upsert or a patch set; for a delete it
    is None. `kind` is "upsert", "patch", "delete", or "truncate" (everything before is gone)."""

    lsn: int
    kind: str
    id: str | int | None
    document: dict[str, Any] | None
    created_at: datetime


def change_batches(tree: Tree, after: int) -> Iterator[tuple[LogEntry, pa.RecordBatch | None]]:
    """The log's operations above slot `after`, in order, as row batches; None for a truncation.

    `PastRetention` if some of them were collected already.
    """
    if not isinstance(after, int) or isinstance(after, bool) or after < 0:
        raise InvalidInput(f"changes are read after an LSN, a number from 0 on, not {after!r}")
    head = tree.register.head()
    manifest = head.manifest
    if after + 1 < first_retained_slot(manifest):
        raise _collected(after)
    tail = LogTail(tree.log, after + 1)
    try:
        for entry in tail:
            confirmed = tree.confirmed(head, entry.lsn)
            if confirmed is None:
                raise _collected(after)
            head = confirmed
            for record in records_of(entry):
                if isinstance(record, Condemn):
                    continue
                if not isinstance(record, Ingest):
                    yield entry, with_lsn(as_batch(record), entry.lsn)
                    continue
                if record.truncate:
                    yield entry, None
                for run in runs_of(placed(record, entry.lsn), tree.reader_of):
                    for batch in run.rows():
                        yield entry, batch
    except (MissingSlot, ObjectNotFound):
        raise _collected(after) from None
    if tail.next_lsn < manifest.wal_floor:
        raise _collected(after)


def _collected(after: int) -> PastRetention:
    return PastRetention(f"the log after LSN {after} is no longer retained as a whole")


def changes(tree: Tree, after: int) -> Iterator[Change]:
    """The log's operations above slot `after`, one by one."""
    for entry, batch in change_batches(tree, after):
        moment = datetime.fromtimestamp(entry.header.created_at, UTC)
        if batch is None:
            yield Change(entry.lsn, "truncate", None, None, moment)
            continue
        kinds = batch.column(KIND).to_pylist()
        for kind, document in zip(kinds, documents_of(batch), strict=True):
            yield Change(
                entry.lsn,
                _NAMES[kind],
                cast("str | int", document["id"]),
                None if kind == DELETE else document,
                moment,
            )

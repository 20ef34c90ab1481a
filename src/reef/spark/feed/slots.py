"""Looking at the log from the driver: where it ends and begins, and what its slots hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reef.documents.changes import microseconds
from reef.errors import Corruption, ObjectNotFound
from reef.log import LogHeader
from reef.log.codec import decode_front
from reef.lsm.records import Ingest, names_segments, records_of
from reef.lsm.tree import Tree
from reef.manifest.register import Head
from reef.spark.feed.plan import Slot

_FRONT = 16 * 1024
_WINDOW = 64


def newest_slot(tree: Tree, known: int = 0) -> tuple[Head, int]:
    """The root, and the last slot that is committed.

    A last object that is damaged was never committed, as for everybody who reads the log. It is
    looked at if it is above `known`.
    """
    while True:
        head = tree.register.head()
        last = before = head.manifest.wal_floor - 1
        for lsn, _ in tree.log.list(head.manifest.wal_floor):
            last, before = lsn, last
        if last <= known or last < head.manifest.wal_floor:
            return head, last
        try:
            tree.log.read(last)
        except Corruption:
            return head, before
        except ObjectNotFound:
            # Folded and collected between the root and here: there is a newer root.
            continue
        return head, last


def slots_between(tree: Tree, first: int, last: int) -> Iterator[Slot]:
    """Every slot from `first` through `last`, a small request each, in parallel."""
    window: list[tuple[int, int | None]] = []
    for lsn, size in _sizes(tree, first, last):
        window.append((lsn, size))
        if len(window) == _WINDOW:
            yield from _looked_at(tree, window)
            window = []
    yield from _looked_at(tree, window)


def first_since(tree: Tree, first: int, last: int, moment: int) -> int:
    """The first of these slots that was committed at that moment (in microseconds since 1970) or
    later, by the clocks of writers, taken as ascending; `last + 1` if none was."""
    low, high = first, last + 1
    while low < high:
        middle = (low + high) // 2
        created = next(
            (
                slot.created
                for lsn in range(middle, high)
                if (slot := _slot(tree, lsn, None)).is_known
            ),
            None,
        )
        if created is None or created >= moment:
            high = middle
        else:
            low = middle + 1
    return low


def _sizes(tree: Tree, first: int, last: int) -> Iterator[tuple[int, int | None]]:
    """Slots and the sizes of their objects. A listing may lack a slot that is there, if it was
    written while the listing was made."""
    expected = first
    for lsn, info in tree.log.list(first):
        for missing in range(expected, min(lsn, last + 1)):
            yield missing, None
        if lsn > last:
            return
        yield lsn, info.size
        expected = lsn + 1
    for missing in range(expected, last + 1):
        yield missing, None


def _looked_at(tree: Tree, window: list[tuple[int, int | None]]) -> list[Slot]:
    return tree.store.concurrently([partial(_slot, tree, lsn, size) for lsn, size in window])


def _slot(tree: Tree, lsn: int, size: int | None) -> Slot:
    try:
        key = tree.log.key(lsn)
        if size is not None and size > _FRONT:
            front = decode_front(key, tree.store.get_range(key, 0, _FRONT))
            if front is not None and front[0].lsn == lsn and not names_segments(front[1]):
                return _of_rows(front[0], size)
        entry = tree.log.read(lsn)
        header = entry.header
        if len(entry.records) != 1 or not names_segments(entry.records[0]):
            return _of_rows(header, entry.size, holds_rows=len(entry.records) > 0)
        (ingest,) = records_of(entry)
    except (Corruption, ObjectNotFound):
        return Slot(lsn, size or 0, is_known=False)
    assert isinstance(ingest, Ingest)
    tombstones = sum(info.tombstones for info in ingest.segments)
    return Slot(
        lsn,
        entry.size,
        microseconds(header.created_at),
        sum(info.rows for info in ingest.segments) + ingest.truncate,
        tombstones + ingest.truncate,
        ingest,
    )


def _of_rows(header: LogHeader, size: int, *, holds_rows: bool = True) -> Slot:
    receipts = [batch.receipt or {} for batch in header.batches]
    return Slot(
        header.lsn,
        size,
        microseconds(header.created_at),
        sum(batch.operations for batch in header.batches) if holds_rows else 0,
        sum(receipt.get("patched", 0) + receipt.get("deleted", 0) for receipt in receipts),
    )

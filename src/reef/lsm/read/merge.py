"""The newest-wins merge: many sorted sources into one, a window of ids at a time.

A source is an iterator of row batches sorted by id. Within a source an id may come in several
versions, newest first, if those above the last are patches, and one batch holds all of them. A
window is the range of ids up to the smallest last id that any source has in hand; the rows of a
window are concatenated, sorted and resolved together, so memory holds one stretch of each source
and no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from reef.data.rows import (
    DELETE,
    ID,
    KIND,
    NULL_FLAG,
    PATCH,
    UPSERT,
    concat,
    is_attribute,
    kinds_of,
    lsns_of,
    present,
)
from reef.lsm.order import find_sorted, is_contiguous, is_increasing, newest_first

WINDOW_ROWS = 32_768


def merge(
    sources: Sequence[Iterable[pa.RecordBatch]],
    *,
    keep_tombstones: bool = False,
    reverse: bool = False,
    window_rows: int = WINDOW_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Each id's newest version with its patches applied, in id order, deleted ones left out.

    With `keep_tombstones` a deleted id comes as its tombstone, and patches that found no
    document to change come as nothing. Batches may come without some attributes.
    """
    cursors = [_Cursor(iter(source), reverse, window_rows) for source in sources]
    cursors = [cursor for cursor in cursors if cursor.fill()]
    while len(cursors) > 1:
        bound = (max if reverse else min)(cursor.far_bound() for cursor in cursors)
        pieces = [piece for cursor in cursors for piece in cursor.take(bound)]
        resolved = resolve(pieces, keep_tombstones)
        if resolved.num_rows:
            yield _reversed(resolved) if reverse else resolved
        cursors = [cursor for cursor in cursors if cursor.fill()]
    for cursor in cursors:
        for batch in cursor.rest():
            resolved = _resolve_alone(batch, keep_tombstones)
            if resolved.num_rows:
                yield _reversed(resolved) if reverse else resolved


def _resolve_alone(batch: pa.RecordBatch, keep_tombstones: bool) -> pa.RecordBatch:
    """Rows of one source, where an id has several versions only if a patch is on top of them."""
    kinds = kinds_of(batch)
    highest = int(kinds.max())
    if highest == PATCH:
        return resolve([batch], keep_tombstones)
    if keep_tombstones or highest == UPSERT:
        return batch
    return _take(batch, np.flatnonzero(kinds != DELETE))


def resolve(pieces: Sequence[pa.RecordBatch], keep_tombstones: bool) -> pa.RecordBatch:
    """All versions of a range of ids into one row for each id that is left.

    They come in any order, but for versions of one LSN: among them the newest is first.
    """
    rows = concat(pieces)
    kinds = kinds_of(rows)
    has_patches = bool((kinds == PATCH).any())
    in_order = len(pieces) == 1 or _disjoint(pieces)
    if in_order and not has_patches and is_increasing(rows.column(ID)):
        if keep_tombstones or not bool((kinds == DELETE).any()):
            return rows
        return _take(rows, np.flatnonzero(kinds != DELETE))
    order, starts = newest_first(rows.column(ID), lsns_of(rows), log_order=False)
    if has_patches:
        return _resolve_patches(rows, kinds, order, starts, keep_tombstones)
    winners = order[starts]
    if not keep_tombstones:
        winners = winners[kinds[winners] != DELETE]
    return _take(rows, winners)


def _disjoint(pieces: Sequence[pa.RecordBatch]) -> bool:
    return all(
        before.column(ID)[-1].as_py() < after.column(ID)[0].as_py()
        for before, after in pairwise(pieces)
    )


def _take(rows: pa.RecordBatch, picked: np.ndarray) -> pa.RecordBatch:
    if len(picked) == 0:
        return rows.slice(0, 0)
    if is_contiguous(picked):
        return rows.slice(int(picked[0]), len(picked))
    return rows.take(pa.array(picked))


def _resolve_patches(
    rows: pa.RecordBatch,
    kinds: np.ndarray,
    order: np.ndarray,
    starts: np.ndarray,
    keep_tombstones: bool,
) -> pa.RecordBatch:
    """Patches above a document change it; patches above a tombstone or nothing are lost."""
    number = np.cumsum(starts) - 1
    ordered_kinds = kinds[order]
    count = int(number[-1]) + 1 if len(number) else 0
    places = np.arange(len(order))
    # The base of an id is its newest version that is no patch.
    solid = places[ordered_kinds != PATCH]
    base = np.full(count, len(order), dtype=np.int64)
    np.minimum.at(base, number[solid], solid)
    based = base < len(order)
    base_kinds = np.full(count, DELETE, dtype=np.uint8)
    base_kinds[based] = ordered_kinds[base[based]]
    first = places[starts]
    keep = base_kinds == UPSERT
    if keep_tombstones:
        keep = keep | (based & (base_kinds == DELETE))
    kept = np.flatnonzero(keep)
    base_rows = order[base[kept]]
    # A tombstone stands with its own LSN; a patched document takes that of its newest patch.
    newest_rows = np.where(base_kinds[kept] == DELETE, base_rows, order[first[kept]])
    live = places <= base[number]
    columns: list[pa.Array] = []
    sources: dict[str, pa.Array] = {}
    for name in rows.schema.names:
        values = rows.column(name)
        if name in (ID, KIND):
            columns.append(values.take(pa.array(base_rows)))
        elif not is_attribute(name) and not name.startswith(NULL_FLAG):
            columns.append(values.take(pa.array(newest_rows)))
        else:
            attribute = name.removeprefix(NULL_FLAG)
            if attribute not in sources:
                sources[attribute] = _sources(
                    rows, attribute, order, number, live, base, count, kept
                )
            columns.append(values.take(sources[attribute]))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sources(
    rows: pa.RecordBatch,
    attribute: str,
    order: np.ndarray,
    number: np.ndarray,
    live: np.ndarray,
    base: np.ndarray,
    count: int,
    kept: np.ndarray,
) -> pa.Array:
    """For each id kept, the row that an attribute's value comes from: the newest that set it."""
    flags = present(rows, attribute)
    chosen = np.minimum(base, len(order) - 1)
    if flags is not None:
        setters = np.flatnonzero(flags.to_numpy(zero_copy_only=False)[order] & live)
        newest = np.full(count, len(order), dtype=np.int64)
        np.minimum.at(newest, number[setters], setters)
        chosen = np.where(newest < len(order), newest, chosen)
    return pa.array(order[chosen[kept]])


def _reversed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))


class _Cursor:
    """A stretch of one source: whole batches, about `rows` rows when there are as many."""

    def __init__(self, source: Iterator[pa.RecordBatch], reverse: bool, rows: int) -> None:
        self._source = source
        self._reverse = reverse
        self._rows = rows
        self._held: deque[pa.RecordBatch] = deque()
        self._count = 0

    def fill(self) -> bool:
        """Have rows in hand; False when the source has no more."""
        while self._count < max(1, self._rows // 4):
            batch = next(self._source, None)
            if batch is None:
                break
            if batch.num_rows:
                self._held.append(batch)
                self._count += batch.num_rows
        return bool(self._held)

    def far_bound(self) -> str | int:
        """The last id in hand in the direction of the merge."""
        ids = self._held[-1].column(ID)
        bound: str | int = ids[0 if self._reverse else len(ids) - 1].as_py()
        return bound

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is in hand, and whatever the source still has, batch by batch, without a copy."""
        yield from self._held
        for batch in self._source:
            if batch.num_rows:
                yield batch

    def take(self, bound: str | int) -> list[pa.RecordBatch]:
        """The rows on this side of the bound, the bound included, in id order."""
        taken: list[pa.RecordBatch] = []
        while self._held:
            batch = self._held[0]
            place = find_sorted(batch.column(ID), bound, after=not self._reverse)
            near, far = batch.slice(0, place), batch.slice(place)
            if self._reverse:
                near, far = far, near
            if near.num_rows:
                taken.append(near)
                self._count -= near.num_rows
            if far.num_rows:
                self._held[0] = far
                break
            self._held.popleft()
        return taken[::-1] if self._reverse else taken

"""The newest-wins merge: many sorted sources into one, a window of ids at a time.

A source is an iterator of row batches sorted by id. Within a source an id may come in several
versions, newest first, if those above the last are patches, and one batch holds all of them, or,
where they are large, one list of batches. A window is the range of ids up to the smallest last id
that any source has in hand; the rows of a window are put together, sorted and resolved, so memory
holds one stretch of each source and no more. Windows are bounded in rows and in bytes; only the
versions of one id can be more, and then they are not put together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from reef.data.measure import Measure
from reef.data.rows import DELETE, ID, PATCH, concat, kinds_of
from reef.lsm.gathered import Slice
from reef.lsm.order import find_sorted, is_increasing, newest_first
from reef.lsm.pieces import Pieces, take_rows
from reef.lsm.read.combine import Combiner, Versions, apply_patches

WINDOW_ROWS = 32_768
WINDOW_BYTES = 32 * 1024 * 1024
_SHARES = 4
_FIRST_ROWS = 64
_GROWTH = 4

Source: TypeAlias = Iterable[Slice]
RowFilter = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Leaves out sorted rows that need not be shown or kept."""


def merge(
    sources: Sequence[Source],
    *,
    keep_tombstones: bool = False,
    reverse: bool = False,
    combine: Combiner = apply_patches,
    filters: Sequence[RowFilter] = (),
    window_rows: int = WINDOW_ROWS,
    window_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Each id's newest version with its patches applied, in id order, deleted ones left out.

    With `keep_tombstones` a deleted id comes as its tombstone, and patches that found no
    document to change come as nothing. Batches may come without some attributes. `combine`
    decides what versions come to where there are patches, and rows that one of the `filters`
    drops are left out.
    """
    limit = WINDOW_BYTES if window_bytes is None else window_bytes
    resolving = _Resolving(keep_tombstones, reverse, combine, filters, limit)
    if len(sources) == 1:
        for stretch in _stretches(sources[0], reverse):
            yield from resolving.alone(stretch)
        return
    measure = resolving.measure
    share = limit // max(_SHARES, len(sources))
    cursors = [_Cursor(iter(source), reverse, share, measure) for source in sources]
    # The first windows are small: whoever takes only a few rows does not wait for many.
    rows = min(_FIRST_ROWS, window_rows // _SHARES)
    cursors = [cursor for cursor in cursors if cursor.fill(rows)]
    while len(cursors) > 1:
        bound = (max if reverse else min)(cursor.far_bound() for cursor in cursors)
        held = sum(cursor.measured() for cursor in cursors)
        pieces = [piece for cursor in cursors for piece in cursor.take(bound)]
        if held <= limit:
            yield from resolving.together(pieces)
        else:
            yield from resolving.in_parts(pieces)
        rows = min(_GROWTH * rows, window_rows // _SHARES)
        cursors = [cursor for cursor in cursors if cursor.fill(rows)]
    for cursor in cursors:
        for stretch in cursor.rest():
            yield from resolving.alone(stretch)


def _stretches(source: Source, reverse: bool) -> Iterator[list[pa.RecordBatch]]:
    """The batches of a source in their order, those of one id's versions together by id order."""
    for found in source:
        if not isinstance(found, list):
            if found.num_rows:
                yield [found]
            continue
        stretch = [batch for batch in found if batch.num_rows]
        if stretch:
            yield stretch[::-1] if reverse else stretch


class _Resolving:
    """How the rows of a window become what a merge gives."""

    def __init__(
        self,
        keep_tombstones: bool,
        reverse: bool,
        combine: Combiner,
        filters: Sequence[RowFilter],
        limit: int,
    ) -> None:
        self.measure = Measure()
        self._keep_tombstones = keep_tombstones
        self._reverse = reverse
        self._combine = combine
        self._filters = filters
        self._limit = limit

    def alone(self, stretch: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of one source when there is no other: an id has several versions only if a patch
        is on top of them."""
        if len(stretch) > 1:
            return self.in_parts(stretch)
        batch = stretch[0]
        kinds = kinds_of(batch)
        highest = int(kinds.max())
        if highest == PATCH:
            return self.together(stretch)
        if highest == DELETE and not self._keep_tombstones:
            batch = take_rows(batch, np.flatnonzero(kinds != DELETE))
        return self._shown(batch)

    def together(self, pieces: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that can be put together."""
        return self._shown(resolve(pieces, self._keep_tombstones, self._combine))

    def in_parts(self, pieces: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of pieces that are each sorted by id, no more than the limit at a time."""
        sizes = list(map(self.measure.of, pieces))
        if sum(sizes) <= self._limit:
            yield from self.together(pieces)
            return
        parts = _halves(pieces, pieces[int(np.argmax(sizes))])
        if len(parts) == 1:
            rows = _resolve(Pieces(pieces), self._keep_tombstones, self._combine)
            yield from self._shown(rows)
            return
        for part in reversed(parts) if self._reverse else parts:
            yield from self.in_parts(part)

    def _shown(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for keep in self._filters:
            rows = keep(rows)
        if rows.num_rows:
            yield _reversed(rows) if self._reverse else rows


def _halves(
    pieces: Sequence[pa.RecordBatch], largest: pa.RecordBatch
) -> list[list[pa.RecordBatch]]:
    """The rows before and behind the middle of the largest piece; all if they have one id."""
    middle = largest.column(ID)[largest.num_rows // 2].as_py()
    for after in (False, True):
        near, far = [], []
        for piece in pieces:
            place = find_sorted(piece.column(ID), middle, after=after)
            near += [piece.slice(0, place)] if place else []
            far += [piece.slice(place)] if place < piece.num_rows else []
        if near and far:
            return [near, far]
    return [list(pieces)]


def resolve(
    pieces: Sequence[pa.RecordBatch],
    keep_tombstones: bool,
    combine: Combiner = apply_patches,
) -> pa.RecordBatch:
    """All versions of a range of ids into one row for each id that is left.

    They come in any order, but for versions of one LSN: among them the newest is first.
    """
    in_order = len(pieces) == 1 or _disjoint(pieces)
    return _resolve(Pieces([concat(pieces)]), keep_tombstones, combine, in_order)


def _resolve(
    rows: Pieces, keep_tombstones: bool, combine: Combiner, in_order: bool = False
) -> pa.RecordBatch:
    kinds, ids = rows.kinds, rows.ids
    has_patches = bool((kinds == PATCH).any())
    if in_order and not has_patches and is_increasing(ids):
        if keep_tombstones or not bool((kinds == DELETE).any()):
            return rows.batches[0]
        return rows.take(np.flatnonzero(kinds != DELETE))
    order, starts = newest_first(ids, rows.lsns, log_order=False)
    if has_patches:
        return combine(Versions(rows, kinds, order, starts), keep_tombstones)
    winners = order[starts]
    if not keep_tombstones:
        winners = winners[kinds[winners] != DELETE]
    return rows.take(winners)


def _disjoint(pieces: Sequence[pa.RecordBatch]) -> bool:
    return all(
        before.column(ID)[-1].as_py() < after.column(ID)[0].as_py()
        for before, after in pairwise(pieces)
    )


def _reversed(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(np.arange(batch.num_rows - 1, -1, -1)))


class _Cursor:
    """A stretch of one source: whole batches, as many as make some rows or some bytes."""

    def __init__(
        self,
        source: Iterator[Slice],
        reverse: bool,
        nbytes: int,
        measure: Measure,
    ) -> None:
        self._source = source
        self._reverse = reverse
        self._nbytes = max(1, nbytes)
        self._measure = measure
        self._held: deque[pa.RecordBatch] = deque()
        self._count = 0
        self._size = 0
        self._width = 0.0

    def fill(self, rows: int) -> bool:
        """Have so many rows in hand, or some bytes; False when the source has no more."""
        self.measured()
        while self._count < max(1, rows) and self._size < self._nbytes:
            found = next(self._source, None)
            if found is None:
                break
            for batch in found if isinstance(found, list) else (found,):
                if batch.num_rows:
                    self._held.append(batch)
                    self._count += batch.num_rows
                    self._size += self._measure.of(batch)
        return bool(self._held)

    def measured(self) -> int:
        """How many bytes are in hand, given the columns that all sources have shown so far."""
        if self._width != self._measure.width:
            self._width = self._measure.width
            self._size = sum(map(self._measure.of, self._held))
        return self._size

    def far_bound(self) -> str | int:
        """The last id in hand in the direction of the merge."""
        ids = self._held[-1].column(ID)
        bound: str | int = ids[0 if self._reverse else len(ids) - 1].as_py()
        return bound

    def rest(self) -> Iterator[list[pa.RecordBatch]]:
        """What is in hand, and whatever the source still has, without a copy."""
        # All versions of an id are in hand together, but maybe in several batches.
        held = list(self._held)
        while held:
            count = 1
            while count < len(held) and self._meet(held[count - 1], held[count]):
                count += 1
            stretch, held = held[:count], held[count:]
            yield stretch[::-1] if self._reverse else stretch
        yield from _stretches(self._source, self._reverse)

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
        self._width = -1.0
        return taken[::-1] if self._reverse else taken

    def _meet(self, before: pa.RecordBatch, after: pa.RecordBatch) -> bool:
        """Whether two neighbours hold versions of one id."""
        if self._reverse:
            before, after = after, before
        last, first = before.column(ID)[-1].as_py(), after.column(ID)[0].as_py()
        return bool(last == first)

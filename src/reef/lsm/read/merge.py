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
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from reef.data.measure import Measure
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
)
from reef.lsm.gathered import Slice
from reef.lsm.order import find_sorted, is_increasing, newest_first
from reef.lsm.pieces import Pieces, take_rows

WINDOW_ROWS = 32_768
WINDOW_BYTES = 32 * 1024 * 1024
_SHARES = 4
_FIRST_ROWS = 64
_GROWTH = 4

Source: TypeAlias = Iterable[Slice]


def merge(
    sources: Sequence[Source],
    *,
    keep_tombstones: bool = False,
    reverse: bool = False,
    window_rows: int = WINDOW_ROWS,
    window_bytes: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Each id's newest version with its patches applied, in id order, deleted ones left out.

    With `keep_tombstones` a deleted id comes as its tombstone, and patches that found no
    document to change come as nothing. Batches may come without some attributes.
    """
    limit = WINDOW_BYTES if window_bytes is None else window_bytes
    measure = Measure()
    if len(sources) == 1:
        for stretch in _stretches(sources[0], reverse):
            yield from _alone(stretch, keep_tombstones, reverse, limit, measure)
        return
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
            yield from _shown(resolve(pieces, keep_tombstones), reverse)
        else:
            yield from _bounded(pieces, keep_tombstones, reverse, limit, measure)
        rows = min(_GROWTH * rows, window_rows // _SHARES)
        cursors = [cursor for cursor in cursors if cursor.fill(rows)]
    for cursor in cursors:
        for stretch in cursor.rest():
            yield from _alone(stretch, keep_tombstones, reverse, limit, measure)


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


def _alone(
    stretch: list[pa.RecordBatch],
    keep_tombstones: bool,
    reverse: bool,
    limit: int,
    measure: Measure,
) -> Iterator[pa.RecordBatch]:
    """Rows of one source, when there is no other."""
    if len(stretch) == 1:
        return _shown(_resolve_alone(stretch[0], keep_tombstones), reverse)
    return _bounded(stretch, keep_tombstones, reverse, limit, measure)


def _shown(rows: pa.RecordBatch, reverse: bool) -> Iterator[pa.RecordBatch]:
    if rows.num_rows:
        yield _reversed(rows) if reverse else rows


def _bounded(
    pieces: Sequence[pa.RecordBatch],
    keep_tombstones: bool,
    reverse: bool,
    limit: int,
    measure: Measure,
) -> Iterator[pa.RecordBatch]:
    """Resolve pieces, each sorted by id, in parts of no more than so many bytes."""
    sizes = list(map(measure.of, pieces))
    if sum(sizes) <= limit:
        yield from _shown(resolve(pieces, keep_tombstones), reverse)
        return
    parts = _halves(pieces, pieces[int(np.argmax(sizes))])
    if len(parts) == 1:
        yield from _shown(_resolve(Pieces(pieces), keep_tombstones), reverse)
        return
    for part in reversed(parts) if reverse else parts:
        yield from _bounded(part, keep_tombstones, reverse, limit, measure)


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


def _resolve_alone(batch: pa.RecordBatch, keep_tombstones: bool) -> pa.RecordBatch:
    """Rows of one source, where an id has several versions only if a patch is on top of them."""
    kinds = kinds_of(batch)
    highest = int(kinds.max())
    if highest == PATCH:
        return resolve([batch], keep_tombstones)
    if keep_tombstones or highest == UPSERT:
        return batch
    return take_rows(batch, np.flatnonzero(kinds != DELETE))


def resolve(pieces: Sequence[pa.RecordBatch], keep_tombstones: bool) -> pa.RecordBatch:
    """All versions of a range of ids into one row for each id that is left.

    They come in any order, but for versions of one LSN: among them the newest is first.
    """
    in_order = len(pieces) == 1 or _disjoint(pieces)
    return _resolve(Pieces([concat(pieces)]), keep_tombstones, in_order)


def _resolve(rows: Pieces, keep_tombstones: bool, in_order: bool = False) -> pa.RecordBatch:
    kinds, ids = rows.kinds, rows.ids
    has_patches = bool((kinds == PATCH).any())
    if in_order and not has_patches and is_increasing(ids):
        if keep_tombstones or not bool((kinds == DELETE).any()):
            return rows.batches[0]
        return rows.take(np.flatnonzero(kinds != DELETE))
    order, starts = newest_first(ids, rows.lsns, log_order=False)
    if has_patches:
        return _resolve_patches(rows, kinds, order, starts, keep_tombstones)
    winners = order[starts]
    if not keep_tombstones:
        winners = winners[kinds[winners] != DELETE]
    return rows.take(winners)


def _disjoint(pieces: Sequence[pa.RecordBatch]) -> bool:
    return all(
        before.column(ID)[-1].as_py() < after.column(ID)[0].as_py()
        for before, after in pairwise(pieces)
    )


def _resolve_patches(
    rows: Pieces,
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
    sources: dict[str, np.ndarray] = {}
    names = rows.names
    for name in names:
        if name in (ID, KIND):
            columns.append(rows.column(name, base_rows))
        elif not is_attribute(name) and not name.startswith(NULL_FLAG):
            columns.append(rows.column(name, newest_rows))
        else:
            attribute = name.removeprefix(NULL_FLAG)
            if attribute not in sources:
                sources[attribute] = _sources(
                    rows, attribute, order, number, live, base, count, kept
                )
            columns.append(rows.column(name, sources[attribute]))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sources(
    rows: Pieces,
    attribute: str,
    order: np.ndarray,
    number: np.ndarray,
    live: np.ndarray,
    base: np.ndarray,
    count: int,
    kept: np.ndarray,
) -> np.ndarray:
    """For each id kept, the row that an attribute's value comes from: the newest that set it."""
    flags = rows.present(attribute)
    chosen = np.minimum(base, len(order) - 1)
    if flags is not None:
        setters = np.flatnonzero(flags[order] & live)
        newest = np.full(count, len(order), dtype=np.int64)
        np.minimum.at(newest, number[setters], setters)
        chosen = np.where(newest < len(order), newest, chosen)
    return np.asarray(order[chosen[kept]])


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

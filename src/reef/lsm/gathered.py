"""Gathered rows: batches in log order, sorted by id without being copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from reef.data.measure import bytes_together, rows_together
from reef.data.rows import LSN_FIELD, PATCH
from reef.lsm.order import find_sorted, newest_first
from reef.lsm.pieces import Pieces

SLICE_ROWS = 16_384
SLICE_BYTES = 8 * 1024 * 1024
_RAMP = 4
_NO_LSN = np.uint64(2**64 - 1)

Slice: TypeAlias = "pa.RecordBatch | list[pa.RecordBatch]"
"""Rows sorted by id. The versions of one id that are too large to be one batch are a list."""


class Gathered:
    """Batches in log order as one, sorted by id, the versions of each newest first.

    Versions that a newer document or tombstone hides are left out. The order is made out of ids,
    LSNs and kinds; rows are copied into it only as they are asked for, a slice at a time.
    """

    def __init__(
        self,
        batches: Sequence[tuple[int | np.ndarray, pa.RecordBatch]],
    ) -> None:
        """Each batch comes with the LSN of its rows, one for all or one for each."""
        self._pieces = Pieces.chunked([batch for _, batch in batches])
        self._all_lsns = np.concatenate(
            [np.broadcast_to(np.asarray(lsn, np.uint64), len(batch)) for lsn, batch in batches]
        )
        order, starts = newest_first(self._pieces.ids, self._all_lsns, log_order=True)
        kinds = self._pieces.kinds[order]
        shown = ~_hidden(kinds, starts)
        self._order = order[shown]
        self._kinds = kinds[shown]
        self._lsns = self._all_lsns[self._order]
        self._first_of_id = np.flatnonzero(starts[shown])
        self._asked = False
        self._kept: tuple[Pieces, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._order)

    @property
    def rows(self) -> int:
        """How many rows were gathered, hidden ones too."""
        return self._pieces.rows

    @cached_property
    def nbytes(self) -> int:
        """How many bytes they take."""
        return sum(batch.nbytes for batch in self._pieces.batches)

    def batches(self) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows in log order again, to be gathered with later ones."""
        found = []
        start = 0
        for batch in self._pieces.batches:
            found.append((self._all_lsns[start : start + batch.num_rows], batch))
            start += batch.num_rows
        return found

    @cached_property
    def ids(self) -> pa.Array:
        """The ids in order, one for each version that is shown."""
        return self._pieces.ids.take(pa.array(self._order))

    @cached_property
    def patched(self) -> pa.Array:
        """The distinct ids that a patch is there for, in order."""
        patches = self._kinds == PATCH
        if not patches.any():
            return self.ids.slice(0, 0)
        return self.ids.filter(pa.array(patches)).unique()

    @cached_property
    def min_lsn(self) -> int:
        """The oldest LSN of a version that is shown."""
        return int(self._lsns.min(initial=_NO_LSN))

    def slices(
        self,
        *,
        start: str | int | None = None,
        stop: str | int | None = None,
        columns: Iterable[str] | None = None,
        reverse: bool = False,
        first_rows: int | None = None,
    ) -> Iterator[Slice]:
        """The ids in [start, stop), in slices of a few bytes and rows.

        The versions of an id are never parted: if they come to more than that they are a list of
        batches. With `first_rows` the first slice has about that many, and later ones more and
        more: whoever takes only a few does not wait for all.
        """
        rows, nbytes = SLICE_ROWS, SLICE_BYTES
        low, high = 0, len(self._order)
        if start is not None:
            low = find_sorted(self.ids, start, after=False)
        if stop is not None:
            high = find_sorted(self.ids, stop, after=False)
        source, order = self._source()
        pieces = source.select(columns)
        ends = _Ends(self._first_of_id, len(self), _heights(pieces, order, nbytes), nbytes)

        def piece(low: int, high: int) -> pa.RecordBatch:
            rows = pieces.take(order[low:high])
            return rows.add_column(1, LSN_FIELD, pa.array(self._lsns[low:high]))

        step = rows if first_rows is None else min(rows, first_rows)
        while low < high:
            if reverse:
                cut = max(low, ends.before(high, step))
                yield _slice(piece, ends.inside(cut, high), reverse)
                high = cut
            else:
                cut = min(high, ends.after(low, step))
                yield _slice(piece, ends.inside(low, cut), reverse)
                low = cut
            step = min(rows, step * _RAMP)

    def _source(self) -> tuple[Pieces, np.ndarray]:
        """Rows, and in which order to take them. A few rows that are asked for again are kept in
        order, so that they need not be copied any more."""
        kept = self._kept
        if kept is None and self._asked and self.nbytes <= SLICE_BYTES:
            kept = Pieces([self._pieces.take(self._order)]), np.arange(len(self))
            self._kept = kept
        self._asked = True
        return kept or (self._pieces, self._order)


def _heights(pieces: Pieces, order: np.ndarray, nbytes: int) -> np.ndarray | None:
    """The bytes of all rows before each one, in order; None if all together are few."""
    if bytes_together(pieces.batches) <= nbytes:
        return None
    heights = np.zeros(len(order) + 1, np.int64)
    np.cumsum(rows_together(pieces.batches)[order], out=heights[1:])
    return heights


def _slice(piece: Callable[[int, int], pa.RecordBatch], cuts: list[int], reverse: bool) -> Slice:
    if len(cuts) == 2:
        return piece(cuts[0], cuts[1])
    parts = [piece(low, high) for low, high in pairwise(cuts)]
    return parts[::-1] if reverse else parts


class _Ends:
    """Where slices may end: at the first version of an id, and within a limit of bytes."""

    def __init__(
        self, firsts: np.ndarray, rows: int, heights: np.ndarray | None, nbytes: int
    ) -> None:
        self._firsts = firsts
        self._rows = rows
        self._heights = heights
        self._nbytes = nbytes

    def after(self, start: int, rows: int) -> int:
        """The end of the slice that starts there."""
        place = int(np.searchsorted(self._firsts, start + rows))
        if self._heights is not None:
            limit = self._heights[start] + self._nbytes
            fits = int(np.searchsorted(self._heights, limit, "right")) - 1
            # The last id that still fits as a whole, but one at least.
            place = min(place, int(np.searchsorted(self._firsts, fits, "right")) - 1)
            place = max(place, int(np.searchsorted(self._firsts, start, "right")))
        return int(self._firsts[place]) if place < len(self._firsts) else self._rows

    def before(self, stop: int, rows: int) -> int:
        """The start of the slice that ends there."""
        place = int(np.searchsorted(self._firsts, stop - rows, "right")) - 1
        if self._heights is not None:
            fits = int(np.searchsorted(self._heights, self._heights[stop] - self._nbytes))
            place = max(place, int(np.searchsorted(self._firsts, fits)))
            place = min(place, int(np.searchsorted(self._firsts, stop)) - 1)
        return int(self._firsts[max(0, place)])

    def inside(self, start: int, stop: int) -> list[int]:
        """Where to cut one slice into batches: nowhere, unless it is one id's and too large."""
        heights = self._heights
        if heights is None or heights[stop] - heights[start] <= self._nbytes:
            return [start, stop]
        cuts = [start]
        while cuts[-1] < stop:
            limit = heights[cuts[-1]] + self._nbytes
            fits = int(np.searchsorted(heights, limit, "right")) - 1
            cuts.append(min(stop, max(cuts[-1] + 1, fits)))
        return cuts


def _hidden(kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which versions, newest first within each id, lie below one that is no patch."""
    solid = (kinds != PATCH).astype(np.int64)
    before = np.cumsum(solid) - solid
    first = np.maximum.accumulate(np.where(starts, np.arange(len(kinds)), 0))
    return before > before[first]

"""The memtable: rows of the unfolded log, found by id.

A list of batches in log order that only grows, and an index from id to row that is brought up to
date when somebody looks. A row's position is its place in the concatenation of all batches. The
index maps an id to the position of its newest row, or, where that row is a patch, to a pair of
its position and what the index said before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from reef.data.plain import PlainRows, Rows, as_batch, ids_of, join
from reef.data.rows import ID, LSN_FIELD, PATCH, concat, kinds_of
from reef.lsm.order import is_contiguous, newest_first

Version = tuple[int, Rows, int]
"""A version of an id: the LSN, and the row of some rows that holds it."""


class Memtable:
    """Rows in log order. One thread adds at a time; any number read."""

    def __init__(self) -> None:
        self._lsns: list[int] = []
        self._batches: list[Rows] = []
        self._starts: list[int] = []
        self._index: dict[str | int, Any] = {}
        self._indexed = 0
        self._index_lock = Lock()
        self._sorted: tuple[int, pa.RecordBatch] | None = None
        self.rows = 0

    def add(self, lsn: int, batch: Rows) -> None:
        """Put rows on top. The LSN is not below that of any batch before."""
        self._starts.append(self.rows)
        self._lsns.append(lsn)
        self.rows += len(batch)
        self._batches.append(batch)

    def after(self, lsn: int) -> Memtable:
        """A memtable of only the batches above that LSN."""
        rest = Memtable()
        for position in range(bisect_right(self._lsns, lsn), len(self._batches)):
            rest.add(self._lsns[position], self._batches[position])
        return rest

    def batches(self, through: int | None = None) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows up to that LSN, oldest first, as Arrow batches with the LSN of each row."""
        count = len(self._batches) if through is None else bisect_right(self._lsns, through)
        return self._first(count)

    def _first(self, count: int) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        entries = zip(self._lsns[:count], self._batches[:count], strict=True)
        found: list[tuple[np.ndarray, pa.RecordBatch]] = []
        # Neighbours that are plain become one batch: making many small ones takes far longer.
        for plain, run in groupby(entries, lambda entry: isinstance(entry[1], PlainRows)):
            stretch = list(run)
            if plain:
                stretch_lsns = np.repeat(
                    np.fromiter((lsn for lsn, _ in stretch), np.uint64, len(stretch)),
                    np.fromiter((len(rows) for _, rows in stretch), np.int64, len(stretch)),
                )
                found.append((stretch_lsns, as_batch(join([rows for _, rows in stretch]))))
            else:
                for lsn, batch in stretch:
                    found.append((np.full(len(batch), lsn, np.uint64), batch))
        return found

    def __len__(self) -> int:
        return len(self._batches)

    def find(self, id: str | int) -> list[Version]:
        """The id's versions as (LSN, batch, row), newest first, to the first that is no patch."""
        if self._indexed < len(self._batches):
            self._bring_up_to_date()
        return self._versions(self._index.get(id))

    def find_many(self, ids: Sequence[str | int]) -> list[list[Version]]:
        """The versions of each of these ids, all as of one moment."""
        self._bring_up_to_date()
        with self._index_lock:
            found = list(map(self._index.get, ids))
        return list(map(self._versions, found))

    def _versions(self, found: Any) -> list[Version]:
        versions = []
        while found is not None:
            position, found = found if isinstance(found, tuple) else (found, None)
            place = bisect_right(self._starts, position) - 1
            versions.append(
                (self._lsns[place], self._batches[place], position - self._starts[place])
            )
        return versions

    def _bring_up_to_date(self) -> None:
        with self._index_lock:
            for place in range(self._indexed, len(self._batches)):
                self._add_to_index(self._batches[place], self._starts[place])
                self._indexed = place + 1

    def _add_to_index(self, batch: Rows, start: int) -> None:
        ids = ids_of(batch)
        positions = range(start, start + len(ids))
        if isinstance(batch, PlainRows):
            patches = np.frombuffer(batch.kinds, np.uint8) == PATCH
        else:
            patches = kinds_of(batch) == PATCH
        if not patches.any():
            self._index.update(zip(ids, positions, strict=True))
        elif patches.all() and len(set(ids)) == len(ids):
            below = map(self._index.get, ids)
            self._index.update(zip(ids, zip(positions, below, strict=True), strict=True))
        else:
            index = self._index
            for id, position, patch in zip(ids, positions, patches.tolist(), strict=True):
                index[id] = (position, index.get(id)) if patch else position

    def sorted(self) -> pa.RecordBatch | None:
        """All rows sorted by id, the versions of each newest first; None when there are none."""
        count = len(self._batches)
        if not count:
            return None
        cached = self._sorted
        if cached is not None and cached[0] == count:
            return cached[1]
        rows = Gathered(self._first(count)).all()
        self._sorted = (count, rows)
        return rows


class Gathered:
    """Batches in log order as one, sorted by id, the versions of each newest first.

    Versions that a newer document or tombstone hides are left out. Rows are copied into their
    order only as they are asked for.
    """

    def __init__(self, batches: Sequence[tuple[int | np.ndarray, pa.RecordBatch]]) -> None:
        """Each batch comes with the LSN of its rows, one for all or one for each."""
        self._rows = concat([batch for _, batch in batches])
        lsns = np.concatenate(
            [np.broadcast_to(np.asarray(lsn, np.uint64), len(batch)) for lsn, batch in batches]
        )
        order, starts = newest_first(self._rows.column(ID), lsns, log_order=True)
        shown = ~_hidden(kinds_of(self._rows)[order], starts)
        self._order = order[shown]
        self._lsns = lsns[self._order]
        self._first_of_id = np.flatnonzero(starts[shown])

    def all(self) -> pa.RecordBatch:
        """All rows as one batch."""
        return self._piece(0, len(self._order))

    def slices(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Batches of about that many rows. The versions of an id are never parted."""
        start = 0
        while start < len(self._order):
            place = int(np.searchsorted(self._first_of_id, start + rows))
            stop = len(self._order)
            if place < len(self._first_of_id):
                stop = int(self._first_of_id[place])
            yield self._piece(start, stop)
            start = stop

    def _piece(self, start: int, stop: int) -> pa.RecordBatch:
        order = self._order[start:stop]
        if len(order) and is_contiguous(order):
            rows = self._rows.slice(int(order[0]), stop - start)
        else:
            rows = self._rows.take(pa.array(order))
        return rows.add_column(1, LSN_FIELD, pa.array(self._lsns[start:stop]))


def _hidden(kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which versions, newest first within each id, lie below one that is no patch."""
    solid = (kinds != PATCH).astype(np.int64)
    before = np.cumsum(solid) - solid
    first = np.maximum.accumulate(np.where(starts, np.arange(len(kinds)), 0))
    return before > before[first]

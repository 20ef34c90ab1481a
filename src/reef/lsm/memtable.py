"""The memtable: rows of the unfolded log, found by id.

A list of batches in log order that only grows, and an index from id to row that is brought up to
date when somebody looks. A row's position is its place in the concatenation of all batches. The
index maps an id to the position of its newest row, or, where that row is a patch, to a pair of
its position and what the index said before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from reef.data.plain import PlainRows, Rows, as_batch, ids_of, join
from reef.data.rows import PATCH, kinds_of
from reef.lsm.memory_runs import NO_RUNS, MemoryRuns

Version = tuple[int, Rows, int]
"""A version of an id: the LSN, and the row of some rows that holds it."""

_STRETCH_BYTES = 64 * 1024 * 1024


class Memtable:
    """Rows in log order. One thread adds at a time; any number read."""

    def __init__(self) -> None:
        self._lsns: list[int] = []
        self._batches: list[Rows] = []
        self._starts: list[int] = []
        self._index: dict[str | int, Any] = {}
        self._indexed = 0
        self._index_lock = Lock()
        self._sorted = NO_RUNS
        self._sort_lock = Lock()
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
        first = bisect_right(self._lsns, lsn)
        for position in range(first, len(self._batches)):
            rest.add(self._lsns[position], self._batches[position])
        rest._sorted = self._sorted.after(first)
        return rest

    def batches(self, through: int | None = None) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows up to that LSN, oldest first, as Arrow batches with the LSN of each row."""
        count = len(self._batches) if through is None else bisect_right(self._lsns, through)
        return self._between(0, count)

    def _between(self, first: int, stop: int) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        entries = zip(self._lsns[first:stop], self._batches[first:stop], strict=True)
        found: list[tuple[np.ndarray, pa.RecordBatch]] = []
        # Neighbours that are plain become one batch: making many small ones takes far longer.
        for plain, run in groupby(entries, lambda entry: isinstance(entry[1], PlainRows)):
            if plain:
                for lsns, rows in _stretches(run):
                    found.append((lsns, as_batch(join(rows))))
            else:
                for lsn, batch in run:
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

    def sorted(self) -> MemoryRuns:
        """All rows in sorted runs. What was sorted before is kept: only the rows that were added
        since, and as many of the others again, are sorted now."""
        runs = self._sorted
        if runs.batches < len(self._batches):
            with self._sort_lock:
                runs = self._sorted
                count = len(self._batches)
                if runs.batches < count:
                    runs = runs.extended(count, self._between(runs.batches, count))
                    self._sorted = runs
        return runs


def _stretches(
    entries: Iterable[tuple[int, Rows]],
) -> Iterator[tuple[np.ndarray, list[Rows]]]:
    """Neighbours that fit into one batch, and the LSNs of their rows."""
    lsns: list[int] = []
    held: list[Rows] = []
    size = count = width = 0
    for lsn, rows in entries:
        assert isinstance(rows, PlainRows)
        size += rows.nbytes
        count += len(rows)
        width = max(width, rows.types.vector_bytes)
        if held and max(size, count * width) > _STRETCH_BYTES:
            yield _repeated(lsns, held), held
            lsns, held = [], []
            size, count, width = rows.nbytes, len(rows), rows.types.vector_bytes
        lsns.append(lsn)
        held.append(rows)
    yield _repeated(lsns, held), held


def _repeated(lsns: list[int], held: list[Rows]) -> np.ndarray:
    return np.repeat(
        np.array(lsns, np.uint64), np.fromiter((len(rows) for rows in held), np.int64, len(held))
    )

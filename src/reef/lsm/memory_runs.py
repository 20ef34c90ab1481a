"""Sorted runs of unfolded rows: the memtable as scans see it.

A tree in small: rows that were added since the last look become a run, and runs of about one size
become one. So a look after a write sorts a few rows, not all, and there are never many runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reef.lsm import pieces
from reef.lsm.gathered import Gathered, Slice
from reef.lsm.order import find_sorted

_SMALL_ROWS = 128
_GROWTH = 4
_FIRST_ROWS = 64

Bound = str | int | None


@dataclass(frozen=True)
class MemoryRuns:
    """Runs of the first `batches` batches of a memtable, newest first. Nothing in it changes.

    `ends` says for each run which batch is behind its last one.
    """

    runs: tuple[Gathered, ...] = ()
    ends: tuple[int, ...] = ()
    batches: int = 0

    @property
    def rows(self) -> int:
        """How many versions there are."""
        return sum(map(len, self.runs))

    def extended(
        self, count: int, added: Sequence[tuple[np.ndarray, pa.RecordBatch]]
    ) -> MemoryRuns:
        """The same with later batches, `count` in all."""
        runs = list(self.runs)
        batches = list(added)
        rows = sum(batch.num_rows for _, batch in batches)
        size = sum(batch.nbytes for _, batch in batches)
        while runs and _belongs(runs[0], rows, size):
            taken = runs.pop(0)
            batches = [*taken.batches(), *batches]
            rows += taken.rows
            size += taken.nbytes
        ends = self.ends[len(self.ends) - len(runs) :]
        return MemoryRuns((Gathered(batches), *runs), (count, *ends), count)

    def after(self, first: int) -> MemoryRuns:
        """What is left of it, as far as it is in runs of its own, without so many batches."""
        if first == 0:
            return self
        if first not in self.ends:
            return NO_RUNS
        kept = self.ends.index(first)
        ends = tuple(end - first for end in self.ends[:kept])
        return MemoryRuns(self.runs[:kept], ends, ends[0]) if ends else NO_RUNS

    def sources(
        self,
        *,
        start: Bound = None,
        stop: Bound = None,
        columns: Iterable[str] | None = None,
        reverse: bool = False,
    ) -> list[Iterator[Slice]]:
        """The rows of a range as sources of a merge, newest first."""
        return [
            run.slices(
                start=start, stop=stop, columns=columns, reverse=reverse, first_rows=_FIRST_ROWS
            )
            for run in self.runs
        ]

    def patches(self, first: str | int, last: str | int) -> bool:
        """Whether an id from `first` through `last` has a patch."""
        return any(_touches(run.patched, first, last) for run in self.runs)

    def may_lie_below(self, lsn: int, first: str | int, last: str | int) -> bool:
        """Whether an id from `first` through `last` may have a version older than that LSN."""
        return any(run.min_lsn < lsn and _touches(run.ids, first, last) for run in self.runs)


NO_RUNS = MemoryRuns()


def _belongs(run: Gathered, rows: int, size: int) -> bool:
    """Whether a run is sorted again together with so many newer rows."""
    if run.nbytes + size > pieces.CHUNK_BYTES:
        return False
    return run.rows < max(_SMALL_ROWS, _GROWTH * rows)


def _touches(ids: pa.Array, first: str | int, last: str | int) -> bool:
    return find_sorted(ids, first, after=False) < find_sorted(ids, last, after=True)

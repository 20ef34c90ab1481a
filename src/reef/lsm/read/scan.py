"""Scans: sorted sources out of runs and memory, merged, filtered and projected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reef.data.filter import Expression, evaluate, id_range, may_match
from reef.data.filter import columns as columns_of
from reef.data.rows import DELETE, ID, KIND, KIND_FIELD, select
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.read.merge import Source, merge
from reef.segment import SegmentReader

if TYPE_CHECKING:
    from reef.lsm.read.view import Run

Bound = str | int | None


def scan_rows(
    runs: Sequence[Run],
    memory: MemoryRuns,
    *,
    start: Bound,
    stop: Bound,
    columns: Sequence[str] | None,
    filter: Expression | None,
    reverse: bool,
) -> Iterator[pa.RecordBatch]:
    """Merged row batches of the ids in [start, stop) that the filter keeps.

    A row group whose statistics rule out the filter is not fetched. Where it may hide older
    versions in other sources, its ids alone are, and stand as tombstones: a row that the
    filter drops and a row that is deleted look the same from outside. A group with a patched id is
    always fetched, for the patch may make it match.
    """
    if filter is not None:
        low, high = id_range(filter)
        start = low if start is None or (low is not None and low > start) else start  # type: ignore[operator]
        stop = high if stop is None or (high is not None and high < stop) else stop  # type: ignore[operator]
    needed = None
    if columns is not None:
        needed = list(
            dict.fromkeys([*columns, *(columns_of(filter) if filter is not None else ())])
        )
        needed = [name for name in needed if name != ID]
    sources: list[Source] = []
    sources += memory.sources(start=start, stop=stop, columns=needed, reverse=reverse)
    pruning = Pruning(filter, runs, memory) if filter is not None else None
    for run in runs:
        sources.append(_run_source(run, start, stop, needed, pruning, reverse))
    for batch in merge(sources, reverse=reverse):
        if filter is not None:
            keep = evaluate(filter, batch)
            if not keep.all():
                batch = batch.filter(pa.array(keep))
        if batch.num_rows:
            yield select(batch, columns)


class Pruning:
    """Decides, group by group, whether to fetch it whole, only its ids, or not at all."""

    def __init__(self, filter: Expression, runs: Sequence[Run], memory: MemoryRuns) -> None:
        self._filter = filter
        self._columns = columns_of(filter)
        self._runs = runs
        self._memory = memory

    def verdict(self, run: Run, reader: SegmentReader, group: int) -> str:
        first, last = reader.group_bounds(group)
        statistics = reader.statistics(group, self._columns)
        if may_match(self._filter, statistics, first, last) or self._memory.patches(first, last):
            return "fetch"
        hides = any(
            other is not run and other.min_lsn < run.max_lsn and other.touches(first, last)
            for other in self._runs
        )
        # A bulk load may lie above rows of the log.
        if hides or self._memory.may_lie_below(run.max_lsn, first, last):
            return "shadow"
        return "skip"


def _run_source(
    run: Run,
    start: Bound,
    stop: Bound,
    columns: Sequence[str] | None,
    pruning: Pruning | None,
    reverse: bool,
) -> Iterator[pa.RecordBatch]:
    readers = run.between(start, stop)
    for reader in reversed(readers) if reverse else readers:
        groups = list(reader.groups(start, stop))
        if reverse:
            groups.reverse()
        if pruning is None:
            yield from reader.read(groups, columns, start=start, stop=stop)
            continue
        for verdict, stretch in _stretches(
            [(pruning.verdict(run, reader, group), group) for group in groups]
        ):
            if verdict == "fetch":
                yield from reader.read(stretch, columns, start=start, stop=stop)
            elif verdict == "shadow":
                for batch in reader.read(stretch, (), start=start, stop=stop):
                    yield _as_tombstones(batch)


def _stretches(verdicts: list[tuple[str, int]]) -> Iterator[tuple[str, list[int]]]:
    """Neighbours with the same verdict together, those skipped left out."""
    verdicts = [pair for pair in verdicts if pair[0] != "skip"]
    stretch: list[int] = []
    for place, (verdict, group) in enumerate(verdicts):
        stretch.append(group)
        if place + 1 == len(verdicts) or verdicts[place + 1][0] != verdict:
            yield verdict, stretch
            stretch = []


def _as_tombstones(batch: pa.RecordBatch) -> pa.RecordBatch:
    position = batch.schema.get_field_index(KIND)
    kinds = pa.array(np.full(batch.num_rows, DELETE, dtype=np.uint8))
    return batch.set_column(position, KIND_FIELD, kinds)

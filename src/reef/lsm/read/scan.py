"""Scans: sorted sources out of runs and memory, merged, filtered and projected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from reef.data.filter import Expression, evaluate, id_range, may_match
from reef.data.filter import columns as columns_of
from reef.data.rows import DELETE, ID, KIND, KIND_FIELD, PATCH, kinds_of, lsns_of, select
from reef.lsm.order import find_sorted
from reef.lsm.read.merge import merge
from reef.segment import SegmentReader

if TYPE_CHECKING:
    from reef.lsm.read.view import Run

Bound = str | int | None


def scan_rows(
    runs: Sequence[Run],
    memory: pa.RecordBatch | None,
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
    sources: list[Iterator[pa.RecordBatch]] = []
    patched = None
    if memory is not None:
        memory = _trim(memory, start, stop)
        patches = kinds_of(memory) == PATCH
        if patches.any():
            patched = memory.column(ID).filter(pa.array(patches))
        if memory.num_rows:
            sources.append(iter([select(memory, needed)]))
    pruning = _Pruning(filter, runs, memory, patched) if filter is not None else None
    for run in runs:
        sources.append(_run_source(run, start, stop, needed, pruning, reverse))
    for batch in merge(sources, reverse=reverse):
        if filter is not None:
            keep = evaluate(filter, batch)
            if not keep.all():
                batch = batch.filter(pa.array(keep))
        if batch.num_rows:
            yield select(batch, columns)


def _trim(batch: pa.RecordBatch, start: Bound, stop: Bound) -> pa.RecordBatch:
    ids = batch.column(ID)
    first = 0 if start is None else find_sorted(ids, start, after=False)
    last = len(ids) if stop is None else find_sorted(ids, stop, after=False)
    return batch.slice(first, max(0, last - first))


class _Pruning:
    """Decides, group by group, whether to fetch it whole, only its ids, or not at all."""

    def __init__(
        self,
        filter: Expression,
        runs: Sequence[Run],
        memory: pa.RecordBatch | None,
        patched: pa.Array | None,
    ) -> None:
        self._filter = filter
        self._runs = runs
        self._patched = patched
        # A bulk load may lie above rows of the log.
        self._memory: pa.Array | None = None
        if memory is not None and memory.num_rows:
            self._memory = memory.column(ID)
            self._memory_lsn = int(lsns_of(memory).min())

    def verdict(self, run: Run, reader: SegmentReader, group: int) -> str:
        first, last = reader.group_bounds(group)
        if self._touches(self._patched, first, last):
            return "fetch"
        if may_match(self._filter, reader.statistics(group), first, last):
            return "fetch"
        hides = any(
            other is not run
            and other.min_lsn < run.max_lsn
            and any(
                low <= last and first <= high  # type: ignore[operator]
                for low, high in zip(other.min_ids, other.max_ids, strict=True)
            )
            for other in self._runs
        )
        if self._memory is not None and self._memory_lsn < run.max_lsn:
            hides = hides or self._touches(self._memory, first, last)
        return "shadow" if hides else "skip"

    @staticmethod
    def _touches(ids: pa.Array | None, first: str | int, last: str | int) -> bool:
        if ids is None:
            return False
        return find_sorted(ids, first, after=False) < find_sorted(ids, last, after=True)


def _run_source(
    run: Run,
    start: Bound,
    stop: Bound,
    columns: Sequence[str] | None,
    pruning: _Pruning | None,
    reverse: bool,
) -> Iterator[pa.RecordBatch]:
    for reader in reversed(run.readers) if reverse else run.readers:
        info = reader.info
        if (start is not None and info.max_id < start) or (  # type: ignore[operator]
            stop is not None and info.min_id >= stop  # type: ignore[operator]
        ):
            continue
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

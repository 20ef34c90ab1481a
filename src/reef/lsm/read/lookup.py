"""Bulk look-up: the versions that segments hold of many ids."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import pyarrow as pa

from reef.data.rows import concat
from reef.lsm.order import find_sorted
from reef.lsm.read.view import Run


def lookup(
    runs: Sequence[Run], ids: pa.Array, columns: Sequence[str] | None = None
) -> list[pa.RecordBatch]:
    """All versions that the runs hold of these sorted, distinct ids, a batch a run.

    For key columns: of whole documents it may be more than memory holds, see `versions`.
    """
    found = [list(versions(run, ids, columns)) for run in runs]
    return [concat(batches) for batches in found if batches]


def versions(
    run: Run, ids: pa.Array, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """What a run holds of these sorted, distinct ids, in order: a source of a merge. A few groups
    are in memory at a time."""
    start = 0
    while start < len(ids):
        place = bisect_left(run.max_ids, ids[start].as_py())
        if place == len(run.readers):
            return
        reader = run.readers[place]
        start = max(start, find_sorted(ids, reader.info.min_id, after=False))
        stop = find_sorted(ids, reader.info.max_id, after=True)
        if start < stop:
            yield from reader.lookup(ids.slice(start, stop - start), columns)
        start = stop

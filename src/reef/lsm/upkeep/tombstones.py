"""When a tombstone may go: as soon as nothing older can hold its id."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from reef.data.rows import DELETE, ID, kinds_of
from reef.segment import SegmentInfo


def tombstone_filter(older: Iterable[SegmentInfo]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that drops from sorted rows the tombstones that hide nothing.

    `older` are the segments, outside of what is being rewritten, that may hold older versions.
    """
    joined: tuple[list[Any], list[Any]] | None = None

    def drop(rows: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal joined
        dead = np.flatnonzero(kinds_of(rows) == DELETE)
        if not len(dead):
            return rows
        # Only now: most of what is written has no tombstones, and there may be many segments.
        joined = joined or _joined(older)
        lows, highs = joined
        ids = rows.column(ID).take(pa.array(dead)).to_pylist()
        first, stop = bisect_left(highs, ids[0]), bisect_right(lows, ids[-1])
        hidden = _inside(ids, lows[first:stop], highs[first:stop])
        if hidden.all():
            return rows
        kept = np.ones(rows.num_rows, bool)
        kept[dead[~hidden]] = False
        return rows.filter(pa.array(kept))

    return drop


def _joined(segments: Iterable[SegmentInfo]) -> tuple[list[Any], list[Any]]:
    """The first and last ids of ranges that hold the same as the segments', apart and in order."""
    lows: list[Any] = []
    highs: list[Any] = []
    ranges: list[tuple[Any, Any]] = [(info.min_id, info.max_id) for info in segments]
    for low, high in sorted(ranges):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return lows, highs


def _inside(ids: list[Any], lows: list[Any], highs: list[Any]) -> np.ndarray:
    """Per id of these sorted ones, whether it lies in one of the ranges, ends included.

    Sorting what is sorted in stretches is one pass over it, far quicker than a search for each.
    """
    if not lows:
        return np.zeros(len(ids), bool)
    # Of equals those given first stay first: an id lies behind its low and before its high.
    every = lows + ids + highs
    order = np.fromiter(
        sorted(range(len(every)), key=every.__getitem__), np.int64, count=len(every)
    )
    begins, ends = order < len(lows), order >= len(lows) + len(ids)
    open_ranges = np.cumsum(begins.astype(np.int8) - ends.astype(np.int8), dtype=np.int64)
    return np.asarray(open_ranges[~begins & ~ends] > 0)

"""When a tombstone may go: as soon as nothing older can hold its id."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from reef.data.rows import DELETE, ID, kinds_of
from reef.lsm.order import find_sorted
from reef.segment import SegmentInfo


def tombstone_filter(older: Iterable[SegmentInfo]) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that drops from sorted rows the tombstones that hide nothing.

    `older` are the segments, outside of what is being rewritten, that may hold older versions.
    """
    ranges = [(info.min_id, info.max_id) for info in older]

    def drop(rows: pa.RecordBatch) -> pa.RecordBatch:
        dead = kinds_of(rows) == DELETE
        if not dead.any():
            return rows
        ids = rows.column(ID)
        for low, high in ranges:
            first = find_sorted(ids, low, after=False)
            dead[first : find_sorted(ids, high, after=True)] = False
        return rows.filter(pa.array(np.invert(dead))) if dead.any() else rows

    return drop

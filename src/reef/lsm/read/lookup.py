"""Bulk look-up: the versions that segments hold of many ids."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from reef.lsm.order import find_sorted
from reef.lsm.read.view import Run


def lookup(
    runs: Sequence[Run], ids: pa.Array, columns: Sequence[str] | None = None
) -> list[pa.RecordBatch]:
    """All versions that the runs hold of these sorted, distinct ids, a batch a segment."""
    found = []
    for run in runs:
        for reader in run.readers:
            first = find_sorted(ids, reader.info.min_id, after=False)
            stop = find_sorted(ids, reader.info.max_id, after=True)
            if first < stop:
                rows = reader.lookup(ids.slice(first, stop - first), columns)
                if rows.num_rows:
                    found.append(rows)
    return found

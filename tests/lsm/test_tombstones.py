"""Which tombstones go, and which ids fall into a run, against the plain definition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reef.data.rows import DELETE, ID, KIND, LSN, UPSERT
from reef.lsm.read.view import Readers
from reef.lsm.upkeep.tombstones import tombstone_filter
from reef.manifest.runs import SegmentRun
from reef.segment import BlockCache, SegmentInfo
from reef.store import MemoryStore

Ranges = list[tuple[int, int]]

numbers = st.integers(0, 30)
ranges = st.lists(st.tuples(numbers, st.integers(0, 5)).map(lambda r: (r[0], r[0] + r[1])))


def segment(low: int, high: int) -> SegmentInfo:
    return SegmentInfo(f"s{low}", 4, "r", 0, 2, 0, low, high, 91, 94, 600, 300, 7)


@given(ranges, st.dictionaries(numbers, st.sampled_from([UPSERT, DELETE]), min_size=1))
def test_tombstones_that_hide_nothing_go(older: Ranges, kinds: dict[int, int]) -> None:
    ids = sorted(kinds)
    rows = pa.RecordBatch.from_pydict(
        {
            ID: pa.array(ids, pa.uint64()),
            LSN: pa.array(np.full(len(ids), 95, np.uint64)),
            KIND: pa.array([kinds[id] for id in ids], pa.uint8()),
        }
    )
    kept = tombstone_filter([segment(*each) for each in older])(rows)
    assert kept.column(ID).to_pylist() == [
        id for id in ids if kinds[id] == UPSERT or any(low <= id <= high for low, high in older)
    ]


@given(ranges, numbers, numbers)
def test_what_a_run_touches(some: Ranges, first: int, length: int) -> None:
    apart: Ranges = []
    for low, high in sorted(some):
        if not apart or low > apart[-1][1]:
            apart.append((low, high))
    if not apart:
        return
    run = Readers(MemoryStore(), BlockCache(0)).run_of(
        SegmentRun(tuple(segment(*each) for each in apart))
    )
    last = first + length
    inside = [each for each in apart if each[0] <= last and first <= each[1]]
    assert run.touches(first, last) == bool(inside)
    found = [(reader.info.min_id, reader.info.max_id) for reader in run.between(first, last + 1)]
    assert found == inside
    assert [reader.info.min_id for reader in run.between(None, None)] == [low for low, _ in apart]

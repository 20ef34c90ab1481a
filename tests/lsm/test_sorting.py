"""Sorting in bounded memory, ids that come twice, and segments in few runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.data.convert import convert_rows
from reef.data.rows import ID, LSN, UPSERT
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.environment import SYSTEM
from reef.errors import InvalidInput
from reef.lsm.write.duplicates import duplicate_ids, repeated
from reef.lsm.write.ingest import in_few_runs
from reef.lsm.write.sorting import Sorter
from reef.segment import SegmentInfo

SCHEMA = Schema("string", {"n": parse_type("int64")})
IDS = st.lists(st.integers(0, 30), max_size=40)


def rows_of(pairs: list[tuple[str, int]]) -> pa.RecordBatch:
    ids, numbers = zip(*pairs, strict=True)
    data = {ID: pa.array(ids), "n": pa.array(numbers, pa.int64())}
    return convert_rows(data, SCHEMA, kind=UPSERT)[0]


def sorted_by(
    pieces: list[list[tuple[str, int]]],
    stretch: int,
    *,
    ordered: bool = False,
    unique: bool = False,
) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    with Sorter(SYSTEM, stretch_bytes=stretch, unique=unique) as sorter:
        for number, piece in enumerate(pieces, 1):
            order = np.array([n for _, n in piece], np.uint64) if ordered else number
            sorter.add(order, rows_of(piece), SCHEMA)
        for batch in sorter.rows(SCHEMA):
            assert not np.asarray(batch.column(LSN)).any()
            found += zip(batch.column(ID).to_pylist(), batch.column("n").to_pylist(), strict=True)
    return found


@pytest.mark.parametrize("stretch", [1, 2_000, 1 << 30])
def test_the_last_row_added_wins_or_the_highest_order(stretch: int) -> None:
    pairs = [(f"{n * 7 % 50:02d}", n * 13 % 101) for n in range(200)]
    pieces = [pairs[start : start + 20] for start in range(0, 200, 20)]
    assert sorted_by(pieces, stretch) == sorted(dict(pairs).items())
    highest: dict[str, int] = {}
    for id, n in pairs:
        highest[id] = max(n, highest.get(id, -1))
    assert sorted_by(pieces, stretch, ordered=True) == sorted(highest.items())


@pytest.mark.parametrize("stretch", [1, 1 << 30])
def test_rows_that_must_be_unique(stretch: int) -> None:
    pieces = [[("b", 1), ("a", 2)], [("c", 3), ("d", 4)]]
    expected = [("a", 2), ("b", 1), ("c", 3), ("d", 4)]
    assert sorted_by(pieces, stretch, unique=True) == expected
    with pytest.raises(InvalidInput, match="the id 'b' comes more than once"):
        sorted_by([*pieces, [("b", 5)]], stretch, unique=True)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InvalidInput):
        sorted_by([[("a", 1)], [("a", 2)]], 1, unique=True)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(IDS, max_size=5), st.integers(1, 7), st.integers(1, 3))
def test_duplicates_over_any_sources(sources: list[list[int]], size: int, limit: int) -> None:
    sources = [sorted(set(ids)) for ids in sources]
    every = [id for ids in sources for id in ids]
    twice = sorted(id for id in set(every) if every.count(id) > 1)
    arrays = [
        [pa.array(ids[at : at + size], pa.uint64()) for at in range(0, len(ids), size)]
        for ids in sources
    ]
    assert duplicate_ids(arrays, limit)[:limit] == twice[:limit]
    texts = [[chunk.cast(pa.string()) for chunk in source] for source in arrays]
    if all(id > 9 for id in every):  # as texts they are in the same order
        assert duplicate_ids(texts, limit)[:limit] == [str(id) for id in twice[:limit]]
    assert repeated(pa.array(every, pa.uint64()), limit) == twice[:limit]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), max_size=20))
def test_runs_are_disjoint_and_as_few_as_can_be(ranges: list[tuple[int, int]]) -> None:
    infos = [
        SegmentInfo(f"s{n}", 1, f"r{n}", 0, 1, 0, low, low + width, 0, 0, 1, 1, 1)
        for n, (low, width) in enumerate(ranges)
    ]
    placed = in_few_runs(infos)
    restored = {msgspec.structs.replace(info, run="") for info in placed}
    assert restored == {msgspec.structs.replace(info, run="") for info in infos}
    runs: dict[str, list[SegmentInfo]] = {}
    for info in placed:
        runs.setdefault(info.run, []).append(info)
    for run in runs.values():
        assert all(before.max_id < after.min_id for before, after in pairwise(run))  # type: ignore[operator]
    deepest = max(
        (sum(low <= at <= low + width for low, width in ranges) for at in range(61)), default=0
    )
    assert len(runs) == deepest

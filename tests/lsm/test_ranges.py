"""Cutting ids into ranges of about the same weight."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reef
from reef.lsm.read.ranges import WHOLE, Range, Weight, split_ranges, weigh
from reef.segment import SegmentInfo
from reef.store import MemoryStore

CASES: dict[str, tuple[list[Weight], int, list[str | int]]] = {
    "nothing to weigh": ([], 4, []),
    "weightless": ([("a", 0), ("b", 0)], 4, []),
    "one part": ([("a", 1), ("b", 1)], 1, []),
    "no parts at all": ([("a", 1), ("b", 1)], 0, []),
    "one id": ([("a", 100)], 4, []),
    "even": ([("a", 1), ("b", 1), ("c", 1), ("d", 1)], 2, ["c"]),
    "each its own": ([("a", 1), ("b", 1), ("c", 1), ("d", 1)], 4, ["b", "c", "d"]),
    "more parts than ids": ([("a", 1), ("b", 1)], 10, ["b"]),
    "unsorted, and an id twice": ([("c", 2), ("a", 2), ("c", 2), ("b", 2)], 2, ["c"]),
    "a heavy id stands alone": ([("a", 1), ("b", 100), ("c", 1), ("d", 1)], 4, ["b", "c"]),
    "a heavy id at the end": ([("a", 1), ("b", 1), ("c", 100)], 2, ["c"]),
    "no empty range before the first": ([("a", 0), ("b", 5), ("c", 5)], 2, ["c"]),
    "no empty range after the last": ([("a", 10), ("b", 0)], 3, []),
    "numbers": ([(0, 3), (10, 3), (2**63, 3)], 3, [10, 2**63]),
}


@pytest.mark.parametrize("name", CASES)
def test_cuts(name: str) -> None:
    weights, parts, cuts = CASES[name]
    ranges = split_ranges(weights, parts)
    assert [each.start for each in ranges] == [None, *cuts]
    assert [each.stop for each in ranges] == [*cuts, None]


weights_of = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=60)


def weight_in(each: Range, weights: list[tuple[int, int]]) -> int:
    return sum(
        weight
        for id, weight in weights
        if (each.start is None or id >= each.start) and (each.stop is None or id < each.stop)
    )


@settings(deadline=None)
@given(weights_of, st.integers(1, 12))
def test_ranges_cover_everything_once_and_are_balanced(
    weights: list[tuple[int, int]], parts: int
) -> None:
    ranges = split_ranges(weights, parts)
    assert 1 <= len(ranges) <= parts
    assert ranges[0].start is None
    assert ranges[-1].stop is None
    assert all(before.stop == after.start for before, after in pairwise(ranges))
    starts = [each.start for each in ranges[1:]]
    assert all(a < b for a, b in pairwise(starts))  # type: ignore[operator]
    total = sum(weight for _, weight in weights)
    by_id: dict[int, int] = {}
    for id, weight in weights:
        by_id[id] = by_id.get(id, 0) + weight
    heaviest = max(by_id.values(), default=0)
    for each in ranges:
        assert weight_in(each, weights) <= total / parts + heaviest
        assert weight_in(each, weights) > 0 or len(ranges) == 1


def info(low: str | int, high: str | int) -> SegmentInfo:
    return SegmentInfo("s", 1, "r", 0, 1, 0, low, high, 1, 1, 100, 10, 0)


@pytest.mark.parametrize(
    ("each", "low", "high", "touched"),
    [
        (WHOLE, "a", "b", True),
        (Range("c", None), "a", "b", False),
        (Range("b", None), "a", "b", True),
        (Range(None, "a"), "a", "b", False),
        (Range(None, "aa"), "a", "b", True),
        (Range("aa", "ab"), "a", "b", True),
        (Range(5, 6), 6, 9, False),
        (Range(5, 7), 6, 9, True),
    ],
)
def test_touching(each: Range, low: str | int, high: str | int, touched: bool) -> None:
    assert each.touches(info(low, high)) is touched


def test_weighing_opens_segments_only_where_they_are_too_coarse() -> None:
    store = MemoryStore()
    namespace = reef.connect(store).namespace("n", maintain=False)
    namespace.load([{"id": f"{i:06d}", "text": f"{i * 7919:0200d}"} for i in range(30_000)])
    tree = namespace._tree
    segments = tree.view.segments
    fine = weigh(segments, 4, tree.reader_of)
    assert len(fine) > 4 * len(segments)
    assert sum(weight for _, weight in fine) <= sum(each.size for each in segments)
    assert [id for id, _ in fine] == sorted(id for id, _ in fine)
    many = list(segments) * 32
    assert weigh(many, 4, _no_reader) == [(each.min_id, each.size) for each in many]
    namespace.close()


def _no_reader(info: SegmentInfo) -> None:  # type: ignore[misc]
    raise AssertionError(f"{info.key} was opened")

"""Cutting the ids of a tree into ranges with about the same amount of data each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from reef.segment import SegmentInfo, SegmentReader

Bound = str | int | None
Weight = tuple[str | int, int]
"""An id, and how many bytes begin there."""

# Segments are only opened for finer points when they alone are too coarse.
_ENOUGH_POINTS = 8


@dataclass(frozen=True)
class Range:
    """The ids with start <= id < stop; None is no bound."""

    start: Bound = None
    stop: Bound = None

    def touches(self, info: SegmentInfo) -> bool:
        """Whether a segment may hold ids of this range."""
        return (self.start is None or info.max_id >= self.start) and (  # type: ignore[operator]
            self.stop is None or info.min_id < self.stop  # type: ignore[operator]
        )


WHOLE = Range()


def split_ranges(weights: Iterable[Weight], parts: int) -> list[Range]:
    """At most `parts` ranges that cover all ids, each with about the same weight.

    A cut falls on one of the ids given, on the one nearest to where it should be; so no range
    weighs more than its share and the heaviest id together. One range of everything if there is
    nothing to weigh.
    """
    points: dict[str | int, int] = {}
    for id, weight in sorted(weights, key=lambda point: point[0]):
        points[id] = points.get(id, 0) + weight
    ids = list(points)
    before = [0, *accumulate(points.values())]
    total = before.pop()
    cuts: list[str | int] = []
    last = 0
    for part in range(1, parts if total > 0 else 0):
        due = part * total / parts
        place = bisect_left(before, due)
        if place == len(before) or due - before[place - 1] <= before[place] - due:
            place -= 1
        if before[last] < before[place] < total:
            cuts.append(ids[place])
            last = place
    bounds: list[Bound] = [None, *cuts, None]
    return [Range(start, stop) for start, stop in pairwise(bounds)]


def weigh(
    segments: Sequence[SegmentInfo],
    parts: int,
    reader_of: Callable[[SegmentInfo], SegmentReader],
) -> list[Weight]:
    """Where the bytes of segments lie: by segment when there are many, by row group otherwise."""
    if len(segments) >= parts * _ENOUGH_POINTS:
        return [(info.min_id, info.size) for info in segments]
    weights: list[Weight] = []
    for info in segments:
        reader = reader_of(info)
        for group in reader.groups():
            weights.append((reader.group_bounds(group)[0], reader.group_bytes(group)))
    return weights

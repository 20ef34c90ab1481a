"""Cutting a read into splits: ranges of ids with about the same amount of data to read each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reef.data.filter import Expression, id_range, may_match
from reef.lsm.order import find_sorted
from reef.lsm.read.ranges import WHOLE, Bound, Range, Weight, split_ranges
from reef.lsm.read.view import View
from reef.segment import SegmentReader

SPLIT_BYTES = 64 * 1024 * 1024
SMALLEST_SPLIT = 8 * 1024 * 1024

# With more segments than that their own sizes are fine enough, and opening each takes its time.
_SEGMENTS_OPENED = 512
_LOG_POINTS = 64

Concurrently = Callable[[Sequence[Callable[[], object]]], object]


@dataclass(frozen=True)
class Aim:
    """How finely to cut: into so many `splits`, if that is said, or so that one has about
    `split_bytes` and `parallelism` tasks have something to do."""

    splits: int | None = None
    split_bytes: int = SPLIT_BYTES
    parallelism: int = 1

    def count(self, total: int) -> int:
        """How many splits of that many bytes in all."""
        if self.splits is not None:
            return self.splits
        if total <= SMALLEST_SPLIT:
            return 1
        count = -(-total // self.split_bytes)
        # A last round of tasks that leaves some idle takes as long as a full one.
        rounds = -(-count // self.parallelism)
        return max(1, count, min(rounds * self.parallelism, total // SMALLEST_SPLIT))


def plan_ranges(
    view: View, filter: Expression | None, aim: Aim, concurrently: Concurrently
) -> list[Range]:
    """Disjoint ranges that hold every id whose document the filter may keep, none if there is
    nothing to read. They are cut where about the same number of bytes lies between cuts, those of
    row groups not counted that statistics rule out."""
    low, high = id_range(filter) if filter is not None else (None, None)
    if low is not None and high is not None and low >= high:  # type: ignore[operator]
        return []
    bound = Range(low, high)
    readers = [reader for run in view.runs for reader in run.readers if bound.touches(reader.info)]
    weights = _log_weights(view, bound)
    total = sum(reader.info.size for reader in readers) + sum(weight for _, weight in weights)
    if aim.count(total) > 1 or (filter is not None and readers):
        weights += _segment_weights(readers, filter, bound, concurrently)
        total = sum(weight for _, weight in weights)
    if not total:
        return []
    ranges = split_ranges(weights, aim.count(total))
    return [_within(each, bound) for each in ranges]


def _within(each: Range, bound: Range) -> Range:
    """The range, the outermost bounds taken from the filter. Cuts lie inside them."""
    return Range(
        bound.start if each.start is None else each.start,
        bound.stop if each.stop is None else each.stop,
    )


def _segment_weights(
    readers: Sequence[SegmentReader],
    filter: Expression | None,
    bound: Range,
    concurrently: Concurrently,
) -> list[Weight]:
    if len(readers) > _SEGMENTS_OPENED:
        infos = [reader.info for reader in readers]
        return [(_after(bound.start, info.min_id), info.size) for info in infos]
    concurrently([reader.tail for reader in readers if not reader.is_open()])
    weights: list[Weight] = []
    for reader in readers:
        for group in reader.groups(bound.start, bound.stop):
            first, last = reader.group_bounds(group)
            if filter is None or may_match(filter, reader.statistics(group), first, last):
                weights.append((_after(bound.start, first), reader.group_bytes(group)))
    return weights


def _after(start: Bound, id: str | int) -> str | int:
    return id if start is None else max(id, start)  # type: ignore[type-var]


def _log_weights(view: View, bound: Range) -> list[Weight]:
    """A sample of the ids that the unfolded log has in the range, with their share of its bytes."""
    memory = view.memtable.sorted()
    weights: list[Weight] = []
    for run in memory.runs:
        ids = _trimmed(run.ids, bound)
        if len(ids):
            share = max(1, view.unfolded.nbytes * len(ids) // memory.rows)
            points = min(_LOG_POINTS, len(ids))
            places = np.unique(np.linspace(0, len(ids) - 1, points).astype(np.int64))
            each = max(1, share // len(places))
            weights += [(id, each) for id in ids.take(pa.array(places)).to_pylist()]
    return weights


def _trimmed(ids: pa.Array, bound: Range) -> pa.Array:
    if bound == WHOLE:
        return ids
    first = 0 if bound.start is None else find_sorted(ids, bound.start, after=False)
    last = len(ids) if bound.stop is None else find_sorted(ids, bound.stop, after=False)
    return ids.slice(first, max(0, last - first))

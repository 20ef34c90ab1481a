"""What to compact: a pure plan over the segment list, size-tiered.

Runs are grouped into levels; a fold makes a run of level 0. A level is compacted when the smallest
of its runs, `fan_in` of them at least, together reach the level's threshold: they become one run
of the next level. The threshold grows by `fan_in` a level, so a row is rewritten about once a
level. When small runs pile up to `most_inputs` they are merged within their level, which
keeps the number of runs that a read must look at bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reef.manifest.runs import SegmentRun, Segments
from reef.segment import SegmentInfo

FIRST_THRESHOLD = 64 * 1024 * 1024


@dataclass(frozen=True)
class Compaction:
    """Merge these segments, which are whole runs, into one run of that level."""

    inputs: tuple[SegmentInfo, ...]
    level: int


def runs_by_level(segments: Iterable[SegmentInfo]) -> dict[int, list[SegmentRun]]:
    """The runs, by level."""
    levels: dict[int, list[SegmentRun]] = {}
    runs = Segments.of(segments).runs
    for run in sorted(runs, key=lambda run: (run.summary.level, run.key)):
        levels.setdefault(run.summary.level, []).append(run)
    return levels


def plan_compaction(
    segments: Iterable[SegmentInfo],
    *,
    fan_in: int,
    most_inputs: int,
    first_threshold: int = FIRST_THRESHOLD,
) -> Compaction | None:
    """The next compaction that is worth doing, the lowest level first; None when in shape."""
    picked = pick_runs(
        segments, fan_in=fan_in, most_inputs=most_inputs, first_threshold=first_threshold
    )
    if picked is None:
        return None
    runs, level = picked
    return Compaction(tuple(info for run in runs for info in run.segments), level)


def pick_runs(
    segments: Iterable[SegmentInfo],
    *,
    fan_in: int,
    most_inputs: int,
    first_threshold: int = FIRST_THRESHOLD,
) -> tuple[list[SegmentRun], int] | None:
    """The runs to compact next, and the level that they become. Decided by what the root says of
    the runs: no list of segments is read."""
    for level, runs in runs_by_level(segments).items():
        if len(runs) < fan_in:
            continue
        threshold = first_threshold * fan_in**level
        picked: list[SegmentRun] = []
        size = 0
        for run in sorted(runs, key=_size):
            picked.append(run)
            size += _size(run)
            if len(picked) >= most_inputs or (len(picked) >= fan_in and size >= threshold):
                break
        if size >= threshold or len(picked) >= most_inputs:
            return picked, level + 1 if size >= threshold else level
    return None


def plan_full_compaction(segments: Iterable[SegmentInfo]) -> Compaction | None:
    """Everything into one run; None when it is one already, without tombstones."""
    levels = runs_by_level(segments)
    runs = [run for level in levels.values() for run in level]
    if not runs or (len(runs) == 1 and not runs[0].summary.tombstones):
        return None
    return Compaction(tuple(segments), max(max(levels), 1))


def _size(run: SegmentRun) -> int:
    return run.summary.size

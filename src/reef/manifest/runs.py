"""The live segments of a root, grouped into runs that keep their identity from root to root.

A run is what one job wrote: segments with disjoint id ranges. Publications nearly always add and
remove whole runs, so whatever is derived from a run (its readers, its bounds) is made once and kept
for as long as the run lives, and a publication costs as much as it changes, not as there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import overload

import msgspec

from reef.segment.info import SegmentInfo


class RunSummary(msgspec.Struct, frozen=True, array_like=True):
    """What planning needs to know of some segments of one run without reading their list."""

    run: str
    lsn: int
    level: int
    segments: int
    rows: int
    tombstones: int
    size: int
    min_lsn: int
    max_lsn: int


def summarize(segments: Sequence[SegmentInfo]) -> RunSummary:
    """The summary of segments of one run, of which there is one at least."""
    first = segments[0]
    return RunSummary(
        first.run,
        first.lsn,
        first.level,
        len(segments),
        sum(info.rows for info in segments),
        sum(info.tombstones for info in segments),
        sum(info.size for info in segments),
        min(info.min_lsn for info in segments),
        max(info.max_lsn for info in segments),
    )


def combine(summaries: Sequence[RunSummary]) -> RunSummary:
    """One summary for all, which are of one run."""
    first = summaries[0]
    return RunSummary(
        first.run,
        first.lsn,
        first.level,
        sum(part.segments for part in summaries),
        sum(part.rows for part in summaries),
        sum(part.tombstones for part in summaries),
        sum(part.size for part in summaries),
        min(part.min_lsn for part in summaries),
        max(part.max_lsn for part in summaries),
    )


class SegmentRun:
    """The segments of one run. Compared by identity; never changed.

    `homes` are the ids of the list objects that name its segments, and how many each names; it is
    empty where the root itself names them.
    """

    def __init__(
        self,
        segments: tuple[SegmentInfo, ...] | Callable[[], tuple[SegmentInfo, ...]],
        summary: RunSummary | None = None,
        homes: dict[str, int] | None = None,
    ) -> None:
        self._segments = segments
        self._summary = summary
        self.homes = homes or {}

    @cached_property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Its segments, read from their lists the first time that somebody asks."""
        return self._segments() if callable(self._segments) else self._segments

    @cached_property
    def summary(self) -> RunSummary:
        """What is known without reading lists."""
        return self._summary or summarize(self.segments)

    @cached_property
    def key(self) -> tuple[str, int]:
        """What its segments have in common: run and LSN. A load that is named twice is two runs."""
        return self.summary.run, self.summary.lsn

    def __len__(self) -> int:
        return self.summary.segments

    def __repr__(self) -> str:
        return f"SegmentRun({self.key!r}, {len(self)} segments)"


class Segments(Sequence[SegmentInfo]):
    """All live segments of a root, run after run."""

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[SegmentRun] = ()) -> None:
        self.runs = tuple(runs)

    @staticmethod
    def of(infos: Iterable[SegmentInfo]) -> Segments:
        """Segments in any order; those of a run keep the order they have."""
        if isinstance(infos, Segments):
            return infos
        by_run: dict[tuple[str, int], list[SegmentInfo]] = {}
        for info in infos:
            by_run.setdefault((info.run, info.lsn), []).append(info)
        return Segments(SegmentRun(tuple(some)) for some in by_run.values())

    @property
    def named(self) -> tuple[SegmentInfo, ...]:
        """Those that no list names, so that the root must."""
        return tuple(info for run in self.runs if not run.homes for info in run.segments)

    def __iter__(self) -> Iterator[SegmentInfo]:
        return chain.from_iterable(run.segments for run in self.runs)

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    @overload
    def __getitem__(self, place: int) -> SegmentInfo: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[SegmentInfo, ...]: ...
    def __getitem__(self, place: int | slice) -> SegmentInfo | tuple[SegmentInfo, ...]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Segments) and self.runs == other.runs:
            return True
        return isinstance(other, Segments | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return Segments.of, (tuple(self),)

    def __repr__(self) -> str:
        return f"Segments({list(self.runs)!r})"

    def plus(self, infos: Iterable[SegmentInfo]) -> Segments:
        """These and others. Runs that are there already stay the same objects, unless they grow."""
        added = {run.key: run for run in Segments.of(infos).runs}
        runs = []
        for run in self.runs:
            more = added.pop(run.key, None)
            runs.append(run if more is None else SegmentRun((*run.segments, *more.segments)))
        return Segments((*runs, *added.values()))

    def minus(self, infos: Iterable[SegmentInfo]) -> Segments:
        """These without others, told by their ids. Runs that lose nothing stay the same objects."""
        gone: dict[tuple[str, int], set[str]] = {}
        for info in infos:
            gone.setdefault((info.run, info.lsn), set()).add(info.id)
        runs: list[SegmentRun] = []
        for run in self.runs:
            ids = gone.get(run.key)
            left = () if ids is None else [info for info in run.segments if info.id not in ids]
            if ids is None or len(left) == len(run):
                runs.append(run)
            elif left:
                runs.append(SegmentRun(tuple(left)))
        return Segments(runs)

    def holds(self, infos: Iterable[SegmentInfo]) -> bool:
        """Whether all of them are here, told by their ids."""
        wanted: dict[tuple[str, int], set[str]] = {}
        for info in infos:
            wanted.setdefault((info.run, info.lsn), set()).add(info.id)
        for run in self.runs:
            ids = wanted.get(run.key)
            if ids is not None:
                ids.difference_update([info.id for info in run.segments])
        return not any(wanted.values())

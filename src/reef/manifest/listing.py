"""Which segments a root names itself and which by lists: a pure plan over a root's runs.

A root names few segments itself, so that a publication stays small whatever there is. A list that
was written is used as long as all it names is live; a publication writes lists only for what is
new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from reef.errors import Corruption, ObjectNotFound
from reef.manifest.lists import MOST_SEGMENTS, ListInfo, encode_segments
from reef.manifest.runs import RunSummary, SegmentRun, Segments, combine
from reef.segment.info import SegmentInfo

LARGE_RUN = 64
"""A run of so many segments gets lists of its own."""

SMALL_RUN = 8
"""A run of fewer never does. If there are so many of them that the root cannot name them all, they
share lists."""

MOST_NAMED = 256
"""How many segments a root names itself at most."""


@dataclass(frozen=True)
class Listing:
    """The same segments, arranged: those that the root names itself, the lists that name the rest,
    and the lists among them that must be written first, with their bytes."""

    segments: Segments
    named: tuple[SegmentInfo, ...]
    lists: tuple[ListInfo, ...]
    fresh: tuple[tuple[ListInfo, bytes], ...]


def arrange(
    segments: Segments, lists: Sequence[ListInfo], *, birth: int, make_id: Callable[[], str]
) -> Listing:
    """Decide where each segment is named. `lists` are those that the root before used."""
    usable = {info.id: info for info in lists}
    runs = list(segments.runs)
    while True:
        counts: Counter[str] = Counter()
        for run in runs:
            counts.update(run.homes)
        broken = {id for id, info in usable.items() if counts[id] != info.items}
        if not broken:
            break
        # Whatever shares a list with something that is gone is named anew.
        usable = {id: info for id, info in usable.items() if id not in broken}
        runs = [
            run if usable.keys() >= run.homes.keys() else SegmentRun(run.segments) for run in runs
        ]
    fresh: list[tuple[ListInfo, bytes]] = []

    def write(some: Sequence[SegmentInfo]) -> list[ListInfo]:
        written = []
        for start in range(0, len(some), MOST_SEGMENTS):
            data, info = encode_segments(some[start : start + MOST_SEGMENTS], make_id(), birth)
            fresh.append((info, data))
            written.append(info)
        return written

    named = sum(len(run) for run in runs if not run.homes)
    arranged: list[SegmentRun] = []
    for run in sorted(runs, key=len, reverse=True):
        large = len(run) >= (LARGE_RUN if named <= MOST_NAMED else SMALL_RUN)
        if large and not run.homes:
            named -= len(run)
            homes = {info.id: info.items for info in write(run.segments)}
            run = SegmentRun(run.segments, run.summary, homes)
        arranged.append(run)
    loose = [run for run in arranged if not run.homes]
    if named > MOST_NAMED:
        arranged = [run for run in arranged if run.homes]
        for group in _groups(loose):
            together = [info for run in group for info in run.segments]
            (info,) = write(together)
            arranged += [
                SegmentRun(run.segments, run.summary, {info.id: len(run)}) for run in group
            ]
        loose = []
    kept = [info for info in lists if info.id in usable]
    return Listing(
        Segments(arranged),
        tuple(info for run in loose for info in run.segments),
        (*kept, *(info for info, _ in fresh)),
        tuple(fresh),
    )


def _groups(runs: Iterable[SegmentRun]) -> list[list[SegmentRun]]:
    """Small runs in groups that fit into a list each."""
    groups: list[list[SegmentRun]] = []
    room = 0
    for run in runs:
        if len(run) > room:
            groups.append([])
            room = MOST_SEGMENTS
        groups[-1].append(run)
        room -= len(run)
    return groups


def gather(
    named: Iterable[SegmentInfo],
    lists: Sequence[ListInfo],
    read: Callable[[ListInfo], tuple[SegmentInfo, ...]],
) -> Segments:
    """All segments of a root, given those that it names itself and how to read a list. A list is
    read when segments that it names are asked for."""
    listed: dict[tuple[str, int], list[_Part]] = {}
    for info in lists:
        start = 0
        for summary in info.runs:
            part = _Part(info, start, summary)
            listed.setdefault((summary.run, summary.lsn), []).append(part)
            start += summary.segments
    return Segments((*Segments.of(named).runs, *(_run(parts, read) for parts in listed.values())))


@dataclass(frozen=True)
class _Part:
    """The segments of one run that a list names, from place `start` on."""

    list: ListInfo
    start: int
    summary: RunSummary


def _run(parts: list[_Part], read: Callable[[ListInfo], tuple[SegmentInfo, ...]]) -> SegmentRun:
    def load() -> tuple[SegmentInfo, ...]:
        return tuple(
            segment
            for part in parts
            for segment in read(part.list)[part.start : part.start + part.summary.segments]
        )

    homes = {part.list.id: part.summary.segments for part in parts}
    return SegmentRun(load, combine([part.summary for part in parts]), homes)


def members(segments: Segments, lists: Iterable[ListInfo]) -> dict[str, list[SegmentInfo]]:
    """What each of those lists names, by its id, given the segments of a root that uses them. One
    that is damaged or gone is said to name nothing."""
    named: dict[str, list[SegmentInfo]] = {info.id: [] for info in lists}
    for run in segments.runs:
        if named.keys().isdisjoint(run.homes):
            continue
        try:
            run.segments  # noqa: B018
        except (Corruption, ObjectNotFound):
            continue
        start = 0
        for id, count in run.homes.items():
            if id in named:
                named[id] += run.segments[start : start + count]
            start += count
    return named

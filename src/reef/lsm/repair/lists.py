"""Lists of segments: found damaged or gone, and made anew.

A list says nothing that the segments do not say themselves: a segment's footer has its run, and the
root has how many segments, rows and bytes of each run a list names. So a lost list is put together
from the segments of its runs that nothing else names, if they amount to exactly that. A lost list
of what was superseded is only forgotten: what it kept becomes orphans, and its history is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from reef.errors import ConcurrentPublication, Corruption, ObjectNotFound, UnsupportedFormat
from reef.lsm.tree import Tree
from reef.manifest import Head, Manifest, Retired, Segments
from reef.manifest.lists import ListInfo
from reef.manifest.runs import SegmentRun, summarize
from reef.segment import Problem, SegmentInfo, birth_of, describe
from reef.segment.info import PREFIX as SEGMENT_PREFIX


@dataclass(frozen=True)
class BrokenLists:
    """Lists of the newest manifest that cannot be read: of live segments, and of what was
    superseded, each with what is wrong with it."""

    head: Head[Manifest]
    live: dict[ListInfo, Problem]
    retired: dict[ListInfo, Problem]

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, list by list."""
        return [*self.live.values(), *self.retired.values()]


def find_broken_lists(head: Head[Manifest]) -> BrokenLists | None:
    """Read every list that a manifest names; None if all are whole."""
    manifest = head.manifest
    live: dict[ListInfo, Problem] = {}
    retired: dict[ListInfo, Problem] = {}
    lists = {info.id: info for info in manifest.lists}
    for run in manifest.segments.runs:
        problem = _problem_of(lambda run=run: run.segments)  # type: ignore[misc]
        if problem is not None:
            live |= {info: problem for info in lists.values() if info.key == problem.key}
    for group in manifest.superseded.groups:
        problem = _problem_of(lambda group=group: group.entries)  # type: ignore[misc]
        if problem is not None:
            retired[group.name.list] = problem
    return BrokenLists(head, live, retired) if live or retired else None


def _problem_of(read: Callable[[], object]) -> Problem | None:
    try:
        read()
    except ObjectNotFound as gone:
        return Problem(_below(gone.key), 0, "the list of segments is missing")
    except Corruption as damage:
        return Problem(damage.key, damage.offset, damage.reason)
    return None


def _below(key: str) -> str:
    """A list's key below the namespace's prefix."""
    return key[key.rindex("lists/") :]


def actions(broken: BrokenLists) -> list[str]:
    """What repair does about them, for people."""
    return [
        f"make {info.key} anew from the segments that it names: {problem.meaning}"
        for info, problem in broken.live.items()
    ] + [
        f"forget what {info.key} names, which only older generations need: {problem.meaning}"
        for info, problem in broken.retired.items()
    ]


def repair_lists(tree: Tree, broken: BrokenLists) -> list[tuple[int, int]]:
    """Publish the same segments under fresh lists. Returns the LSNs between which rows may be lost,
    because segments that a list named are damaged or gone, too.

    Raises `Corruption` if it cannot be told which segments a list named, and
    `ConcurrentPublication` if the lists were replaced meanwhile.
    """
    remade = _remade(tree, broken) if broken.live else {}
    runs = [run for run in broken.head.manifest.segments.runs if run.key in remade]
    lost = {info.id for info in broken.retired}

    def edit(newest: Manifest) -> Manifest:
        present = {info.id for info in newest.lists}
        if not all(info.id in present for info in broken.live):
            raise ConcurrentPublication(
                "the lists were changed while they were repaired; try again"
            )
        segments = Segments(remade.get(run.key, run) for run in newest.segments.runs)
        superseded = newest.superseded
        groups = [group for group in superseded.groups if group.name.list.id not in lost]
        return msgspec.structs.replace(
            newest, segments=segments, superseded=Retired(superseded.named, groups)
        )

    tree.register.publish(edit, broken.head)
    return [
        (run.summary.min_lsn, run.summary.max_lsn)
        for run in runs
        if len(remade[run.key]) < len(run)
    ]


def _remade(tree: Tree, broken: BrokenLists) -> dict[tuple[str, int], SegmentRun]:
    """The runs that have segments in broken lists, with all their segments in hand."""
    manifest = broken.head.manifest
    ids = {info.id for info in broken.live}
    incomplete = [run for run in manifest.segments.runs if not ids.isdisjoint(run.homes)]
    unnamed = _unnamed(tree, broken, incomplete)
    remade = {}
    for run in incomplete:
        members = _members(run, unnamed)
        if members is None:
            lost = next(info for info in broken.live if info.id in run.homes)
            raise Corruption(
                lost.key,
                f"{broken.live[lost].meaning}, and the {len(run)} segments of a run that it names"
                " cannot be told from others; rebuild may help",
            )
        remade[run.key] = SegmentRun(members)
    return remade


def _unnamed(
    tree: Tree, broken: BrokenLists, incomplete: Sequence[SegmentRun]
) -> list[SegmentInfo]:
    """Segments of the bucket that nothing names that can be read, as they describe themselves."""
    manifest = broken.head.manifest
    named = {info.key for info in manifest.window}
    named |= {
        info.key for run in manifest.segments.runs if run not in incomplete for info in run.segments
    }
    named |= {entry.key for entry in manifest.superseded.named}
    for group in manifest.superseded.groups:
        if group.name.list not in broken.retired:
            named |= {entry.key for entry in group.entries}
    found = []
    for listed in tree.store.list(SEGMENT_PREFIX):
        if birth_of(listed.key) is None or listed.key in named:
            continue
        try:
            info = describe(tree.store, listed.key)
        except (Corruption, ObjectNotFound, UnsupportedFormat):
            continue
        if info.key == listed.key:
            found.append(info)
    return found


def _members(run: SegmentRun, unnamed: Sequence[SegmentInfo]) -> tuple[SegmentInfo, ...] | None:
    """The segments of a run among others: those that its name is written in; or, if it is a load
    whose parts were given one name afterwards, those of a load, if they amount to what the manifest
    says of the run."""
    name, lsn = run.key
    own = [_placed(info, name, lsn) for info in unnamed if info.run == name]
    loaded = [_placed(info, name, lsn) for info in unnamed if lsn and not info.max_lsn]
    for candidates in (own, loaded):
        if candidates and summarize(candidates) == run.summary:
            return _in_order(candidates)
    return _in_order(own) if 0 < len(own) < len(run) else None


def _in_order(segments: list[SegmentInfo]) -> tuple[SegmentInfo, ...]:
    return tuple(sorted(segments, key=lambda info: info.min_id))


def _placed(info: SegmentInfo, run: str, lsn: int) -> SegmentInfo:
    """As a run names it: what was loaded takes the LSN of its record."""
    if not lsn:
        return info
    return msgspec.structs.replace(info, run=run, lsn=lsn, min_lsn=lsn, max_lsn=lsn)

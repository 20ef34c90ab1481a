"""What upkeep a tree needs next: a pure function over its root, its unfolded log, options and time.

Folding goes first, since writers may wait for it. Compaction waits for a pause in the writing: it
would take half of the machine away from it. It does not wait when runs pile up. Garbage is
collected every so often, when there is any.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from reef.lsm.options import Options
from reef.lsm.unfolded import Unfolded
from reef.lsm.upkeep.compaction import pick_runs
from reef.manifest import Manifest
from reef.manifest.runs import Segments

PAUSE = 0.2
"""Seconds without a write that are taken for a pause in the writing."""


class Pass(StrEnum):
    """A kind of background work, done one pass at a time."""

    FOLD = "fold"
    COMPACT = "compact"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Activity:
    """When the process last wrote to the tree, and last collected its garbage, in seconds of its
    own monotonic clock."""

    wrote: float = -inf
    collected: float = -inf


@dataclass(frozen=True, slots=True)
class Due:
    """A pass, and from when on it is due. `NEVER`: nothing until something changes."""

    work: Pass | None
    at: float


NEVER = Due(None, inf)


def next_pass(
    root: Manifest,
    unfolded: Unfolded,
    options: Options,
    activity: Activity,
    now: float,
    among: Collection[Pass] = tuple(Pass),
) -> Due:
    """The pass to do next, of those kinds: the most urgent of what is due by now, or else
    whatever is due first."""
    found = [
        Due(kind, at)
        for kind, at in (
            (Pass.FOLD, now if unfolded.wants_folding(options) else inf),
            (Pass.COMPACT, _compaction(root, options, activity, now)),
            (Pass.COLLECT, _collection(root, options, activity)),
        )
        if kind in among and at < inf
    ]
    # Of several that are due the first of the list is picked, for min() keeps their order.
    return min(found, key=lambda due: max(due.at, now), default=NEVER)


def _compaction(root: Manifest, options: Options, activity: Activity, now: float) -> float:
    picked = pick_runs(root.segments, fan_in=options.fan_in, most_inputs=options.most_inputs)
    if picked is None:
        return inf
    if len(Segments.of(root.segments).runs) >= 2 * options.most_inputs:
        return now
    return max(now, activity.wrote + PAUSE)


def _collection(root: Manifest, options: Options, activity: Activity) -> float:
    if not root.superseded and not root.folded:
        return inf
    return activity.collected + options.collect_seconds

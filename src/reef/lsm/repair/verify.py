"""Verifying: every object that the namespace relies on, held against what it should be."""

from __future__ import annotations

from dataclasses import dataclass

from reef.log import WAL
from reef.lsm.repair.health import ListsUnreadable, Progress, Unreadable, examine
from reef.lsm.retention.reachability import reachable_segments
from reef.lsm.tree import Tree
from reef.lsm.upkeep.executor import Executor
from reef.manifest import MANIFESTS
from reef.segment import Problem, birth_of


@dataclass(frozen=True)
class Report:
    """What was looked at and what was wrong with it. `orphans` are no problem, only garbage."""

    problems: tuple[Problem, ...]
    manifests: int
    log_objects: int
    segments: int
    orphans: int
    deep: bool

    @property
    def sound(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems


def verify(
    tree: Tree,
    *,
    deep: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Report:
    """Check manifests, the log and the segments, also those that only retained generations need;
    with `deep` every block of every segment, its statistics included.

    A log slot that a later entry gives up is no problem any more. The executor, if there is one,
    checks the segments.
    """
    try:
        health = examine(tree, deep=deep, progress=progress, executor=executor)
    except Unreadable as found:
        broken = (*found.problems, Problem("manifest/", 0, str(found.error)))
        return Report(broken, found.generations, found.log_objects, 0, 0, deep)
    except ListsUnreadable as found:
        return Report(tuple(found.broken.problems), 0, 0, 0, 0, deep)
    log = health.log
    problems = [*health.damaged_generations.values(), *health.newer_generations.values()]
    problems += health.missing_generations.values()
    if health.hint is not None:
        problems.append(health.hint)
    problems += health.board_damage
    if log.last_is_damaged:
        (damage,) = log.damaged.values()
        meaning = f"{damage.meaning}; taken as never committed, being the last of the log"
        problems.append(Problem(damage.key, damage.offset, meaning))
    else:
        problems += log.damaged.values()
    if log.stop is not None:
        problems.append(log.stop)
    problems += log.folded_damaged.values()
    problems += [problem for found in health.segments.values() for problem in found]
    manifest = health.head.manifest
    named = reachable_segments(manifest, log.unfolded.named)
    orphans = [i for i in health.objects if birth_of(i.key) is not None and i.key not in named]
    return Report(
        tuple(dict.fromkeys(problems)),
        sum(MANIFESTS.generation_of(info.key) is not None for info in health.objects),
        sum(WAL.lsn_of(info.key) is not None for info in health.objects),
        len(health.live),
        len(orphans),
        deep,
    )

"""Compacting: several runs become one, and a publication swaps them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from reef.errors import ConcurrentPublication
from reef.lsm.tree import Tree
from reef.lsm.upkeep.compaction import Compaction, plan_compaction, plan_full_compaction
from reef.lsm.upkeep.executor import Executor, LocalExecutor
from reef.lsm.upkeep.overtaken import overtaken
from reef.lsm.upkeep.rewrite import rewrite
from reef.lsm.write.upload import check_not_condemned
from reef.manifest import Manifest, Superseded, take_over
from reef.manifest.register import Head


@dataclass(frozen=True)
class Compacted:
    """What a pass did."""

    level: int
    inputs: int
    outputs: int
    rows: int
    bytes_read: int
    bytes_written: int
    generation: int
    head: Head[Manifest] = field(repr=False, compare=False)


def compact(
    tree: Tree, *, full: bool = False, executor: Executor | None = None
) -> Compacted | None:
    """One pass: do the compaction that the planner picks (everything into one run if `full`).

    The executor merges ranges of ids; this process plans before and publishes afterwards.

    None when there is nothing to do. Raises `ConcurrentPublication` when another compactor or a
    truncating load took the inputs away meanwhile; what was written is an orphan then.
    """
    head = tree.register.head()
    if _plan(tree, head.manifest, full) is None:
        return None
    epoch, head = take_over(tree.register, "compactor_epoch", head)
    plan = _plan(tree, head.manifest, full)
    if plan is None:
        return None
    manifest = head.manifest
    names = {info.id for info in plan.inputs}
    newest_input = max(info.max_lsn for info in plan.inputs)
    older = [
        info for info in manifest.segments if info.id not in names and info.min_lsn < newest_input
    ]
    with overtaken(tree, manifest):
        outputs = rewrite(
            tree,
            executor or LocalExecutor(tree),
            plan.inputs,
            older,
            schema=manifest.parsed_schema(),
            birth=manifest.generation,
            level=plan.level,
            what="compacting",
        )

    def swap(newest: Manifest) -> Manifest:
        if newest.compactor_epoch != epoch:
            raise ConcurrentPublication(
                f"compactor epoch {epoch} was superseded by {newest.compactor_epoch}"
            )
        if not newest.segments.holds(plan.inputs):
            raise ConcurrentPublication("the segments being compacted are not live any more")
        check_not_condemned(newest.orphan_floor, outputs)
        return msgspec.structs.replace(
            newest,
            segments=newest.segments.minus(plan.inputs).plus(outputs),
            superseded=newest.superseded.plus(
                Superseded(info.key, newest.generation) for info in plan.inputs
            ),
        )

    published = tree.register.publish(swap, head)
    return Compacted(
        plan.level,
        len(plan.inputs),
        len(outputs),
        sum(info.rows for info in outputs),
        sum(info.size for info in plan.inputs),
        sum(info.size for info in outputs),
        published.manifest.generation,
        published,
    )


def _plan(tree: Tree, manifest: Manifest, full: bool) -> Compaction | None:
    if full:
        return plan_full_compaction(manifest.segments)
    return plan_compaction(
        manifest.segments, fan_in=tree.options.fan_in, most_inputs=tree.options.most_inputs
    )

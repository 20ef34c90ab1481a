"""Compacting: several runs become one, and a publication swaps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from reef.errors import Closed, ConcurrentPublication
from reef.lsm.compaction import Compaction, plan_compaction, plan_full_compaction
from reef.lsm.merge import merge
from reef.lsm.tombstones import tombstone_filter
from reef.lsm.tree import Tree
from reef.lsm.upload import check_not_condemned, upload_segments
from reef.lsm.view import Run, runs_of
from reef.manifest import Manifest, Superseded
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
    head: Head = field(repr=False, compare=False)


def compact(tree: Tree, *, full: bool = False) -> Compacted | None:
    """One pass: do the compaction that the planner picks (everything into one run if `full`).

    None when there is nothing to do. Raises `ConcurrentPublication` when another compactor or a
    truncating load took the inputs away meanwhile; what was written is an orphan then.
    """
    head = tree.register.head()
    if _plan(tree, head.manifest, full) is None:
        return None
    epoch = 0

    def take_over(manifest: Manifest) -> Manifest:
        nonlocal epoch
        epoch = manifest.compactor_epoch + 1
        return msgspec.structs.replace(manifest, compactor_epoch=epoch)

    head = tree.register.publish(take_over, head)
    plan = _plan(tree, head.manifest, full)
    if plan is None:
        return None
    manifest = head.manifest
    names = {info.id for info in plan.inputs}
    newest_input = max(info.max_lsn for info in plan.inputs)
    drop_tombstones = tombstone_filter(
        info for info in manifest.segments if info.id not in names and info.min_lsn < newest_input
    )
    outputs = upload_segments(
        _rows(tree, runs_of(plan.inputs, tree.reader_of), drop_tombstones),
        manifest.parsed_schema(),
        store=tree.store,
        environment=tree.environment,
        birth=manifest.generation,
        level=plan.level,
        target_bytes=tree.options.segment_bytes,
    )

    def swap(newest: Manifest) -> Manifest:
        if newest.compactor_epoch != epoch:
            raise ConcurrentPublication(
                f"compactor epoch {epoch} was superseded by {newest.compactor_epoch}"
            )
        if not names <= {info.id for info in newest.segments}:
            raise ConcurrentPublication("the segments being compacted are not live any more")
        check_not_condemned(newest.orphan_floor, outputs)
        staying = tuple(info for info in newest.segments if info.id not in names)
        return msgspec.structs.replace(
            newest,
            segments=(*staying, *outputs),
            superseded=(
                *newest.superseded,
                *(Superseded(info.key, newest.generation) for info in plan.inputs),
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


def _rows(
    tree: Tree, runs: Iterable[Run], drop_tombstones: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in merge([run.rows() for run in runs], keep_tombstones=True):
        if tree.closing:
            raise Closed("the compaction was given up because the namespace is being closed")
        kept = drop_tombstones(batch)
        if kept.num_rows:
            yield kept

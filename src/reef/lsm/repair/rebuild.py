"""Rebuilding: all derived state made anew from what the bucket holds.

With manifests, from the newest generation that is whole and the log since: everything becomes one
fresh run, and reads the same as before. Without any, from the segments and log objects that are
left: see `reef.lsm.repair.leftovers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from reef.data.schema import Schema
from reef.errors import ConcurrentPublication, Corruption, ObjectNotFound
from reef.log.tail import MissingSlot
from reef.lsm.read.merge import merge
from reef.lsm.read.view import runs_of
from reef.lsm.repair.health import Health, ListsUnreadable, Progress, Unreadable, examine, needs
from reef.lsm.repair.leftovers import Leftovers, gather_leftovers
from reef.lsm.repair.restore import check_log_kept, find_base, restore
from reef.lsm.tree import Tree
from reef.lsm.upkeep.executor import Executor, LocalExecutor
from reef.lsm.upkeep.rewrite import rewrite
from reef.lsm.write.idempotency import KEYS_SCHEMA
from reef.lsm.write.upload import check_not_condemned, upload_segments
from reef.manifest import LogSpan, Manifest, Retired, Settings, Superseded
from reef.manifest.register import Head
from reef.manifest.runs import Segments
from reef.segment import SegmentInfo


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild made, out of what. `base` is the generation that it started from, 0 if there
    was none; `unused` says what could not be used and why, and what could not be decided."""

    generation: int
    base: int
    rows: int
    segments: int
    source_segments: int
    log_slots: int
    actions: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def rebuild(
    tree: Tree,
    *,
    name: str = "",
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Rebuilt:
    """Make all segments anew and publish them.

    Raises `Corruption` when the manifests can be read but no generation of them is whole, or the
    log since then is not: `repair` first. `name` is the namespace's, wanted when no manifest is
    left to say it. The executor checks segments and merges ranges of ids.
    """
    executor = executor or LocalExecutor(tree)
    try:
        health = examine(tree, deep=True, progress=progress, executor=executor)
    except Unreadable:
        return _from_leftovers(tree, name or tree.store.url.partition("?")[0].rpartition("/")[2])
    except ListsUnreadable as found:
        raise found.error from None
    return _from_generation(tree, health, executor)


def _from_generation(tree: Tree, health: Health, executor: Executor) -> Rebuilt:
    seen = health.head.manifest
    log = health.log
    for problem in (log.stop, *log.damaged.values()):
        if problem is not None and not log.last_is_damaged:
            raise Corruption(problem.key, f"{problem.meaning}; repair the log first")
    broken = [info for info in log.unfolded.ingests if not health.is_sound([info])]
    base = find_base(health)
    if base is None or broken:
        first = broken[0] if broken else next(i for i in needs(seen) if health.segments[i.key])
        reason = health.segments[first.key][0].meaning
        raise Corruption(first.key, f"{reason}; no generation is whole without it, repair first")
    last = log.next_lsn - 1 - log.last_is_damaged
    birth = health.head.slot
    try:
        restored = restore(tree, base, last, birth, {})
        rows = rewrite(
            tree,
            executor,
            restored.segments,
            None,
            schema=restored.schema,
            birth=birth,
            level=1,
            what="rebuilding",
        )
        windows = runs_of(restored.window, tree.reader_of)
        window = _upload(tree, merge([run.rows() for run in windows]), KEYS_SCHEMA, birth, 0)
    except (ObjectNotFound, MissingSlot) as gone:
        if tree.register.head(lone_hint=True).slot == birth:
            raise
        # It was there a moment ago: what a slow rebuild needs, or has written, was collected.
        raise ConcurrentPublication(f"{gone}; it was collected meanwhile, try again") from None

    def edit(newest: Manifest) -> Manifest:
        before = (seen.segments, seen.window, seen.wal_floor)
        if before != (newest.segments, newest.window, newest.wal_floor):
            raise ConcurrentPublication("the tree was changed while it was rebuilt; try again")
        check_not_condemned(newest.orphan_floor, (*rows, *window))
        check_log_kept(newest, base)
        schema = newest.parsed_schema().extended(
            restored.schema.attributes, restored.schema.id_kind
        )
        folded = newest.folded
        if last >= newest.wal_floor:
            folded = (*folded, LogSpan(newest.wal_floor, last, newest.generation))
        gone = [Superseded(info.key, newest.generation) for info in needs(newest)]
        ingested = [
            Superseded(info.key, newest.generation)
            for info in log.unfolded.named
            if health.is_sound([info])
        ]
        return msgspec.structs.replace(
            newest.with_schema(schema),
            # Compactors at work are superseded, as their inputs are.
            compactor_epoch=newest.compactor_epoch + 1,
            segments=Segments.of(rows),
            window=tuple(window),
            wal_floor=last + 1,
            last_applied_lsn=last,
            orphan_floor=max(newest.orphan_floor, restored.orphan_floor),
            superseded=(*newest.superseded, *gone, *ingested),
            folded=folded,
        )

    head = tree.register.publish(edit, health.lone_head)
    tree.store.delete_many([info.key for info in restored.fresh])
    return _report(
        head,
        base.generation,
        rows,
        len(restored.segments) - sum(info in restored.fresh for info in restored.segments),
        last - base.wal_floor + 1,
        (f"rebuilt from generation {base.generation} and log slots {base.wal_floor} to {last}",),
        (),
    )


def _from_leftovers(tree: Tree, name: str) -> Rebuilt:
    leftovers = gather_leftovers(tree)
    birth = leftovers.generation
    rows = _upload(tree, leftovers.rows(), leftovers.schema, birth, 1)
    window = _upload(tree, leftovers.window_rows(), KEYS_SCHEMA, birth, 0)
    manifest = Manifest(
        generation=birth + 1,
        namespace=name,
        created_at=tree.environment.now(),
        publisher=tree.identity,
        nonce=tree.environment.nonce(),
        settings=Settings(),
        writer_epoch=leftovers.epoch,
        wal_floor=leftovers.last_lsn + 1,
        last_applied_lsn=leftovers.last_lsn,
        segments=Segments.of(rows),
        window=tuple(window),
        # Nothing that was under way before is let in any more.
        orphan_floor=birth + 1,
        # What is damaged is no history that could be read: it is garbage.
        superseded=Retired(
            Superseded(key, birth + 1) for key in leftovers.keys if key not in leftovers.damaged
        ),
        folded=_spans(leftovers, birth + 1),
    ).with_schema(leftovers.schema)
    head = tree.register.create(manifest)
    tree.life = manifest.life
    return _report(
        head,
        0,
        rows,
        len(leftovers.segments),
        leftovers.log_slots,
        (f"rebuilt from the objects alone, as generation {birth + 1}, with default settings",),
        tuple(leftovers.unused),
    )


def _spans(leftovers: Leftovers, generation: int) -> tuple[LogSpan, ...]:
    if leftovers.first_lsn > leftovers.last_lsn:
        return ()
    return (LogSpan(leftovers.first_lsn, leftovers.last_lsn, generation),)


def _upload(
    tree: Tree, rows: Iterator[pa.RecordBatch], schema: Schema, birth: int, level: int
) -> list[SegmentInfo]:
    return upload_segments(
        rows,
        schema,
        store=tree.store,
        environment=tree.environment,
        birth=birth,
        level=level,
        target_bytes=tree.options.segment_bytes,
    )


def _report(
    head: Head[Manifest],
    base: int,
    rows: Sequence[SegmentInfo],
    sources: int,
    slots: int,
    actions: tuple[str, ...],
    unused: tuple[str, ...],
) -> Rebuilt:
    return Rebuilt(
        head.manifest.generation,
        base,
        sum(info.rows for info in rows),
        len(rows),
        sources,
        slots,
        actions,
        unused,
    )

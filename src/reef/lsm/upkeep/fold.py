"""Folding: the log's oldest entries become segments, and the floor rises past them.

One pass takes log entries up to a size limit, resolves patches against the versions below them,
writes one sorted run, and publishes. Only the publication changes what is visible; a pass that
dies before it leaves orphans, and the next pass folds the same slots again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial

import msgspec

from reef.data.plain import as_batch, ids_of
from reef.data.rows import ID
from reef.data.schema import Schema
from reef.errors import ConcurrentPublication, Fenced
from reef.log import LogTail
from reef.log.tail import MissingSlot, heeding_skips
from reef.lsm.gathered import Gathered
from reef.lsm.order import inside
from reef.lsm.read.merge import merge
from reef.lsm.read.ranges import WHOLE, Range, split_ranges
from reef.lsm.read.view import newest_first, runs_of
from reef.lsm.records import WITHOUT_ROWS, Record, records_of
from reef.lsm.tree import Tree, unfolded_above
from reef.lsm.unfolded import Remembered, Unfolded
from reef.lsm.upkeep.executor import Executor, LocalExecutor
from reef.lsm.upkeep.overtaken import overtaken
from reef.lsm.upkeep.resolved import resolved
from reef.lsm.upkeep.tombstones import tombstone_filter
from reef.lsm.write.idempotency import KEYS_SCHEMA, MOST_SEGMENTS, rows_of, trimmed
from reef.lsm.write.upload import check_not_condemned, upload_segments
from reef.manifest import LogSpan, Manifest, Superseded
from reef.manifest.register import Head
from reef.manifest.runs import Segments
from reef.segment import SegmentInfo

_SAMPLES = 16
_SAMPLED_IDS = 256


@dataclass(frozen=True)
class Folded:
    """What a pass did: slots `first` through `last` are below the floor of `generation` now."""

    first: int
    last: int
    rows: int
    tombstones: int
    segments: int
    bytes: int
    generation: int
    head: Head[Manifest] = field(repr=False, compare=False)


def fold_from_log(tree: Tree, *, executor: Executor | None = None) -> Folded | None:
    """One pass that reads the log objects from the bucket, as a process without a writer does.

    None when there is nothing to fold. With several executors each folds a range of ids, and the
    pass takes as many times the log at once.
    """
    executor = executor or LocalExecutor(tree)
    head = tree.register.head()
    manifest = head.manifest
    first = manifest.wal_floor
    slots = _slots(tree, first, tree.options.fold_bytes * executor.size)
    if not slots:
        return None
    run = tree.environment.unique_id()
    parts = [
        FoldPart(manifest, slots[-1], run, within) for within in _ranges(tree, slots, executor.size)
    ]
    written = executor(fold_part, parts, "folding")
    summary = written[0].summary
    if any(part.summary.next_lsn != summary.next_lsn for part in written):
        raise ConcurrentPublication("the end of the log was given up while it was folded")
    if summary.next_lsn == first:
        return None
    segments = [info for part in written for info in part.segments]
    return _publish(tree, head, summary, summary.next_lsn - 1, segments)


def _slots(tree: Tree, first: int, limit: int) -> list[int]:
    """The slots from the floor on that hold at most so many bytes, but one at least."""
    slots: list[int] = []
    size = 0
    for lsn, info in tree.log.list(first):
        size += info.size
        if slots and size > limit:
            break
        slots.append(lsn)
    return slots


def _ranges(tree: Tree, slots: Sequence[int], size: int) -> list[Range]:
    """A range for each part, judged by the ids in a sample of the log."""
    if size <= 1:
        return [WHOLE]
    weights: list[tuple[str | int, int]] = []
    for lsn in slots[:: max(1, len(slots) // _SAMPLES)]:
        for entry in LogTail(tree.log, lsn, lsn):
            for record in records_of(entry):
                if not isinstance(record, WITHOUT_ROWS):
                    ids = ids_of(record)
                    weights += [(id, 1) for id in ids[:: max(1, len(ids) // _SAMPLED_IDS)]]
    return split_ranges(weights, size)


@dataclass(frozen=True)
class FoldPart:
    """A part of the work: the log from the manifest's floor through `last`, ids of a range."""

    manifest: Manifest
    last: int
    run: str
    within: Range


@dataclass(frozen=True)
class PartWritten:
    """The segments of a part, and what the log says besides its rows."""

    segments: list[SegmentInfo]
    summary: LogSummary


def fold_part(tree: Tree, part: FoldPart) -> PartWritten:
    """Read the log and write the rows of one range."""
    manifest, first = part.manifest, part.manifest.wal_floor
    try:
        unfolded = heeding_skips(partial(_read_log, tree, part))
    except MissingSlot as gap:
        tree.past(gap)
        raise ConcurrentPublication(
            f"the log from slot {first} on was folded and collected meanwhile"
        ) from None
    summary = summary_of(unfolded)
    return PartWritten(_write(tree, manifest, unfolded, unfolded.next_lsn - 1, part.run), summary)


def _read_log(tree: Tree, part: FoldPart, skips: frozenset[int]) -> Unfolded:
    unfolded = unfolded_above(part.manifest)
    for entry in LogTail(tree.log, unfolded.next_lsn, skips=skips):
        records = records_of(entry)
        if part.within != WHOLE:
            records = [_within(record, part.within) for record in records]
        unfolded.apply(entry, records)
        tree.check_state(unfolded)
        if entry.lsn >= part.last:
            break
    return unfolded


def _within(record: Record, within: Range) -> Record:
    if isinstance(record, WITHOUT_ROWS):
        return record
    batch = as_batch(record)
    return batch.filter(inside(batch.column(ID), within.start, within.stop))


@dataclass(frozen=True)
class LogSummary:
    """What a stretch of the log says besides its rows."""

    floor: int
    next_lsn: int
    truncated_at: int
    ingests: tuple[SegmentInfo, ...]
    dropped: tuple[SegmentInfo, ...]
    keys: Mapping[str, Remembered]
    schema: Schema
    orphan_floor: int


def summary_of(unfolded: Unfolded) -> LogSummary:
    """What an unfolded log says besides its rows."""
    return LogSummary(
        unfolded.floor,
        unfolded.next_lsn,
        unfolded.truncated_at,
        unfolded.ingests,
        unfolded.dropped,
        dict(unfolded.keys),
        unfolded.schema,
        unfolded.orphan_floor,
    )


def fold_from_memory(tree: Tree) -> Folded | None:
    """One pass over what this process holds in memory, as a writer does: nothing is read back
    but what patches change. None when there is nothing to fold."""
    with tree.lock:
        head = tree.head
        # The writer goes on meanwhile: keys are added, and a truncating load starts all over.
        unfolded = copy(tree.view.unfolded)
        summary = summary_of(unfolded)
        last = unfolded.last_within(tree.options.fold_bytes)
    if last is None:
        return None
    _check_floor(head, summary)
    run = tree.environment.unique_id()
    segments = _write(tree, head.manifest, unfolded, last, run)
    folded = _publish(tree, head, summary, last, segments, unfolded.epoch)
    tree.advance(folded.head)
    return folded


def _check_floor(head: Head[Manifest], summary: LogSummary) -> None:
    first = head.manifest.wal_floor
    if summary.floor != first:
        raise ConcurrentPublication(f"the floor is {first} now, not {summary.floor}")


def _write(
    tree: Tree, manifest: Manifest, unfolded: Unfolded, last: int, run: str
) -> list[SegmentInfo]:
    """The rows of the log through slot `last` as segments."""
    batches = unfolded.memtable.batches(last)
    if not batches:
        return []
    truncated = 0 < unfolded.truncated_at <= last
    ingests = tuple(info for info in unfolded.ingests if info.lsn <= last)
    below = (Segments() if truncated else manifest.segments).plus(ingests)
    runs = newest_first(map(tree.readers.run_of, below.runs))
    with overtaken(tree, manifest, ingests):
        return upload_segments(
            resolved(Gathered(batches), runs, filters=(tombstone_filter(below),)),
            unfolded.schema,
            store=tree.store,
            environment=tree.environment,
            birth=manifest.generation,
            level=0,
            target_bytes=tree.options.segment_bytes,
            run=run,
        )


def _publish(
    tree: Tree,
    head: Head[Manifest],
    summary: LogSummary,
    last: int,
    segments: Sequence[SegmentInfo],
    epoch: int | None = None,
) -> Folded:
    """Make the segments visible and raise the floor past slot `last`. With an `epoch` they were
    made by its writer, of what it holds in memory."""
    manifest = head.manifest
    first = manifest.wal_floor
    truncated = 0 < summary.truncated_at <= last
    ingests = tuple(info for info in summary.ingests if info.lsn <= last)
    keys = {key: use for key, use in summary.keys.items() if use.lsn <= last}
    window = manifest.window
    if keys:
        with overtaken(tree, manifest):
            window = _window(tree, manifest, keys)
    fresh = [*segments, *(info for info in window if info not in manifest.window)]

    def edit(newest: Manifest) -> Manifest:
        if newest.wal_floor != first:
            raise ConcurrentPublication(
                f"the log from slot {first} on was folded by another pass meanwhile"
            )
        if epoch is not None and newest.writer_epoch > epoch:
            # Its successor may have given up slots that this one knows better.
            raise Fenced(f"writer epoch {epoch} was superseded by {newest.writer_epoch}")
        check_not_condemned(newest.orphan_floor, fresh)
        if keys and newest.window != manifest.window:
            # A rebuild was faster. What this one was made from may not be kept any more.
            raise ConcurrentPublication("the idempotency window was made anew meanwhile")
        kept = window if keys else newest.window
        gone = [info for info in newest.window if info not in kept]
        gone += [info for info in summary.dropped if info.lsn <= last]
        if truncated:
            gone += newest.segments
        schema = newest.parsed_schema().extended(summary.schema.attributes, summary.schema.id_kind)
        return msgspec.structs.replace(
            newest.with_schema(schema),
            segments=(Segments() if truncated else newest.segments).plus((*ingests, *segments)),
            window=tuple(kept),
            wal_floor=last + 1,
            last_applied_lsn=last,
            orphan_floor=max(newest.orphan_floor, summary.orphan_floor),
            superseded=newest.superseded.plus(
                Superseded(info.key, newest.generation) for info in gone
            ),
            folded=(*newest.folded, LogSpan(first, last, newest.generation)),
        )

    published = tree.register.publish(edit, head)
    return Folded(
        first,
        last,
        sum(info.rows - info.tombstones for info in segments),
        sum(info.tombstones for info in segments),
        len(segments) + len(ingests),
        sum(info.size for info in segments),
        published.manifest.generation,
        published,
    )


def _window(
    tree: Tree, manifest: Manifest, keys: Mapping[str, Remembered]
) -> tuple[SegmentInfo, ...]:
    """The idempotency window with those keys added, as small segments."""
    older = manifest.window
    rows = rows_of(keys)
    if len(older) + 1 > MOST_SEGMENTS:
        runs = runs_of(older, tree.reader_of)
        sources = [[rows]] + [run.rows() for run in runs]
        merged = trimmed(merge(sources), manifest.settings, tree.environment.now())
        if merged is None:
            return ()
        rows, older = merged, ()
    added = upload_segments(
        [rows],
        KEYS_SCHEMA,
        store=tree.store,
        environment=tree.environment,
        birth=manifest.generation,
        level=0,
        target_bytes=tree.options.segment_bytes,
    )
    return (*older, *added)

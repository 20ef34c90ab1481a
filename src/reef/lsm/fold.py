"""Folding: the log's oldest entries become segments, and the floor rises past them.

One pass takes log entries up to a size limit, resolves patches against the versions below them,
writes one sorted run, and publishes. Only the publication changes what is visible; a pass that
dies before it leaves orphans, and the next pass folds the same slots again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from reef.data.rows import ID, PATCH, kinds_of
from reef.errors import ConcurrentPublication
from reef.log import LogTail
from reef.log.tail import MissingSlot
from reef.lsm.lookup import lookup
from reef.lsm.memtable import Gathered
from reef.lsm.merge import merge, resolve
from reef.lsm.tombstones import tombstone_filter
from reef.lsm.tree import Tree, unfolded_above
from reef.lsm.unfolded import Remembered, Unfolded
from reef.lsm.upload import check_not_condemned, upload_segments
from reef.lsm.view import Run, runs_of
from reef.lsm.window import MOST_SEGMENTS, WINDOW_SCHEMA, rows_of, trimmed
from reef.manifest import LogSpan, Manifest, Superseded
from reef.manifest.register import Head
from reef.segment import SegmentInfo

_SLICE = 16_384


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
    head: Head = field(repr=False, compare=False)


def fold_from_log(tree: Tree) -> Folded | None:
    """One pass that reads the log objects from the bucket, as a process without a writer does.

    None when there is nothing to fold.
    """
    head = tree.register.head()
    first = head.manifest.wal_floor
    size = 0
    last = None
    for lsn, info in tree.log.list(first):
        size += info.size
        if last is not None and size > tree.options.fold_bytes:
            break
        last = lsn
    if last is None:
        return None
    unfolded = unfolded_above(head.manifest)
    try:
        for entry in LogTail(tree.log, first):
            unfolded.apply(entry)
            if entry.lsn >= last:
                break
    except MissingSlot as gap:
        tree.past(gap)
        raise ConcurrentPublication(
            f"the log from slot {first} on was folded and collected meanwhile"
        ) from None
    if unfolded.next_lsn == first:
        return None
    return _fold(tree, head, unfolded, unfolded.next_lsn - 1)


def fold_from_memory(tree: Tree) -> Folded | None:
    """One pass over what this process holds in memory, as a writer does: nothing is read back
    but what patches change. None when there is nothing to fold."""
    with tree.lock:
        head = tree.head
        # The writer goes on meanwhile: keys are added, and a truncating load starts all over.
        unfolded = copy(tree.view.unfolded)
        unfolded.keys = dict(unfolded.keys)
        last = unfolded.last_within(tree.options.fold_bytes)
    if last is None:
        return None
    folded = _fold(tree, head, unfolded, last)
    tree.advance(folded.head)
    return folded


def _fold(tree: Tree, head: Head, unfolded: Unfolded, last: int) -> Folded:
    manifest = head.manifest
    first = manifest.wal_floor
    if unfolded.floor != first:
        raise ConcurrentPublication(f"the floor is {first} now, not {unfolded.floor}")
    truncated = 0 < unfolded.truncated_at <= last
    ingests = tuple(info for info in unfolded.ingests if info.lsn <= last)
    below = ingests if truncated else (*manifest.segments, *ingests)
    batches = unfolded.memtable.batches(last)
    segments: list[SegmentInfo] = []
    if batches:
        segments = upload_segments(
            _resolved(Gathered(batches), below, runs_of(below, tree.reader_of)),
            unfolded.schema,
            store=tree.store,
            environment=tree.environment,
            birth=manifest.generation,
            level=0,
            target_bytes=tree.options.segment_bytes,
        )
    keys = {key: use for key, use in unfolded.keys.items() if use.lsn <= last}
    window = _window(tree, manifest, keys) if keys else manifest.window
    fresh = [*segments, *(info for info in window if info not in manifest.window)]

    def edit(newest: Manifest) -> Manifest:
        if newest.wal_floor != first:
            raise ConcurrentPublication(
                f"the log from slot {first} on was folded by another pass meanwhile"
            )
        check_not_condemned(newest.orphan_floor, fresh)
        gone = [info for info in newest.window if info not in window]
        gone += [info for info in unfolded.dropped if info.lsn <= last]
        if truncated:
            gone += newest.segments
        schema = newest.parsed_schema().extended(
            unfolded.schema.attributes, unfolded.schema.id_kind
        )
        return msgspec.structs.replace(
            newest.with_schema(schema),
            segments=(*(() if truncated else newest.segments), *ingests, *segments),
            window=tuple(window),
            wal_floor=last + 1,
            last_applied_lsn=last,
            orphan_floor=max(newest.orphan_floor, unfolded.orphan_floor),
            superseded=(
                *newest.superseded,
                *(Superseded(info.key, newest.generation) for info in gone),
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


def _resolved(
    gathered: Gathered, below: Sequence[SegmentInfo], runs: Sequence[Run]
) -> Iterator[pa.RecordBatch]:
    """Slices of the gathered log with each id once, patches applied to what lies below."""
    drop_tombstones = tombstone_filter(below)
    for piece in gathered.slices(_SLICE):
        pieces = [piece]
        patches = kinds_of(piece) == PATCH
        if patches.any():
            pieces += lookup(runs, piece.column(ID).filter(pa.array(patches)).unique())
        resolved = drop_tombstones(resolve(pieces, keep_tombstones=True))
        if resolved.num_rows:
            yield resolved


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
        WINDOW_SCHEMA,
        store=tree.store,
        environment=tree.environment,
        birth=manifest.generation,
        level=0,
        target_bytes=tree.options.segment_bytes,
    )
    return (*older, *added)

"""Restoring: the state through a log slot, put together from a generation and the log since then.

The log and superseded segments are kept as long as generations are. So what a damaged segment held
is often there once more, and the same state can be had without it. To everybody at work on the
tree the outcome is like a compaction or a fold: the floor of the log never falls, or else a writer
that follows the root would take the slots between for folded, and they would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from reef.data.schema import Schema
from reef.errors import ConcurrentPublication, Corruption, ObjectNotFound
from reef.log import LogTail
from reef.log.tail import heeding_skips
from reef.lsm.gathered import Gathered
from reef.lsm.read.view import runs_of
from reef.lsm.repair.health import Health, needs
from reef.lsm.retention.reachability import first_retained_slot
from reef.lsm.tree import Tree, unfolded_above
from reef.lsm.unfolded import Unfolded
from reef.lsm.upkeep.resolved import resolved
from reef.lsm.write.idempotency import KEYS_SCHEMA, rows_of
from reef.lsm.write.upload import upload_segments
from reef.manifest import Manifest
from reef.segment import SegmentInfo

Replacements = Mapping[str, Sequence[SegmentInfo]]
"""What stands for a segment that cannot be used, by its key."""


@dataclass(frozen=True)
class Restored:
    """Segments, window and schema as of the slot asked for. `fresh` are segments just written,
    `dropped` those that the log brought and then truncated."""

    segments: tuple[SegmentInfo, ...]
    window: tuple[SegmentInfo, ...]
    schema: Schema
    orphan_floor: int
    fresh: tuple[SegmentInfo, ...]
    dropped: tuple[SegmentInfo, ...]


def find_base(health: Health) -> Manifest | None:
    """The newest retained generation from which what the head names can be put together again:
    all it names is sound, and so is every log slot since, up to the head's floor."""
    head = health.head.manifest
    candidates = {**health.generations, head.generation: head}
    for _, manifest in sorted(candidates.items(), reverse=True):
        if manifest.generation > head.generation or manifest.wal_floor > head.wal_floor:
            continue
        try:
            sound = health.is_sound(needs(manifest))
        except (Corruption, ObjectNotFound):
            continue  # Its lists were collected, or are damaged.
        if sound and _log_is_whole(health, manifest.wal_floor):
            return manifest
    return None


def _log_is_whole(health: Health, first: int) -> bool:
    head, log = health.head.manifest, health.log
    if first < first_retained_slot(head):
        return False
    # A slot that was given up may have been folded out of its writer's memory all the same.
    if any(first <= lsn < head.wal_floor for lsn in (*log.folded_damaged, *log.skipped)):
        return False
    return health.is_sound(
        info for lsn, brought in log.folded_ingests.items() if lsn >= first for info in brought
    )


def restore(
    tree: Tree, base: Manifest, last: int, birth: int, replacements: Replacements
) -> Restored:
    """Write what the log from the base's floor through slot `last` adds to the base."""

    def read(skips: frozenset[int]) -> _Refold:
        refold = _Refold(tree, base, birth, replacements)
        if last >= base.wal_floor:
            for entry in LogTail(tree.log, base.wal_floor, last, skips):
                refold.unfolded.apply(entry)
                if refold.unfolded.nbytes >= tree.options.fold_bytes:
                    refold.flush()
            refold.flush()
        return refold

    refold = heeding_skips(read)
    unfolded = refold.unfolded
    return Restored(
        refold.segments,
        refold.window,
        unfolded.schema,
        unfolded.orphan_floor,
        tuple(refold.fresh),
        tuple(refold.dropped),
    )


def check_log_kept(newest: Manifest, base: Manifest) -> None:
    """Raise `ConcurrentPublication` unless the log since the base has been retained until now, for
    the publication of what was restored from it. Slots that were collected meanwhile are not
    missed when they are read: the log then seems to end before them."""
    if base.wal_floor < first_retained_slot(newest):
        raise ConcurrentPublication(f"log slot {base.wal_floor} was collected meanwhile; try again")


class _Refold:
    def __init__(self, tree: Tree, base: Manifest, birth: int, replacements: Replacements) -> None:
        self.unfolded: Unfolded = unfolded_above(base)
        self.segments = replaced(base.segments, replacements)
        self.window = replaced(base.window, replacements)
        self.fresh: list[SegmentInfo] = []
        self.dropped: list[SegmentInfo] = []
        self._replacements = replacements
        self._tree = tree
        self._birth = birth

    def flush(self) -> None:
        """Turn the log taken in so far into segments."""
        unfolded = self.unfolded
        self.dropped += unfolded.dropped
        kept = () if unfolded.truncated_at else self.segments
        self.segments = (*kept, *replaced(unfolded.ingests, self._replacements))
        batches = unfolded.memtable.batches()
        if batches:
            runs = runs_of(self.segments, self._tree.reader_of)
            # Tombstones stay: the next compaction drops those that hide nothing.
            rows = resolved(Gathered(batches), runs)
            self.segments += self._write(rows, unfolded.schema)
        if unfolded.keys:
            self.window += self._write([rows_of(unfolded.keys)], KEYS_SCHEMA)
        self.unfolded = unfolded.after(unfolded.next_lsn - 1, unfolded.orphan_floor)

    def _write(self, rows: Iterable[pa.RecordBatch], schema: Schema) -> tuple[SegmentInfo, ...]:
        tree = self._tree
        fresh = upload_segments(
            rows,
            schema,
            store=tree.store,
            environment=tree.environment,
            birth=self._birth,
            level=0,
            target_bytes=tree.options.segment_bytes,
        )
        self.fresh += fresh
        return tuple(fresh)


def replaced(infos: Iterable[SegmentInfo], replacements: Replacements) -> tuple[SegmentInfo, ...]:
    """The segments with each that has replacements exchanged for them."""
    return tuple(new for info in infos for new in replacements.get(info.key, (info,)))

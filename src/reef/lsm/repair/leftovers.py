"""Leftovers: the state of a namespace that lost its manifests, from segments and log objects alone.

Every row carries the log slot that wrote it, so of several versions of an id the highest wins,
wherever they lie; a row that is there twice does no harm. Two things need care:

- Segments that a compaction replaced may still be there, with rows that it dropped because a
  tombstone hid them, while the tombstone itself is gone. A segment made later that has a row in
  common with an earlier one, the same id from the same slot, was made out of it; and a segment
  holds what its maker kept of all ids between its first and its last. So a row of the earlier one
  is known to be deleted if its id lies between those, the later one knows of writes as late, and
  it has no row of that id. Where that cannot be shown, the row is kept: it may come back from the
  dead, and the report says so.
- Rows of a bulk load take their slot from the log record that names their segment. If the log is
  there from its first slot on and no record names it, the load was never finished. If the record
  may have been collected, the rows are taken as older than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.rows import ID, lsns_of, with_lsn
from reef.data.schema import Schema
from reef.errors import Corruption, InvalidInput, NamespaceNotFound, ObjectNotFound
from reef.log import WAL, LogEntry
from reef.log.tail import read_slots
from reef.lsm.read.merge import Source, merge
from reef.lsm.repair.salvage import Salvage, salvaged_rows, survey
from reef.lsm.retention.collect import list_objects
from reef.lsm.tree import Tree
from reef.lsm.unfolded import Unfolded
from reef.lsm.write.idempotency import KEYS_SCHEMA, rows_of
from reef.manifest import MANIFESTS
from reef.segment import SegmentInfo, SegmentReader, birth_of, describe
from reef.segment.verify import verify_segment


@dataclass
class Leftovers:
    """What is left, and what it amounts to. No generation above `generation` was ever there, as far
    as is known. `keys` are all segments found, `damaged` those not whole; `later` has for a
    segment's id those made out of it.
    """

    tree: Tree
    generation: int
    unfolded: Unfolded
    keys: list[str] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    epoch: int = 0
    first_lsn: int = 1
    last_lsn: int = 0
    log_slots: int = 0
    log_is_whole: bool = False
    segments: list[SegmentInfo] = field(default_factory=list)
    windows: list[SegmentInfo] = field(default_factory=list)
    later: dict[str, list[SegmentReader]] = field(default_factory=dict)
    salvages: dict[str, Salvage] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    @property
    def schema(self) -> Schema:
        """What all segments and log records agree on."""
        return self.unfolded.schema

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The documents, in id order."""
        runs: dict[str, list[SegmentInfo]] = {}
        for info in sorted(self.segments, key=lambda info: info.min_id):
            runs.setdefault(f"{info.run}@{info.lsn}", []).append(info)
        sources: list[Source] = list(self.unfolded.memtable.sorted().sources())
        sources += [chain.from_iterable(map(self._rows_of, run)) for run in runs.values()]
        return merge(sources)

    def window_rows(self) -> Iterator[pa.RecordBatch]:
        """The idempotency keys, in order."""
        sources = [self._plain_rows(info) for info in self.windows]
        if self.unfolded.keys:
            sources.append(iter([rows_of(self.unfolded.keys)]))
        return merge(sources)

    def _rows_of(self, info: SegmentInfo) -> Iterator[pa.RecordBatch]:
        truncated = self.unfolded.truncated_at
        for batch in self._plain_rows(info):
            kept = np.asarray(lsns_of(batch) >= truncated)
            for reader in self.later.get(info.id, ()):
                kept &= ~_dropped_by(reader, batch)
            if kept.all():
                yield batch
            elif kept.any():
                yield batch.filter(pa.array(kept))

    def _plain_rows(self, info: SegmentInfo) -> Iterator[pa.RecordBatch]:
        salvage = self.salvages.get(info.id)
        if salvage is not None:
            for batch in salvaged_rows(self.tree.store, salvage):
                yield with_lsn(batch, info.lsn) if info.lsn else batch
            return
        reader = self.tree.reader_of(info)
        yield from reader.read(list(reader.groups()))


def gather_leftovers(tree: Tree) -> Leftovers:
    """Read what is left. Raises `NamespaceNotFound` if there is nothing at all."""
    objects = list_objects(tree)
    numbers = [MANIFESTS.generation_of(info.key) or birth_of(info.key) or 0 for info in objects]
    leftovers = Leftovers(tree, max(numbers, default=0), Unfolded(1, Schema(), 0))
    slots = sorted(lsn for info in objects if (lsn := WAL.lsn_of(info.key)) is not None)
    keys = [info.key for info in objects if birth_of(info.key) is not None]
    if not slots and not keys:
        raise NamespaceNotFound("there is neither a manifest nor a segment nor a log object")
    leftovers.keys = keys
    described = _described(leftovers, keys)
    _read_log(leftovers, slots)
    tree.check_state(leftovers.unfolded)
    _place(leftovers, described)
    _relate(leftovers)
    return leftovers


def _described(leftovers: Leftovers, keys: list[str]) -> list[SegmentInfo]:
    """The segments of documents that can be read, wholly or in part; those of keys go apart."""
    store, unfolded = leftovers.tree.store, leftovers.unfolded
    found = []
    for key in keys:
        try:
            info = describe(store, key)
            if info.key != key:
                raise Corruption(key, f"it says that it is {info.key}")
            salvage = survey(store, info, Schema())
        except (Corruption, ObjectNotFound) as error:
            leftovers.unused.append(f"segment {key}: {error}")
            leftovers.damaged.add(key)
            continue
        problems = verify_segment(store, key, info, deep=True)
        if problems:
            leftovers.unused.append(
                f"segment {key}: {info.rows - salvage.rows} of its {info.rows} rows are lost:"
                f" {problems[0].meaning}"
            )
            leftovers.salvages[info.id] = salvage
            leftovers.damaged.add(key)
        schema = salvage.schema
        if not salvage.rows:
            continue
        if schema.to_dict() == KEYS_SCHEMA.to_dict():
            leftovers.windows.append(info)
        else:
            unfolded.schema = unfolded.schema.extended(schema.attributes, schema.id_kind)
            found.append(info)
    return found


def _read_log(leftovers: Leftovers, slots: list[int]) -> None:
    unfolded = leftovers.unfolded
    gap = expected = slots[0] if slots else 1
    skipped = _given_up(leftovers, slots)
    unreadable: dict[int, str] = {}
    for lsn, outcome in read_slots(leftovers.tree.log, slots):
        if lsn != expected:
            gap = lsn
            leftovers.unused.append(f"log slots {expected} to {lsn - 1} are not there")
        expected = lsn + 1
        if isinstance(outcome, Corruption):
            unreadable[lsn] = str(outcome)
            continue
        if lsn in skipped:
            continue
        try:
            if unfolded.dropped_at and not outcome.header.guest:
                # A namespace of the same name was created since, and this is of its log.
                gap, unfolded.dropped_at = lsn, 0
            unfolded.apply(outcome)
            leftovers.log_slots += 1
        except (Corruption, InvalidInput) as error:
            unreadable[lsn] = str(error)
    leftovers.unused += [
        f"log slot {lsn}: {reason}" for lsn, reason in unreadable.items() if lsn not in skipped
    ]
    complete = bool(slots) and (slots[0], slots[-1]) == (1, len(slots))
    leftovers.log_is_whole = complete and set(unreadable) <= skipped
    leftovers.epoch = unfolded.epoch
    # Feeds may read the log from behind its last flaw.
    leftovers.first_lsn = max([gap, *(lsn + 1 for lsn in unreadable if lsn not in skipped)])
    leftovers.last_lsn = slots[-1] if slots else 0


def _given_up(leftovers: Leftovers, slots: list[int]) -> set[int]:
    return {
        lsn
        for _, outcome in read_slots(leftovers.tree.log, slots)
        if isinstance(outcome, LogEntry)
        for lsn in outcome.header.skips
    }


def _place(leftovers: Leftovers, described: list[SegmentInfo]) -> None:
    """Give loaded segments the slot of their record, and sort out those that have none."""
    named = {info.key: info for info in leftovers.unfolded.ingests}
    there = {info.key for info in described}
    leftovers.unused += [
        f"segment {key} is not there; what its load brought is lost unless it was compacted since"
        for key in named
        if key not in there
    ]
    for info in described:
        if info.max_lsn == 0:
            if info.key in named:
                info = named[info.key]
            elif leftovers.log_is_whole:
                leftovers.unused.append(f"segment {info.key}: no load that was finished names it")
                continue
            else:
                leftovers.unused.append(
                    f"segment {info.key}: the record of its load is gone; its rows are taken as"
                    " older than all others, if the load was finished at all"
                )
        leftovers.segments.append(info)
    newest = max((info.max_lsn for info in leftovers.segments), default=0)
    if newest > leftovers.last_lsn:
        # The log's end is gone: no slot that wrote a row may be won again.
        if leftovers.last_lsn:
            leftovers.unused.append(f"log slots {leftovers.last_lsn + 1} to {newest} are not there")
        leftovers.first_lsn, leftovers.last_lsn = newest + 1, newest


def _relate(leftovers: Leftovers) -> None:
    """Find for each segment those made out of it, and say where it cannot be known."""
    whole = [info for info in leftovers.segments if info.id not in leftovers.salvages]
    readers = {info.id: leftovers.tree.reader_of(info) for info in whole}
    for info in whole:
        later = [
            readers[other.id]
            for other in whole
            if other.birth > info.birth
            and other.max_lsn >= info.min_lsn
            and _share_a_row(readers[info.id], readers[other.id])
        ]
        if not later:
            continue
        leftovers.later[info.id] = later
        low = min(reader.info.min_id for reader in later)
        high = max(reader.info.max_id for reader in later)
        if info.min_id < low or high < info.max_id:  # type: ignore[operator]
            leftovers.unused.append(
                f"segment {info.key} was compacted; documents of it outside of what is known of"
                " the outcome may have been deleted and come back"
            )


def _share_a_row(earlier: SegmentReader, later: SegmentReader) -> bool:
    low, high = later.info.min_id, later.info.max_id
    if earlier.info.max_id < low or high < earlier.info.min_id:  # type: ignore[operator]
        return False
    for batch in earlier.read(list(earlier.groups(low)), ()):
        for found in later.lookup(batch.column(ID), ()):
            mine = batch.filter(pc.is_in(batch.column(ID), value_set=found.column(ID)))
            if bool((lsns_of(mine) == lsns_of(found)).any()):
                return True
        if batch.column(ID)[-1].as_py() > high:
            break
    return False


def _dropped_by(later: SegmentReader, batch: pa.RecordBatch) -> np.ndarray:
    """Which rows a compaction of them left out on purpose."""
    info = later.info
    ids = batch.column(ID)
    within = np.asarray(
        pc.and_(
            pc.greater_equal(ids, pa.scalar(info.min_id, ids.type)),
            pc.less_equal(ids, pa.scalar(info.max_id, ids.type)),
        )
    )
    within &= lsns_of(batch) <= info.max_lsn
    if not within.any():
        return within
    for found in later.lookup(ids, ()):
        within &= ~np.asarray(pc.is_in(ids, value_set=found.column(ID)))
    return within

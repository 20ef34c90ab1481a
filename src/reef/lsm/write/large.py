"""Large batches: finished segments first, then a small log object that names them.

A small batch travels inside its log object and is folded later; a large one would be written
twice that way. It is sorted, encoded and uploaded by the thread that brings it, before it
queues up for a slot, and needs no folding afterwards. If it is never committed it is an orphan.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from reef.data.plain import as_batch
from reef.data.rows import with_lsn
from reef.lsm.gathered import Gathered
from reef.lsm.read.merge import merge
from reef.lsm.tree import Tree
from reef.lsm.write.admission import tombstones
from reef.lsm.write.batch import Receipt, WriteBatch
from reef.lsm.write.upload import upload_segments

# Cut into a few segments, so that one is uploaded while the next is encoded.
_PARTS = 4
_SMALLEST = 2 * 1024 * 1024


def is_large(batch: WriteBatch, tree: Tree) -> bool:
    """Whether a batch is worth its own segments, and can have them: what it does must not depend
    on what is there."""
    return not batch.reads and batch.nbytes >= tree.options.large_batch_bytes


def as_segments(batch: WriteBatch, tree: Tree) -> WriteBatch:
    """Upload the batch's rows; the same batch, naming them."""
    pieces: list[tuple[int, pa.RecordBatch]] = []
    if batch.upserts is not None:
        pieces.append((1, as_batch(batch.upserts)))
    if batch.deletes is not None:
        pieces.append((2, tombstones(batch.deletes)))
    infos = upload_segments(
        (with_lsn(piece, 0) for piece in merge([Gathered(pieces).slices()], keep_tombstones=True)),
        batch.schema,
        store=tree.store,
        environment=tree.environment,
        birth=tree.head.manifest.generation,
        level=0,
        target_bytes=min(tree.options.segment_bytes, max(_SMALLEST, batch.nbytes // _PARTS)),
    )
    return replace(batch, upserts=None, deletes=None, segments=tuple(infos), counts=_counts(batch))


def _counts(batch: WriteBatch) -> Receipt:
    upserted = len(batch.upserts) if batch.upserts is not None else 0
    return Receipt(0, upserted, deleted=len(batch.deletes) if batch.deletes is not None else 0)

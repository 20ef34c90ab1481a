"""Bulk load without a cluster: any amount of rows as one ingest, in bounded memory.

Rows are gathered into stretches that fit in memory, each sorted and spilled as a run to a scratch
folder, later stretches above earlier ones. Then the runs are merged, newest wins, into finished
segments in the bucket. A load of one stretch needs no scratch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from reef.data.convert import convert_rows
from reef.data.rows import UPSERT, with_lsn
from reef.documents.batches import check_idempotency_key, last_of_each
from reef.errors import InvalidInput
from reef.lsm.batch import Receipt
from reef.lsm.ingest import ingest
from reef.lsm.memtable import Gathered
from reef.lsm.merge import merge
from reef.lsm.tree import Tree
from reef.lsm.upload import upload_segments
from reef.lsm.view import runs_of
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store import Store, open_store

STRETCH_BYTES = 128 * 1024 * 1024
_SLICE = 16_384


def load(
    tree: Tree,
    data: Any,
    *,
    key: str | None = None,
    truncate: bool = False,
    stretch_bytes: int = STRETCH_BYTES,
) -> Receipt:
    """Load rows, or an iterator of batches of rows, as one atomic write. The last row of an id
    wins."""
    if key is not None:
        check_idempotency_key(key)
    tree.refresh()
    birth = tree.head.manifest.generation
    schema = tree.view.schema
    held: list[tuple[int, pa.RecordBatch]] = []
    size = 0
    spilled: list[SegmentInfo] = []
    with tempfile.TemporaryDirectory(prefix="reef-load-") as folder:
        scratch = open_store(folder)

        def upload(store: Store, rows: Iterable[pa.RecordBatch]) -> list[SegmentInfo]:
            return upload_segments(
                rows,
                schema,
                store=store,
                environment=tree.environment,
                birth=birth,
                level=0,
                target_bytes=tree.options.segment_bytes,
            )

        for number, piece in enumerate(_pieces(data), 1):
            rows, schema = convert_rows(piece, schema, kind=UPSERT)
            if not rows.num_rows:
                continue
            held.append((number, last_of_each(rows)))
            size += rows.nbytes
            if size >= stretch_bytes:
                spilled += upload(scratch, Gathered(held).slices(_SLICE))
                held, size = [], 0
        if not spilled:
            if not held:
                raise InvalidInput("there are no rows to load")
            pieces = Gathered(held).slices(_SLICE)
            segments = upload(tree.store, (with_lsn(piece, 0) for piece in pieces))
        else:
            if held:
                spilled += upload(scratch, Gathered(held).slices(_SLICE))
            cache = BlockCache(tree.options.cache_bytes)
            runs = runs_of(spilled, lambda info: SegmentReader(scratch, info.key, info, cache))
            merged = merge([run.rows() for run in runs])
            segments = upload(tree.store, (with_lsn(batch, 0) for batch in merged))
    return ingest(tree, segments, schema, key=key, truncate=truncate)


def _pieces(data: Any) -> Iterator[Any]:
    """The batches of rows: `data` itself unless it is an iterator of them."""
    if isinstance(data, Iterator | pa.RecordBatchReader):
        yield from data
    else:
        yield data

"""Bulk load without a cluster: any amount of rows as one ingest, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa

from reef.data.convert import convert_slices
from reef.data.rows import UPSERT
from reef.documents.batches import check_idempotency_key, last_of_each
from reef.errors import InvalidInput
from reef.lsm.tree import Tree
from reef.lsm.write.batch import Receipt
from reef.lsm.write.ingest import ingest
from reef.lsm.write.sorting import STRETCH_BYTES, Sorter
from reef.lsm.write.upload import upload_segments


def load(
    tree: Tree,
    data: Any,
    *,
    key: str | None = None,
    truncate: bool = False,
    stretch_bytes: int = STRETCH_BYTES,
) -> Receipt:
    """Load rows, or an iterator of batches of rows, as one atomic write. The last row of an id
    wins. Without any rows there is nothing to load, unless nothing is to replace what is there."""
    if key is not None:
        key = check_idempotency_key(key)
    tree.refresh()
    birth = tree.head.manifest.generation
    schema = tree.view.schema
    with Sorter(tree.environment, stretch_bytes=stretch_bytes) as sorter:
        order = count(1)
        for piece in _pieces(data):
            for rows, schema in convert_slices(piece, schema, kind=UPSERT):  # noqa: B020
                sorter.add(next(order), last_of_each(rows), schema)
        if not sorter.count and not truncate:
            raise InvalidInput("there are no rows to load")
        segments = upload_segments(
            sorter.rows(schema),
            schema,
            store=tree.store,
            environment=tree.environment,
            birth=birth,
            level=0,
            target_bytes=tree.options.segment_bytes,
        )
    return ingest(tree, segments, schema, key=key, truncate=truncate)


def _pieces(data: Any) -> Iterator[Any]:
    """The batches of rows: `data` itself unless it is an iterator of them."""
    if isinstance(data, Iterator | pa.RecordBatchReader):
        yield from data
    else:
        yield data

"""The idempotency window: recently used keys and what their callers were told.

Keys of the unfolded log are in memory; those of the folded log are in small segments that the
manifest names, one row a key. The same reader, filter and merge serve them as serve documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
import numpy as np
import pyarrow as pa

from reef.data.rows import ID, KIND_FIELD, LSN_FIELD, field_of
from reef.data.schema import STRING_IDS, Schema
from reef.data.types import parse_type
from reef.lsm.unfolded import Remembered
from reef.lsm.write.batch import Receipt
from reef.manifest.model import Settings
from reef.segment import SegmentReader

RECEIPT = "receipt"
CREATED = "created_at"
KEYS_SCHEMA = Schema(STRING_IDS, {CREATED: parse_type("float64"), RECEIPT: parse_type("string")})
MOST_SEGMENTS = 8


def rows_of(keys: Mapping[str, Remembered]) -> pa.RecordBatch:
    """Keys as a sorted run of rows."""
    names = sorted(keys)
    uses = [keys[name] for name in names]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(names, pa.string()),
            pa.array([use.lsn for use in uses], pa.uint64()),
            pa.array(np.zeros(len(uses), dtype=np.uint8)),
            pa.array([use.created_at for use in uses], pa.float64()),
            pa.array([msgspec.json.encode(use.receipt).decode() for use in uses], pa.string()),
        ],
        schema=pa.schema(
            [
                pa.field(ID, pa.string(), nullable=False),
                LSN_FIELD,
                KIND_FIELD,
                *(field_of(name, kind) for name, kind in KEYS_SCHEMA.attributes.items()),
            ]
        ),
    )


def recall(
    key: str,
    unfolded: Mapping[str, Remembered],
    segments: Sequence[SegmentReader],
    settings: Settings,
    now: float,
) -> Receipt | None:
    """The receipt that this key was answered with, if it is inside the window."""
    use = unfolded.get(key)
    if use is not None and now - use.created_at <= settings.window_seconds:
        return Receipt.from_dict(use.lsn, use.receipt)
    for reader in sorted(segments, key=lambda reader: -reader.info.max_lsn):
        hit = reader.find(key)
        if hit is not None:
            document = hit[0].document(hit[1])
            if now - cast(float, document[CREATED]) > settings.window_seconds:
                return None
            return Receipt.from_dict(
                hit[0].lsn(hit[1]), msgspec.json.decode(str(document[RECEIPT]))
            )
    return None


def trimmed(
    batches: Iterator[pa.RecordBatch], settings: Settings, now: float
) -> pa.RecordBatch | None:
    """The newest keys within the window's count and age, as one sorted run."""
    pieces = list(batches)
    if not pieces:
        return None
    rows = pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]
    young = np.asarray(rows.column(CREATED)) >= now - settings.window_seconds
    places = np.flatnonzero(young)
    if len(places) > settings.window_keys:
        lsns = np.asarray(rows.column(LSN_FIELD.name))[places]
        newest = np.argsort(lsns, kind="stable")[-settings.window_keys :]
        places = np.sort(places[newest])
    return rows.take(pa.array(places)) if len(places) else None

"""A row group, encoded: a pure function of its rows, so that several can be made at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reef.data.rows import DELETE, ID, KIND, LSN, is_attribute, null_flag
from reef.data.schema import Schema
from reef.segment.block import encode_block
from reef.segment.bloom import hash_ids
from reef.segment.bounds import Bounds, bounds_of
from reef.segment.encode import encode_column, encode_keys
from reef.store.contract import Buffer


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """A block's bytes, and what the index will say of them."""

    parts: list[Buffer]
    length: int
    crc: int
    bounds: Bounds = (None, None)
    valid: int = 0
    nulls: int = 0


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """A group's key block, and a block for each attribute that some row has."""

    first: str | int
    last: str | int
    rows: int
    tombstones: int
    min_lsn: int
    max_lsn: int
    hashes: np.ndarray
    keys: EncodedBlock
    columns: dict[str, EncodedBlock]


def encode_group(group: pa.RecordBatch, schema: Schema, level: int) -> EncodedGroup:
    """Encode, compress and checksum the rows, column by column."""
    ids = group.column(ID)
    lsns, kinds = np.asarray(group.column(LSN)), np.asarray(group.column(KIND))
    columns: dict[str, EncodedBlock] = {}
    for name in filter(is_attribute, group.schema.names):
        block = _encode_column(group, name, schema, level)
        if block is not None:
            columns[name] = block
    return EncodedGroup(
        first=ids[0].as_py(),
        last=ids[-1].as_py(),
        rows=group.num_rows,
        tombstones=int(np.count_nonzero(kinds == DELETE)),
        min_lsn=int(lsns.min()),
        max_lsn=int(lsns.max()),
        hashes=hash_ids(ids),
        keys=EncodedBlock(*encode_block(encode_keys(ids, lsns, kinds), level)),
        columns=columns,
    )


def _encode_column(
    group: pa.RecordBatch, name: str, schema: Schema, level: int
) -> EncodedBlock | None:
    values = group.column(name)
    valid = len(values) - values.null_count
    nulls, marked = None, 0
    flag = group.schema.get_field_index(null_flag(name))
    if flag >= 0 and values.null_count:
        nulls = group.column(flag).fill_null(False).to_numpy(zero_copy_only=False)
        if valid:
            nulls = nulls & values.is_null().to_numpy(zero_copy_only=False)
        marked = int(np.count_nonzero(nulls))
    if not valid and not marked:
        return None
    kind = schema.attributes[name]
    body = encode_column(values, kind, nulls if marked else None)
    parts, length, crc = encode_block(body, level)
    return EncodedBlock(parts, length, crc, bounds_of(values, kind), valid, marked)

"""Rows of every type, and segments of them in a store."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from reef.data.rows import KIND_FIELD, LSN_FIELD, NULL_FLAG, field_of, id_field, null_flag
from reef.data.schema import Schema
from reef.data.types import AttributeType, parse_type
from reef.segment import SegmentInfo, SegmentWriter
from reef.store import Store
from reef.store.contract import as_bytes

ABSENT = object()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TYPES = [
    "bool",
    "int64",
    "float64",
    "string",
    "bytes",
    "timestamp",
    "list<bool>",
    "list<int64>",
    "list<float64>",
    "list<string>",
    "list<bytes>",
    "list<timestamp>",
    "json",
    "vector<float32, 3>",
    "vector<float16, 2>",
]

_integers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-5, 5), st.integers(1000, 1300))
_doubles = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 1.25, 19.99]),
    st.integers(0, 2**52 - 1).map(
        lambda bits: struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000001 | bits))[0]
    ),
)
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int64": _integers,
    "float64": _doubles,
    "string": st.one_of(
        st.text(max_size=5), st.sampled_from(["red", "green"]), st.text(min_size=60)
    ),
    "bytes": st.binary(max_size=80),
    "timestamp": st.integers(-(2**50), 2**50).map(lambda n: EPOCH + timedelta(microseconds=n)),
}


def values_of(kind: AttributeType) -> st.SearchStrategy[Any]:
    """Values of an attribute type, as `pa.array` takes them."""
    if kind.family == "json":
        return st.sampled_from(['{"a":[1,2.5,null]}', "[]", '"x"', "7", "null"])
    if kind.family == "vector":
        width = 32 if kind.element == "float32" else 16
        element = st.floats(width=width, allow_nan=False, allow_infinity=False)
        return st.lists(element, min_size=kind.dimension, max_size=kind.dimension)
    scalar = _SCALARS[kind.element]
    return st.lists(st.none() | scalar, max_size=4) if kind.family == "list" else scalar


def column(kind: AttributeType, cells: Sequence[Any]) -> tuple[pa.Array, pa.Array | None]:
    """The column of cells that may be `ABSENT` or None, and its null flags if it needs them."""
    values = [None if cell is ABSENT else cell for cell in cells]
    if kind.element == "float16":
        flat = np.array([x for v in values for x in (v or [0.0] * kind.dimension)], np.float16)
        mask = pa.array([v is None for v in values])
        array = pa.FixedSizeListArray.from_arrays(pa.array(flat), kind.dimension, mask=mask)
    else:
        array = pa.array(values, kind.arrow)
    flags = [cell is None for cell in cells]
    return array, pa.array(flags) if any(flags) else None


def rows(
    schema: Schema,
    ids: Sequence[Any],
    cells: dict[str, Sequence[Any]],
    *,
    lsns: Sequence[int] | None = None,
    kinds: Sequence[int] | None = None,
) -> pa.RecordBatch:
    """A batch of rows; a cell may be `ABSENT`, or None for an explicit null."""
    fields = [id_field(schema), LSN_FIELD, KIND_FIELD]
    arrays = [
        pa.array(ids, schema.id_type),
        pa.array(lsns if lsns is not None else [1] * len(ids), pa.uint64()),
        pa.array(kinds if kinds is not None else [0] * len(ids), pa.uint8()),
    ]
    for name, values in cells.items():
        kind = schema.attributes[name]
        array, flags = column(kind, values)
        fields.append(field_of(name, kind))
        arrays.append(array)
        if flags is not None:
            fields.append(pa.field(null_flag(name), pa.bool_()))
            arrays.append(flags)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def schema_of(id_kind: str = "string", **attributes: str) -> Schema:
    """A schema from type names."""
    return Schema(id_kind, {name: parse_type(text) for name, text in attributes.items()})


def encoded(
    batches: Sequence[pa.RecordBatch], schema: Schema, *, group_bytes: int = 512 * 1024
) -> tuple[bytes, SegmentInfo]:
    """A segment's bytes and its description."""
    writer = SegmentWriter(schema, group_bytes=group_bytes)
    for batch in batches:
        writer.append(batch)
    parts, info = writer.finish(id="s", birth=3, run="r", level=1)
    return bytes(as_bytes(parts)), info


def stored(
    store: Store,
    batches: Sequence[pa.RecordBatch],
    schema: Schema,
    *,
    group_bytes: int = 512 * 1024,
) -> SegmentInfo:
    """Put a segment under "segment"."""
    data, info = encoded(batches, schema, group_bytes=group_bytes)
    store.put("segment", data)
    return info


def bits(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Every cell, equal where its bits are; columns without a value are left out."""
    found: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        cells = [_bits(cell) for cell in _plain(batch.column(name)).to_pylist()]
        empty = (None, False) if name.startswith(NULL_FLAG) else (None,)
        if any(cell not in empty for cell in cells):
            found[name] = cells
    return found


def _plain(array: pa.Array) -> pa.Array:
    """Timestamps as integers, so that NaN payloads and far dates compare."""
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    if pa.types.is_list(array.type) and pa.types.is_timestamp(array.type.value_type):
        return array.cast(pa.list_(pa.int64()))
    return array


def _bits(cell: Any) -> Any:
    if isinstance(cell, float):
        return struct.pack("<d", cell)
    if isinstance(cell, list):
        return [_bits(element) for element in cell]
    return cell

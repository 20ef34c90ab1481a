"""Rows: Arrow record batches that follow one convention.

    id            string or uint64, never null
    \\0lsn         uint64: the log slot that wrote the row (0 in a segment not yet given one)
    \\0kind        uint8: UPSERT, DELETE (a tombstone: no attributes) or PATCH (only what changes)
    <attribute>   in the Arrow type of its attribute type; Arrow null where absent or null. Of
                  rows written before that was known it is Arrow's null, or a list of it
    \\0null\\0<attribute>   bool: true where the attribute is explicitly null. Left out when there
                  is no such row; then every Arrow null means absent

A batch may lack attributes that the schema has: they are absent in all its rows. Rows of a log
record come in operation order and may repeat an id; rows of a run are sorted by id (strings by
their UTF-8 bytes) and hold each id once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.schema import Schema
from reef.data.settling import lifted, lifts
from reef.data.types import AttributeType

ID = "id"
LSN = "\0lsn"
KIND = "\0kind"
NULL_FLAG = "\0null\0"

UPSERT, DELETE, PATCH = 0, 1, 2

KEY_COLUMNS = (ID, LSN, KIND)
_JSON = {b"reef": b"json"}


def null_flag(attribute: str) -> str:
    """The name of the column that marks explicit nulls of an attribute."""
    return NULL_FLAG + attribute


def is_attribute(column: str) -> bool:
    """Whether a column of a batch holds an attribute's values."""
    return column != ID and not column.startswith("\0")


def attributes_of(batch: pa.RecordBatch) -> list[str]:
    """The attributes that a batch has columns for."""
    return [name for name in batch.schema.names if name != ID and name[0] != "\0"]


@lru_cache(maxsize=4096)
def field_of(column: str, kind: AttributeType) -> pa.Field:
    """The Arrow field of an attribute; JSON is marked in its metadata."""
    return pa.field(column, kind.arrow, metadata=_JSON if kind.family == "json" else None)


def id_field(schema: Schema) -> pa.Field:
    """The Arrow field of the id column."""
    return pa.field(ID, schema.id_type, nullable=False)


LSN_FIELD = pa.field(LSN, pa.uint64(), nullable=False)
KIND_FIELD = pa.field(KIND, pa.uint8(), nullable=False)


def lsns_of(batch: pa.RecordBatch) -> np.ndarray:
    """The LSN column without a copy."""
    return np.asarray(batch.column(LSN))


def kinds_of(batch: pa.RecordBatch) -> np.ndarray:
    """The kind column without a copy."""
    return np.asarray(batch.column(KIND))


def with_lsn(batch: pa.RecordBatch, lsn: int) -> pa.RecordBatch:
    """The batch with every row given that LSN."""
    values = pa.array(np.full(batch.num_rows, lsn, dtype=np.uint64))
    position = batch.schema.get_field_index(LSN)
    if position >= 0:
        return batch.set_column(position, LSN_FIELD, values)
    return batch.add_column(1, LSN_FIELD, values)


def present(batch: pa.RecordBatch, attribute: str) -> pa.Array | None:
    """Per row, whether the attribute was set, to a value or to null; None if in no row."""
    position = batch.schema.get_field_index(attribute)
    if position < 0:
        return None
    valid = batch.column(position).is_valid()
    flag = batch.schema.get_field_index(null_flag(attribute))
    return valid if flag < 0 else pc.or_(valid, batch.column(flag))


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all, in order; missing attributes become absent, and types that
    some know better are what those know."""
    if len(batches) == 1:
        return batches[0]
    schema = union_of(batches)
    return pa.concat_batches([conform(batch, schema) for batch in batches])


def union_of(batches: Sequence[pa.RecordBatch]) -> pa.Schema:
    """The schema with every column that one of the batches has, of the type that is known best."""
    first = batches[0].schema
    if all(batch.schema is first or batch.schema.equals(first) for batch in batches[1:]):
        return first
    fields: dict[str, pa.Field] = {}
    for schema in {id(batch.schema): batch.schema for batch in batches}.values():
        for column in schema:
            known = fields.setdefault(column.name, column)
            if lifts(known.type, column.type):
                fields[column.name] = column
    return pa.schema(list(fields.values()))


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with just these columns; those that it lacks are absent in every row."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for column in schema:
        position = batch.schema.get_field_index(column.name)
        if position >= 0:
            columns.append(lifted(batch.column(position), column.type))
        elif column.name.startswith(NULL_FLAG):
            columns.append(pa.array(np.zeros(batch.num_rows, dtype=bool)))
        else:
            columns.append(pa.nulls(batch.num_rows, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def select(batch: pa.RecordBatch, attributes: Iterable[str] | None) -> pa.RecordBatch:
    """The key columns and only those attributes (all of them if None)."""
    if attributes is None:
        return batch
    wanted = set(attributes)
    names = [
        name
        for name in batch.schema.names
        if name in KEY_COLUMNS or name.removeprefix(NULL_FLAG) in wanted
    ]
    return batch if len(names) == batch.num_columns else batch.select(names)

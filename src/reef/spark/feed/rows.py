"""Changes as the rows of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from reef.data.rows import ID, PATCH, UPSERT, attributes_of, kinds_of, lsns_of, present
from reef.data.schema import Schema
from reef.documents.changes import ChangeBatch
from reef.errors import InvalidInput, SchemaConflict
from reef.spark.types import arrow_schema, check_columns, spark_schema, to_spark

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGED_COLUMNS = "_changed_columns"
_ADDED: Mapping[str, DataType] = {
    CHANGE_TYPE: StringType(),
    COMMIT_VERSION: LongType(),
    COMMIT_TIMESTAMP: TimestampType(),
    CHANGED_COLUMNS: ArrayType(StringType()),
}
_NAMES = pa.array(["upsert", "delete", "patch"])
_TRUNCATE = "truncate"


def feed_schema(schema: Schema, *, unsigned_ids: bool = False) -> StructType:
    """The columns of a change feed: the documents' own, and what is told about each change."""
    for name in _ADDED:
        if name in schema.attributes:
            raise InvalidInput(
                f"attribute {name!r} has the name of a column of the change feed, which cannot be"
                " read of this namespace"
            )
    fields = spark_schema(schema, unsigned_ids=unsigned_ids).fields
    return StructType([*fields, *(StructField(name, kind) for name, kind in _ADDED.items())])


@dataclass(frozen=True)
class Shape:
    """How the changes are to be shown: as `struct`, whose columns beyond the documents' are known
    only to a change feed. Otherwise upserts alone are shown, and other changes refused, or left
    out with `ignore_changes`. A shape that `is_whole` has a column for every attribute: another
    one in the log is an error.
    """

    struct: StructType
    change_feed: bool
    ignore_changes: bool = False
    is_whole: bool = False

    def check(self, schema: Schema) -> None:
        """`InvalidInput` unless a namespace of that schema has all these columns."""
        fields = self.struct.fields
        check_columns(
            StructType([field for field in fields if field.name not in self._added]), schema
        )
        for field in fields:
            kind = self._added.get(field.name)
            if kind is not None and field.dataType != kind:
                raise InvalidInput(
                    f"column {field.name!r} is {kind.simpleString()}, "
                    f"not {field.dataType.simpleString()}"
                )

    def rows(self, changes: ChangeBatch) -> pa.RecordBatch | None:
        """The changes as a batch for Spark; None if nothing of them is shown."""
        rows = changes.rows
        if rows is None:
            return self._truncation(changes)
        kinds = kinds_of(rows)
        self._check_attributes(rows)
        if not self.change_feed:
            kept = kinds == UPSERT
            if not kept.all():
                if not self.ignore_changes:
                    raise not_only_upserts(int(lsns_of(rows)[np.argmin(kept)]))
                rows = rows.filter(pa.array(kept))
            return to_spark(rows, self._schema) if rows.num_rows else None
        columns: dict[str, pa.Array] = dict(
            zip(self._documents.names, to_spark(rows, self._documents).columns, strict=True)
        )
        for name in self._added:
            position = self._schema.get_field_index(name)
            if position >= 0:
                kind = self._schema.field(position).type
                columns[name] = _told(name, rows, kinds, changes.moments, kind)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._schema.names], schema=self._schema
        )

    @property
    def columns(self) -> list[str] | None:
        """The attributes to fetch; None for all, which must be looked at."""
        if self.is_whole:
            return None
        return [name for name in self._documents.names if name != ID]

    @cached_property
    def _added(self) -> Mapping[str, DataType]:
        return _ADDED if self.change_feed else {}

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(self.struct)

    @cached_property
    def _documents(self) -> pa.Schema:
        return pa.schema([field for field in self._schema if field.name not in self._added])

    def _truncation(self, changes: ChangeBatch) -> pa.RecordBatch | None:
        if not self.change_feed:
            if not self.ignore_changes:
                raise not_only_upserts(changes.lsn)
            return None
        told = {
            CHANGE_TYPE: [_TRUNCATE],
            COMMIT_VERSION: [changes.lsn],
            COMMIT_TIMESTAMP: [int(changes.moments[0])],
        }
        return pa.RecordBatch.from_arrays(
            [pa.array(told.get(field.name, [None]), field.type) for field in self._schema],
            schema=self._schema,
        )

    def _check_attributes(self, rows: pa.RecordBatch) -> None:
        at = self._schema.get_field_index(ID)
        if at >= 0:
            integers = not pa.types.is_string(self._schema.field(at).type)
            if integers != pa.types.is_uint64(rows.column(ID).type):
                raise SchemaConflict(
                    "the kind of ids was decided after this query began; start it again"
                )
        if not self.is_whole:
            return
        for name in attributes_of(rows):
            if name in self._schema.names:
                continue
            flags = present(rows, name)
            if flags is not None and flags.true_count:
                lsn = int(lsns_of(rows)[pc.index(flags, True).as_py()])
                raise SchemaConflict(
                    f"attribute {name!r} appeared in the log at LSN {lsn}, after this query began;"
                    " start it again, and it goes on there with the new column"
                )


def not_only_upserts(lsn: int) -> InvalidInput:
    """What is said of a change that a stream of documents cannot show."""
    return InvalidInput(
        f"LSN {lsn} of the log deletes, patches or truncates, which a stream of documents cannot"
        " show; set readChangeFeed=true to see such changes, or ignoreChanges=true to leave them"
        " out"
    )


def _told(
    name: str, rows: pa.RecordBatch, kinds: np.ndarray, moments: np.ndarray, kind: pa.DataType
) -> pa.Array:
    if name == CHANGE_TYPE:
        return _NAMES.take(pa.array(kinds))
    if name == COMMIT_VERSION:
        return pa.array(lsns_of(rows).astype(np.int64))
    if name == COMMIT_TIMESTAMP:
        return pa.array(moments).view(kind)
    return _changed_columns(rows, kinds == PATCH, kind)


def _changed_columns(rows: pa.RecordBatch, patched: np.ndarray, kind: pa.DataType) -> pa.Array:
    """For each patch the names of the attributes that it set, to a value or to null."""
    if not patched.any():
        return pa.nulls(rows.num_rows, kind)
    names = attributes_of(rows)
    flags = np.zeros((rows.num_rows, len(names)), dtype=bool)
    for column, name in enumerate(names):
        found = present(rows, name)
        if found is not None:
            flags[:, column] = found.to_numpy(zero_copy_only=False)
    flags[~patched] = False
    offsets = np.zeros(rows.num_rows + 1, dtype=np.int32)
    np.cumsum(flags.sum(axis=1), out=offsets[1:])
    values = pa.array(names, pa.string()).take(pa.array(np.nonzero(flags)[1]))
    valid = pa.py_buffer(np.packbits(patched, bitorder="little"))
    return pa.Array.from_buffers(
        kind, rows.num_rows, [valid, pa.py_buffer(offsets)], children=[values]
    )

"""A scan: documents of a range of ids, as Arrow batches, a table, a frame, or Python dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from reef.data.documents import documents_of
from reef.data.rows import ID, field_of, id_field
from reef.data.schema import Schema
from reef.data.settling import lifted


class Scan:
    """Documents in id order, fetched as they are consumed. May be iterated more than once; every
    iteration shows the same state, the one that was current when the scan was made.

    If that state was collected before anything of it was shown, it is a newer one, for all
    iterations. Once something was shown, `PastRetention` is raised instead. A snapshot keeps its
    state for as long as it is open.
    """

    def __init__(
        self,
        batches: Callable[[], Iterator[pa.RecordBatch]],
        schema: Schema,
        columns: tuple[str, ...] | None,
        limit: int | None,
    ) -> None:
        self._batches = batches
        self._limit = limit
        self._columns = columns
        names = schema.attributes if columns is None else columns
        with_id = columns is None or ID in columns
        self.schema: pa.Schema = pa.schema(
            ([id_field(schema)] if with_id else [])
            + [field_of(name, schema.attributes[name]) for name in names if name != ID]
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches, all with this scan's `schema`; null where null or absent."""
        for batch in self._limited():
            yield _conform(batch, self.schema)

    def _limited(self) -> Iterator[pa.RecordBatch]:
        left = self._limit
        if left == 0:
            return
        for batch in self._batches():
            if left is None:
                yield batch
                continue
            if batch.num_rows >= left:
                yield batch.slice(0, left)
                return
            left -= batch.num_rows
            yield batch

    def documents(self) -> Iterator[dict[str, Any]]:
        """Python dicts; attributes that a document does not have are left out."""
        for batch in self._limited():
            yield from documents_of(batch, self._columns)

    def to_table(self) -> pa.Table:
        """Everything as an Arrow table."""
        return pa.Table.from_batches(list(self), schema=self.schema)

    def to_pandas(self) -> Any:
        """Everything as a pandas frame (pandas must be installed)."""
        return self.to_table().to_pandas()

    def to_polars(self) -> Any:
        """Everything as a polars frame (polars must be installed)."""
        import polars

        return polars.from_arrow(self.to_table())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow stream protocol: any library that speaks it can consume the scan."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            columns.append(lifted(batch.column(position), field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)

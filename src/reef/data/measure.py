"""How much memory rows take, counted before they are put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

_OFFSET_BYTES = 4
_ROUGH_BYTES = 64 * 1024


class Measure:
    """Counts bytes of batches as they will be once they are one batch with the others.

    A batch that lacks an attribute gets a column of nulls, and a null takes as much room as a
    value where values have a fixed width: beside vectors of 64 KiB a tombstone is not small.
    """

    __slots__ = ("_own", "_schema", "_seen", "width")

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self.width = 0.0
        self._schema: pa.Schema | None = None
        self._own = 0.0

    def of(self, batch: pa.RecordBatch) -> int:
        """About how many bytes these rows come to, given all columns known so far."""
        return int(batch.nbytes) + batch.num_rows * self.missing(batch)

    def missing(self, batch: pa.RecordBatch) -> int:
        """Bytes that a row takes for columns that its batch lacks."""
        self.learn(batch.schema)
        return int(self.width - self._own)

    def learn(self, schema: pa.Schema) -> None:
        """Know the columns of a schema."""
        if self._schema is not None and schema.equals(self._schema):
            return
        self._schema, self._own = schema, 0.0
        for field in schema:
            width = _width_of(field.type)
            self._own += width
            # A column of a type that was not known yet becomes as wide as others know it to be.
            seen = self._seen.get(field.name, 0.0)
            if width > seen:
                self._seen[field.name] = width
                self.width += width - seen


def bytes_together(batches: Sequence[pa.RecordBatch]) -> int:
    """About how many bytes these batches take as one."""
    if len(batches) == 1:
        return int(batches[0].nbytes)
    measure = Measure()
    for batch in batches:
        measure.learn(batch.schema)
    return sum(map(measure.of, batches))


def chunks(batches: Iterable[pa.RecordBatch], nbytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Neighbours that come to no more than so many bytes together; one batch alone may."""
    held: list[pa.RecordBatch] = []
    measure = Measure()
    size = 0
    for batch in batches:
        width = measure.width
        measure.learn(batch.schema)
        if held and measure.width != width:
            size = sum(map(measure.of, held))
        own = measure.of(batch)
        if held and size + own > nbytes:
            yield held
            held, measure = [], Measure()
            size = 0
            own = measure.of(batch)
        held.append(batch)
        size += own
    if held:
        yield held


def _width_of(arrow: pa.DataType) -> float:
    """Bytes that a null of a type takes."""
    if pa.types.is_null(arrow):
        return 0.0
    if pa.types.is_fixed_size_list(arrow):
        return float(arrow.list_size * arrow.value_type.bit_width / 8)
    try:
        return float(arrow.bit_width / 8)
    except ValueError:
        return _OFFSET_BYTES


def rows_together(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    """Per row of all batches, about how many bytes it takes once they are one."""
    measure = Measure()
    for batch in batches:
        measure.learn(batch.schema)
    return np.concatenate([_row_bytes(batch) + measure.missing(batch) for batch in batches])


def _row_bytes(batch: pa.RecordBatch) -> np.ndarray:
    """Per row, about how many bytes it takes. The average stands for the rows of a small batch."""
    whole, rows = batch.nbytes, batch.num_rows
    if whole <= _ROUGH_BYTES or rows < 2:
        return np.full(rows, -(-whole // max(1, rows)), np.int64)
    sizes = np.zeros(rows, np.int64)
    even = 0
    for column in batch.columns:
        lengths = _lengths(column)
        if lengths is None:
            even += column.nbytes
        else:
            sizes += lengths
            even += _OFFSET_BYTES * rows
    sizes += -(-even // rows)
    return sizes


def _lengths(column: pa.Array) -> np.ndarray | None:
    """Per row, how many bytes a value of varying length takes; None if all take the same."""
    arrow = column.type
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return np.diff(_offsets(column))
    if pa.types.is_list(arrow):
        bounds = _offsets(column)
        inner = column.values
        if pa.types.is_string(inner.type) or pa.types.is_binary(inner.type):
            places = _offsets(inner).astype(np.int64)
            return np.diff(places[bounds]) + _OFFSET_BYTES * np.diff(bounds)
        if pa.types.is_null(inner.type):
            return None
        return np.diff(bounds) * np.int64(-(-inner.type.bit_width // 8))
    return None


def _offsets(column: pa.Array) -> np.ndarray:
    data = column.buffers()[1]
    if data is None or not data.size:
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(data, np.int32, len(column) + 1, 4 * column.offset)

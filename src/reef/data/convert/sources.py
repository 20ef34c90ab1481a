"""Taking input apart into columns, whatever it came as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from reef.data.rows import ID
from reef.errors import InvalidId, InvalidInput, SchemaConflict


@dataclass(frozen=True, slots=True)
class ValueColumn:
    """Python values, None for null; `absent` marks the rows that do not have the attribute."""

    values: list[Any]
    absent: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """An Arrow array, or several. With `json`, its strings are JSON text."""

    array: pa.Array | pa.ChunkedArray
    json: bool = False


Source = ValueColumn | ArrowColumn


def sliced(source: Source, rows: range) -> Source:
    """Those rows of a column."""
    if isinstance(source, ArrowColumn):
        return ArrowColumn(source.array.slice(rows.start, len(rows)), source.json)
    absent = source.absent if source.absent is None else source.absent[rows.start : rows.stop]
    return ValueColumn(source.values[rows.start : rows.stop], absent)


def sources_of(data: object) -> tuple[dict[str, Source], int]:
    """The columns of the input by name, and the number of rows."""
    if isinstance(data, list | tuple):
        return _rows(data), len(data)
    if isinstance(data, Mapping):
        return _columns(data)
    if _is_pandas(data):
        return _pandas(data)
    return _table(data)


def _rows(rows: Sequence[Any]) -> dict[str, Source]:
    if set(map(type, rows)) - {dict}:
        plain = []
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidInput(f"row {number} must be a dict, not {type(row).__name__}")
            plain.append(dict(row))
        rows = plain
    sources: dict[str, Source] = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        try:
            sources[name] = ValueColumn(list(map(itemgetter(name), rows)))
        except KeyError:
            absent = np.fromiter((name not in row for row in rows), bool, len(rows))
            if name == ID:
                number = int(np.argmax(absent))
                raise InvalidId(f"the id of row {number} is missing") from None
            sources[name] = ValueColumn([row.get(name) for row in rows], absent)
    return sources


def _columns(data: Mapping[Any, Any]) -> tuple[dict[str, Source], int]:
    sources: dict[str, Source] = {}
    rows: int | None = None
    for name, column in data.items():
        source = _source(name, column)
        length = len(source.values if isinstance(source, ValueColumn) else source.array)
        if rows is None:
            rows = length
        elif length != rows:
            raise InvalidInput(f"column {name!r} has {length} rows, and the ones before {rows}")
        # A column of no values asks for no type.
        if length or name == ID or isinstance(source, ArrowColumn):
            sources[name] = source
    return sources, rows or 0


def _source(name: Any, column: Any) -> Source:
    if isinstance(column, list | tuple):
        return ValueColumn(list(column))
    if isinstance(column, np.ndarray):
        return _numpy(name, column)
    if isinstance(column, pa.Array | pa.ChunkedArray):
        return _arrow(name, column)
    if _is_pandas(column):
        return _series(name, column)
    if hasattr(column, "__arrow_c_stream__"):
        return _arrow(name, pa.chunked_array(column))
    if hasattr(column, "__arrow_c_array__"):
        return _arrow(name, pa.array(column))
    if hasattr(column, "to_arrow"):
        return _arrow(name, column.to_arrow())
    kind = type(column).__name__
    raise InvalidInput(f"column {name!r} must be a list or an array of values, not a {kind}")


def _arrow(name: Any, column: Any, field: pa.Field | None = None) -> ArrowColumn:
    if field is None:
        _validate(column)
    metadata = (field.metadata if field is not None else None) or {}
    json = metadata.get(b"reef") == b"json" or (
        isinstance(column.type, pa.BaseExtensionType) and column.type.extension_name == "arrow.json"
    )
    return ArrowColumn(column, json)


def _validate(data: Any) -> None:
    """Arrow data may come from anywhere, with text that is no UTF-8 and offsets that run out."""
    try:
        data.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"the Arrow data is not sound: {error}") from None


def _numpy(name: Any, column: np.ndarray) -> Source:
    if column.ndim == 0:
        raise InvalidInput(f"column {name!r} must be a list or an array of values, not one value")
    kind = column.dtype.kind
    if kind == "O":
        return ValueColumn(list(column))
    if kind not in "biufUS" or (column.dtype.itemsize > 8 and kind in "fiu"):
        raise SchemaConflict(f"attribute {name!r} cannot be an array of {column.dtype}")
    if not column.dtype.isnative:
        column = column.astype(column.dtype.newbyteorder("="))
    if column.ndim == 1:
        try:
            return ArrowColumn(pa.array(column))
        except (pa.ArrowException, UnicodeError, ValueError):
            return ValueColumn(column.tolist())
    if isinstance(column, np.ma.MaskedArray):
        raise SchemaConflict(f"attribute {name!r} cannot be a masked array of lists")
    if column.ndim > 2 or not column.shape[1] or kind in "US":
        return ValueColumn(list(column))
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    size = column.shape[1]
    if column.dtype in (np.float32, np.float16):
        return ArrowColumn(pa.FixedSizeListArray.from_arrays(flat, size))
    offsets = np.arange(0, len(flat) + 1, size, dtype=np.int64)
    return ArrowColumn(pa.LargeListArray.from_arrays(pa.array(offsets), flat))


def _is_pandas(data: object) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas"


def _pandas(frame: Any) -> tuple[dict[str, Source], int]:
    if not hasattr(frame, "columns"):
        raise InvalidInput(f"rows cannot be made from a pandas {type(frame).__name__}")
    sources: dict[str, Source] = {}
    for position, name in enumerate(frame.columns):
        if name in sources:
            raise InvalidInput(f"there are two columns {name!r}")
        sources[name] = _series(name, frame.iloc[:, position])
    return sources, len(frame)


def _series(name: Any, series: Any) -> Source:
    if series.dtype == object:
        missing = series.isna().to_numpy()
        values = series.tolist()
        if missing.any():
            values = [None if gone else v for v, gone in zip(values, missing, strict=True)]
        return ValueColumn(values)
    try:
        return _arrow(name, pa.Array.from_pandas(series))
    except (pa.ArrowException, TypeError) as error:
        raise SchemaConflict(f"attribute {name!r} cannot be a {series.dtype}: {error}") from None


def _table(data: Any) -> tuple[dict[str, Source], int]:
    try:
        if not isinstance(data, pa.Table | pa.RecordBatch):
            if hasattr(data, "__arrow_c_stream__"):
                data = pa.table(data)
            elif hasattr(data, "__arrow_c_array__"):
                data = pa.record_batch(data)
            elif hasattr(data, "to_arrow"):
                data = data.to_arrow()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInput(f"the rows do not come as a table: {error}") from None
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise InvalidInput(
            "rows are a list of dicts, a dict of columns, an Arrow table or a DataFrame,"
            f" not a {type(data).__name__}"
        )
    _validate(data)
    sources: dict[str, Source] = {}
    for field, column in zip(data.schema, data.columns, strict=True):
        if field.name in sources:
            raise InvalidInput(f"there are two columns {field.name!r}")
        sources[field.name] = _arrow(field.name, column, field)
    return sources, data.num_rows

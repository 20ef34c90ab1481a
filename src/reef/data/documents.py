"""Documents: rows as Python dictionaries.

Every way to make one gives the same values: absent attributes are left out, an explicit null is
None, vectors and lists are lists, timestamps are aware datetimes in UTC, JSON is decoded. The id
stands under "id". Where NumPy arrays are asked for, vectors are those, in their own type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pyarrow as pa

from reef.data.rows import ID, attributes_of, null_flag
from reef.errors import Corruption

Document = dict[str, object]
Getter = Callable[[int], object]
"""The Python value of a column in a row, or `ABSENT`."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = b"json"


class _Absent:
    """The type of `ABSENT`."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()
decode_json = msgspec.json.Decoder().decode
_UNREADABLE = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)


def moment(microseconds: int) -> datetime:
    """The datetime that many microseconds after 1970 began."""
    return _EPOCH + timedelta(0, 0, microseconds)


def is_json(field: pa.Field) -> bool:
    """Whether a column holds JSON text."""
    return bool(field.metadata and field.metadata.get(b"reef") == _JSON)


def getter_of(
    values: pa.Array,
    nulls: pa.Array | None = None,
    *,
    json: bool = False,
    arrays: bool = False,
) -> Getter:
    """A function that gives a column's cells; making it costs microseconds, calling it less.

    With `arrays` vectors are NumPy arrays, which cost less to make than lists.
    """
    value = _value_getter(values, json, arrays)
    if not values.null_count:
        return value
    if values.null_count == len(values) and values.buffers()[0] is None:
        return _missing_getter(nulls)
    bits, offset = memoryview(values.buffers()[0]).cast("B"), values.offset
    missing = _missing_getter(nulls)

    def get(row: int) -> object:
        at = row + offset
        return value(row) if bits[at >> 3] >> (at & 7) & 1 else missing(row)

    return get


def _missing_getter(nulls: pa.Array | None) -> Getter:
    if nulls is None:
        return lambda row: ABSENT
    flags = nulls.to_numpy(zero_copy_only=False).tolist()
    return lambda row: None if flags[row] else ABSENT


def _value_getter(values: pa.Array, json: bool, arrays: bool = False) -> Getter:
    arrow = values.type
    buffers = values.buffers()
    offset, count = values.offset, len(values)
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        return _text_getter(values, decode_json if json else None)
    if pa.types.is_fixed_size_list(arrow):
        return _vector_getter(values, arrays)
    if pa.types.is_list(arrow):
        return _list_getter(values)
    if pa.types.is_null(arrow) or buffers[1] is None:
        return lambda row: ABSENT
    if pa.types.is_boolean(arrow):
        bits = memoryview(buffers[1]).cast("B")
        return lambda row: bool(bits[(row + offset) >> 3] >> ((row + offset) & 7) & 1)
    data = memoryview(buffers[1])[8 * offset : 8 * (offset + count)]
    if pa.types.is_float64(arrow):
        return data.cast("d").__getitem__
    cells = data.cast("Q" if pa.types.is_uint64(arrow) else "q")
    if pa.types.is_timestamp(arrow):
        return lambda row: _EPOCH + timedelta(0, 0, cells[row])
    return cells.__getitem__


def _offsets(values: pa.Array) -> memoryview:
    data = values.buffers()[1]
    if data is None or data.size == 0:
        return memoryview(bytes(4)).cast("i")
    return memoryview(data)[4 * values.offset : 4 * (values.offset + len(values) + 1)].cast("i")


def _text_getter(values: pa.Array, decode: Callable[[memoryview], object] | None) -> Getter:
    offsets = _offsets(values)
    buffer = values.buffers()[2]
    data = memoryview(buffer if buffer is not None else b"")
    if decode is not None:
        return lambda row: decode(data[offsets[row] : offsets[row + 1]])
    if pa.types.is_string(values.type):
        return lambda row: str(data[offsets[row] : offsets[row + 1]], "utf-8")
    return lambda row: bytes(data[offsets[row] : offsets[row + 1]])


def _vector_getter(values: pa.Array, arrays: bool) -> Getter:
    cells = vectors_of(values)
    if arrays:
        # A copy: a view would keep all the others in memory as long as it lives.
        return lambda row: cells[row].copy()
    return lambda row: cells[row].tolist()


def _list_getter(values: pa.Array) -> Getter:
    offsets = _offsets(values)
    element = getter_of(values.values)
    if not values.values.null_count:
        return lambda row: list(map(element, range(offsets[row], offsets[row + 1])))

    def get(row: int) -> object:
        found = map(element, range(offsets[row], offsets[row + 1]))
        return [None if value is ABSENT else value for value in found]

    return get


def vectors_of(values: pa.Array) -> np.ndarray:
    """A column of vectors as a matrix, a vector a row, without a copy; anything where null."""
    size = values.type.list_size
    numbers = values.values
    data = numbers.buffers()[1]
    dtype = np.dtype(np.float32 if pa.types.is_float32(numbers.type) else np.float16)
    if data is None:
        return np.zeros((len(values), size), dtype)
    start = numbers.offset + values.offset * size
    cells = np.frombuffer(data, dtype, len(values) * size, start * dtype.itemsize)
    return cells.reshape(len(values), size)


def document_of(
    batch: pa.RecordBatch, row: int, columns: Iterable[str] | None = None, *, arrays: bool = False
) -> Document:
    """One row as a document; of `columns`, those that it has. For many rows, see `Documents`."""
    schema = batch.schema
    document: Document = {ID: batch.column(schema.get_field_index(ID))[row].as_py()}
    for name in attributes_of(batch) if columns is None else columns:
        position = schema.get_field_index(name)
        if position < 0 or name == ID:
            continue
        values = batch.column(position)[row : row + 1]
        if values.null_count:
            flag = schema.get_field_index(null_flag(name))
            if flag >= 0 and batch.column(flag)[row].as_py():
                document[name] = None
            continue
        try:
            document[name] = _only(values, is_json(schema.field(position)), arrays)
        except _UNREADABLE as error:
            raise unreadable(document[ID], error) from None
    return document


def _only(values: pa.Array, json: bool, arrays: bool) -> object:
    if pa.types.is_timestamp(values.type):
        return moment(values[0].value)
    if pa.types.is_nested(values.type):
        return _value_getter(values, False, arrays)(0)
    value = values[0].as_py()
    return decode_json(value) if json else value


class Documents:
    """The rows of a batch as documents, one at a time and quickly once warm."""

    __slots__ = ("_batch", "_getters", "_id")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._id = getter_of(batch.column(batch.schema.get_field_index(ID)))
        self._getters: dict[str, Getter] | None = None

    def document(self, row: int, columns: Sequence[str] | None = None) -> Document:
        """One row; of `columns`, those that it has."""
        getters = self._getters
        if getters is None:
            getters = self._getters = getters_of(self._batch)
        return build_document(self._id(row), getters, row, columns)


def getters_of(batch: pa.RecordBatch) -> dict[str, Getter]:
    """A getter for every attribute of a batch."""
    schema = batch.schema
    getters: dict[str, Getter] = {}
    for name in attributes_of(batch):
        position = schema.get_field_index(name)
        flag = schema.get_field_index(null_flag(name))
        nulls = batch.column(flag) if flag >= 0 else None
        getters[name] = getter_of(
            batch.column(position), nulls, json=is_json(schema.field(position))
        )
    return getters


def unreadable(identity: object, error: Exception) -> Corruption:
    """A document has a value that was never written so: JSON that is none, a year that is not."""
    return Corruption(f"document {identity!r}", f"a value of it cannot be read ({error})")


def build_document(
    identity: object, getters: dict[str, Getter], row: int, columns: Sequence[str] | None
) -> Document:
    """The document that getters give for a row."""
    document: Document = {ID: identity}
    try:
        if columns is None:
            for name, get in getters.items():
                value = get(row)
                if value is not ABSENT:
                    document[name] = value
        else:
            for name in columns:
                if name in getters:
                    value = getters[name](row)
                    if value is not ABSENT:
                        document[name] = value
    except _UNREADABLE as error:
        raise unreadable(identity, error) from None
    return document


def documents_of(batch: pa.RecordBatch, columns: Iterable[str] | None = None) -> list[Document]:
    """All rows as documents, a column at a time; of `columns`, those that there are."""
    schema = batch.schema
    wanted = attributes_of(batch) if columns is None else list(columns)
    names, full = [ID], [batch.column(schema.get_field_index(ID)).to_pylist()]
    partial: list[tuple[str, list[int], list[object]]] = []
    for name in wanted:
        position = schema.get_field_index(name)
        if position < 0 or name == ID:
            continue
        values = batch.column(position)
        try:
            cells = _cells(values, is_json(schema.field(position)))
        except _UNREADABLE as error:
            first, last = full[0][0], full[0][-1]
            reason = f"a value of {name!r} cannot be read ({error})"
            raise Corruption(f"one of the documents {first!r} to {last!r}", reason) from None
        if not values.null_count:
            names.append(name)
            full.append(cells)
            continue
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(valid).tolist()
        partial.append((name, rows, [cells[row] for row in rows]))
        flag = schema.get_field_index(null_flag(name))
        if flag >= 0:
            flags = batch.column(flag).to_numpy(zero_copy_only=False) & ~valid
            rows = np.flatnonzero(flags).tolist()
            partial.append((name, rows, [None] * len(rows)))
    documents = [dict(zip(names, row, strict=True)) for row in zip(*full, strict=True)]
    for name, rows, found in partial:
        for row, value in zip(rows, found, strict=True):
            documents[row][name] = value
    return documents


def _cells(values: pa.Array, json: bool) -> list[object]:
    """Every cell; anything where there is none."""
    arrow = values.type
    if pa.types.is_fixed_size_list(arrow):
        found: list[object] = vectors_of(values).tolist()
        return found
    if pa.types.is_timestamp(arrow):
        return [None if cell is None else moment(cell) for cell in values.view("int64").to_pylist()]
    if pa.types.is_list(arrow) and pa.types.is_timestamp(arrow.value_type):
        get = getter_of(values)
        return list(map(get, range(len(values))))
    cells: list[object] = values.to_pylist()
    if json:
        return [None if cell is None else decode_json(cell) for cell in cells]  # type: ignore[arg-type]
    return cells

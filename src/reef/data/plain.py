"""Plain rows: a few rows as Python values, the short way of small batches.

An Arrow batch costs tens of microseconds to make and as many to read, however small it is. Most
writes are one document. So a few rows travel as dicts of checked, normalized values, packed as
MessagePack; Arrow comes in when many of them are folded or scanned together.

A value is a bool, int, float, str, bytes, aware datetime or list of those as it stands; JSON is its
text, a vector the little-endian bytes of its numbers. None is an explicit null, and an attribute
that is absent has no key. Of a type that is not known yet there are nulls only: rows with empty
lists of whatever it may be are Arrow batches.

    packed rows:   types length u32 | JSON of attribute types, with the kind of ids under "id"
                   | row count u32 | the rows' kinds, a byte each | a MessagePack map for each row
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Required, TypeAlias, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from reef.data.documents import unreadable
from reef.data.rows import (
    DELETE,
    ID,
    KIND,
    KIND_FIELD,
    PATCH,
    UPSERT,
    concat,
    field_of,
    null_flag,
)
from reef.data.schema import ID_TYPES, INTEGER_IDS, STRING_IDS, Schema
from reef.data.settling import settled
from reef.data.types import VECTOR_ELEMENTS, AttributeType, parse_type

_U32 = struct.Struct("<I")
_ARRAY32 = struct.Struct(">BI")
_ARRAY32_TAG = 0xDD
_KINDS = bytes([UPSERT, DELETE, PATCH])

_pack = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode

Document = dict[str, Any]


class Types:
    """The attribute types that plain rows may use, and the kind of their ids."""

    __slots__ = (
        *("_unpack", "array_readers", "attributes", "encoded", "format", "id_kind", "readers"),
        "vector_bytes",
    )

    def __init__(self, attributes: Mapping[str, AttributeType], id_kind: str) -> None:
        self.attributes = dict(attributes)
        self.id_kind = id_kind
        self.format = Schema(id_kind, self.attributes).format
        names = {name: str(kind) for name, kind in self.attributes.items()}
        self.encoded = msgspec.json.encode({ID: id_kind, **names})
        # Only attributes whose value is not stored as it is returned.
        self.readers: dict[str, Callable[[Any], Any]] = {
            name: reader
            for name, kind in self.attributes.items()
            if (reader := _reader_of(kind)) is not None
        }
        self.array_readers = self.readers | {
            name: _array_reader(kind)
            for name, kind in self.attributes.items()
            if kind.family == "vector"
        }
        # What a row takes in Arrow for its vectors, whether it has them or not.
        self.vector_bytes = sum(
            _width(kind) for kind in self.attributes.values() if kind.family == "vector"
        )
        self._unpack: Callable[[bytes], list[Document]] | None = None

    def unpack(self, packed: bytes) -> list[Document]:
        """The rows in a MessagePack array of maps, every value of its type."""
        if self._unpack is None:
            self._unpack = msgspec.msgpack.Decoder(list[self._row()]).decode  # type: ignore[misc]
        return self._unpack(packed)

    def _row(self) -> Any:
        """A row as a type that MessagePack is checked against while it is unpacked: that costs
        nothing, so nothing has to be believed because its checksum is right."""
        fields: dict[str, Any] = {ID: Required[_ID_VALUES[self.id_kind]]}
        for name, kind in self.attributes.items():
            fields[name] = _value_type(kind) | None
        return TypedDict("Row", fields, total=False)  # type: ignore[operator]


_ID_VALUES: dict[str, Any] = {STRING_IDS: str, INTEGER_IDS: Annotated[int, msgspec.Meta(ge=0)]}
_VALUES: dict[str, Any] = {
    "bool": bool,
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "float64": float,
    "string": str,
    "bytes": bytes,
    "timestamp": Annotated[datetime, msgspec.Meta(tz=True)],
    "json": str,
}


def _value_type(kind: AttributeType) -> Any:
    if kind.family == "vector":
        width = _width(kind)
        return Annotated[bytes, msgspec.Meta(min_length=width, max_length=width)]
    if kind.is_open:
        return type(None)
    value = _VALUES[kind.element]
    return list[value | None] if kind.family == "list" else value  # type: ignore[valid-type]


def _width(kind: AttributeType) -> int:
    """How many bytes a vector takes."""
    return kind.dimension * VECTOR_ELEMENTS[kind.element].bit_width // 8


@lru_cache(maxsize=256)
def _types_of(encoded: bytes) -> Types:
    names = msgspec.json.decode(encoded, type=dict[str, str])
    id_kind = names.pop(ID)
    if id_kind not in ID_TYPES:
        raise ValueError(f"ids of the unknown kind {id_kind!r}")
    return Types({name: parse_type(text) for name, text in names.items()}, id_kind)


def _reader_of(kind: AttributeType) -> Callable[[Any], Any] | None:
    if kind.family == "json":
        return _decode_json
    if kind.family == "list":
        return list
    if kind.family == "vector":
        numbers = _numbers(kind)
        return lambda data: np.frombuffer(data, numbers).tolist()
    return None


def _array_reader(kind: AttributeType) -> Callable[[Any], Any]:
    stored = _numbers(kind)
    native = stored.newbyteorder("=")
    return lambda data: np.frombuffer(data, stored).astype(native)


def _numbers(kind: AttributeType) -> np.dtype:
    return np.dtype("<f4" if kind.element == "float32" else "<f2")


class PlainRows:
    """A few rows. Immutable, and they share nothing with whoever passed them in."""

    __slots__ = ("_packed", "kinds", "rows", "types")

    def __init__(
        self, rows: list[Document], kinds: bytes, types: Types, packed: list[bytes] | None = None
    ) -> None:
        self.rows = rows
        self.kinds = kinds
        self.types = types
        self._packed = packed

    @property
    def num_rows(self) -> int:
        """How many there are."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def packed(self) -> list[bytes]:
        """Each row as a MessagePack map."""
        if self._packed is None:
            self._packed = [_pack(row) for row in self.rows]
        return self._packed

    @property
    def nbytes(self) -> int:
        """How many bytes the packed rows take."""
        return sum(map(len, self.packed))

    def ids(self) -> list[str | int]:
        """The ids in row order."""
        return [row[ID] for row in self.rows]

    def document(
        self, row: int, columns: Sequence[str] | None = None, *, arrays: bool = False
    ) -> Document:
        """A row as a document; of `columns`, those that it has. With `arrays` vectors are NumPy
        arrays."""
        stored = self.rows[row]
        readers = self.types.array_readers if arrays else self.types.readers
        if columns is None:
            document = stored.copy()
        else:
            document = {ID: stored[ID]}
            for name in columns:
                if name in stored:
                    document[name] = stored[name]
        try:
            for name in readers:
                value = document.get(name)
                if value is not None:
                    document[name] = readers[name](value)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise unreadable(stored[ID], error) from None
        return document

    def filter(self, keep: Sequence[bool]) -> PlainRows:
        """Only those rows."""
        places = [place for place, kept in enumerate(keep) if kept]
        packed = self.packed
        return PlainRows(
            [self.rows[place] for place in places],
            bytes(self.kinds[place] for place in places),
            self.types,
            [packed[place] for place in places],
        )

    def encode(self) -> list[bytes]:
        """The rows as bytes, in parts."""
        types = self.types.encoded
        head = _U32.pack(len(types)) + types + _U32.pack(len(self.rows)) + self.kinds
        return [head, *self.packed]

    @staticmethod
    def decode(data: memoryview) -> PlainRows:
        """The inverse of `encode`; ValueError or a kind of it if these are no packed rows."""
        (length,) = _U32.unpack_from(data)
        end = _U32.size + length
        types = _types_of(bytes(data[_U32.size : end]))
        (count,) = _U32.unpack_from(data, end)
        start = end + _U32.size
        kinds = bytes(data[start : start + count])
        if len(kinds) != count or kinds.translate(None, _KINDS):
            raise ValueError("not a kind for every row")
        body = _ARRAY32.pack(_ARRAY32_TAG, count) + data[start + count :]
        return PlainRows(types.unpack(body), kinds, types)


Rows: TypeAlias = "pa.RecordBatch | PlainRows"
"""Rows of a log record, in either form."""


def tombstone_rows(ids: Iterable[str | int], id_kind: str) -> PlainRows:
    """Plain rows that delete those ids."""
    rows: list[Document] = [{ID: id} for id in ids]
    return PlainRows(rows, bytes([DELETE]) * len(rows), _no_attributes(id_kind))


@lru_cache(maxsize=4)
def _no_attributes(id_kind: str) -> Types:
    return Types({}, id_kind)


def ids_of(rows: Rows) -> list[str | int]:
    """The ids in row order, as Python values."""
    if isinstance(rows, PlainRows):
        return rows.ids()
    ids: list[str | int] = rows.column(ID).to_pylist()
    return ids


def kind_at(rows: Rows, row: int) -> int:
    """UPSERT, DELETE or PATCH."""
    if isinstance(rows, PlainRows):
        return rows.kinds[row]
    kind: int = rows.column(KIND)[row].as_py()
    return kind


def join(pieces: Sequence[Rows]) -> Rows:
    """All rows in order: plain if all are, an Arrow batch otherwise."""
    if len(pieces) == 1:
        return pieces[0]
    plain = [piece for piece in pieces if isinstance(piece, PlainRows)]
    if len(plain) < len(pieces):
        return concat([as_batch(piece) for piece in pieces])
    return PlainRows(
        list(chain.from_iterable(piece.rows for piece in plain)),
        b"".join(piece.kinds for piece in plain),
        union_of(piece.types for piece in plain),
        list(chain.from_iterable(piece.packed for piece in plain)),
    )


def union_of(many: Iterable[Types]) -> Types:
    """Types that cover all of these, one of them if that will do."""
    distinct = {id(types): types for types in many}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    merged: dict[str, AttributeType] = {}
    for types in distinct.values():
        for name, kind in types.attributes.items():
            known = merged.setdefault(name, kind)
            if known != kind:
                # Under a type that was not known yet there are nulls only, which fit under any.
                merged[name] = settled(known, kind) or kind
    for types in distinct.values():
        if types.attributes == merged:
            return types
    return Types(merged, types.id_kind)


def as_batch(rows: Rows) -> pa.RecordBatch:
    """The rows as an Arrow batch, by the convention of `reef.data.rows`."""
    if not isinstance(rows, PlainRows):
        return rows
    documents = rows.rows
    types = rows.types
    ids = pa.array([document[ID] for document in documents], ID_TYPES[types.id_kind])
    fields = [pa.field(ID, ids.type, nullable=False), KIND_FIELD]
    columns = [ids, pa.array(np.frombuffer(rows.kinds, np.uint8))]
    flags: list[tuple[pa.Field, pa.Array]] = []
    for name, kind in types.attributes.items():
        values = [document.get(name) for document in documents]
        if None in values:
            nulls = [name in d and d[name] is None for d in documents]
            if any(nulls):
                flags.append((pa.field(null_flag(name), pa.bool_()), pa.array(nulls, pa.bool_())))
        fields.append(field_of(name, kind))
        columns.append(_column(values, kind))
    for field, flag in flags:
        fields.append(field)
        columns.append(flag)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _column(values: list[Any], kind: AttributeType) -> pa.Array:
    if kind.family != "vector":
        return pa.array(values, kind.arrow)
    width = _width(kind)
    missing = bytes(width)
    data = b"".join(missing if value is None else value for value in values)
    if sys.byteorder != "little":
        swapped = np.frombuffer(data, f"<f{width // kind.dimension}").byteswap()
        data = swapped.tobytes()
    numbers = pa.Array.from_buffers(
        VECTOR_ELEMENTS[kind.element],
        len(values) * kind.dimension,
        [None, pa.py_buffer(data)],
    )
    mask = pa.array([value is None for value in values], pa.bool_()) if None in values else None
    return pa.FixedSizeListArray.from_arrays(numbers, kind.dimension, mask=mask)

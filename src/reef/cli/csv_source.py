"""CSV files as Arrow batches, a block at a time.

An empty cell is null, "" in quotes is the empty string. What the schema knows is read as its type,
lists, vectors and json as JSON text, bytes as base64; anything else takes the type of the file's
first block. A column of whole numbers some of which have more than 64 bits is text, as in pandas:
a float would change them. Ids are strings unless the namespace has integers. Timestamps that name
no zone are taken as UTC.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from reef.cli.json_source import NOT_FINITE, parse_base64
from reef.data.schema import INTEGER_IDS, Schema
from reef.data.types import AttributeType
from reef.errors import InvalidInput

_BLOCK = 4 << 20
_ZONE = r"([Zz]|[+-]\d\d(:?\d\d)?)$"
_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_UTC = pa.timestamp("us", tz="UTC")


def csv_batches(
    file: IO[bytes], name: str, schema: Schema, id_column: str | None
) -> Iterator[pa.RecordBatch]:
    """Batches with ids under "id"."""
    id_name = id_column or "id"
    types: dict[str, pa.DataType] = {
        attribute: kind.arrow
        if kind.family == "scalar" and kind.element in ("bool", "int64", "float64", "string")
        else pa.string()
        for attribute, kind in schema.attributes.items()
        if not kind.is_open
    }
    types[id_name] = pa.uint64() if schema.id_kind == INTEGER_IDS else pa.string()
    front = _read(file, _BLOCK)
    types.update((wide, pa.string()) for wide in _too_wide(front, types))
    reader = pa.csv.open_csv(
        io.BufferedReader(_Rejoined(front, file), _BLOCK), **_options(types, _BLOCK)
    )
    names = reader.schema.names
    if id_name not in names:
        raise InvalidInput(f"{name} has no column {id_name!r} to take ids from")
    if id_name != "id" and "id" in names:
        raise InvalidInput(f'{name} has a column "id" besides the id column {id_name!r}')
    if len(set(names)) < len(names):
        raise InvalidInput(f"{name} has two columns of one name")
    first = 2
    for batch in reader:
        columns: list[Any] = []
        fields: list[pa.Field] = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name == id_name:
                fields.append(pa.field("id", field.type))
                columns.append(column)
                continue
            known = schema.attributes.get(field.name)
            if known is not None and known.is_open:
                known = None
            try:
                array = _column(column, known)
            except _BadCell as bad:
                raise InvalidInput(
                    f"{name}: attribute {field.name!r} of row {first + bad.row} {bad}"
                ) from None
            json = known is not None and known.family == "json"
            metadata = {"reef": "json"} if json else None
            fields.append(pa.field(field.name, array.type, metadata=metadata))
            columns.append(array)
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        first += batch.num_rows


def _options(types: Mapping[str, pa.DataType], block: int) -> dict[str, Any]:
    return {
        # With threads Arrow cannot say which row was wrong, and they gain nothing here.
        "read_options": pa.csv.ReadOptions(block_size=block, use_threads=False),
        "parse_options": pa.csv.ParseOptions(newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }


def _read(file: IO[bytes], size: int) -> bytes:
    """The next bytes of a file, fewer only where it ends: a pipe gives a few at a time."""
    pieces: list[bytes] = []
    while size and (piece := file.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _too_wide(front: bytes, types: Mapping[str, pa.DataType]) -> list[str]:
    """The columns that begin with nothing but whole numbers, some beyond 64 bits. Arrow would make
    floats of them."""
    # Without the row that is cut off. A line feed with an even number of quotes before it ends one.
    end = len(front) if len(front) < _BLOCK else front.rfind(b"\n") + 1
    while end and front.count(b'"', 0, end) % 2:
        end = front.rfind(b"\n", 0, end - 1) + 1
    front = front[: end or len(front)]
    if not front:
        return []
    try:
        first = pa.csv.read_csv(io.BytesIO(front), **_options(types, len(front)))
        floats = [
            f.name for f in first.schema if pa.types.is_floating(f.type) and f.name not in types
        ]
        if not floats:
            return []
        texts = pa.csv.read_csv(
            io.BytesIO(front),
            **_options({**types, **dict.fromkeys(floats, pa.string())}, len(front)),
        )
    except (pa.ArrowInvalid, KeyError):
        # Reading it in earnest says what is wrong, and where.
        return []
    return [
        name
        for name in floats
        if texts.schema.names.count(name) == 1
        and pc.all(pc.match_substring_regex(texts[name], _WHOLE)).as_py()
    ]


class _Rejoined(io.RawIOBase):
    """A file again, of which the front was read already."""

    def __init__(self, front: bytes, file: IO[bytes]) -> None:
        self._front = io.BytesIO(front)
        self._file = file

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or a part of it."""
        data = self._front.read(len(buffer)) or self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _BadCell(ValueError):
    def __init__(self, row: int, reason: object) -> None:
        super().__init__(str(reason))
        self.row = row


def _column(column: pa.Array, known: AttributeType | None) -> pa.Array:
    kind = column.type
    if known is None:
        if pa.types.is_timestamp(kind) and kind.tz is None:
            return pc.assume_timezone(column, "UTC")
        return column.cast(pa.string()) if pa.types.is_time(kind) else column
    if known.family in ("list", "vector"):
        return _lists(column, known)
    if known.element == "timestamp":
        return _moments(column)
    if known.element == "bytes":
        cells = [None if text is None else _decoded(row, text) for row, text in _cells(column)]
        return pa.array(cells, pa.binary())
    return column


def _cells(column: pa.Array) -> Iterator[tuple[int, Any]]:
    return iter(enumerate(column.to_pylist()))


def _decoded(row: int, text: str) -> bytes:
    try:
        return parse_base64(text)
    except ValueError as error:
        raise _BadCell(row, error) from None


def _moments(column: pa.Array) -> pa.Array:
    """Texts as timestamps, in one go; a cell at a time only to say which one is wrong."""
    zoned = pc.match_substring_regex(column, f"[T :].*{_ZONE}")
    texts = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    # A bare date has no time that a zone could belong to.
    bare = pc.match_substring_regex(column, r"^\d{4}-\d\d-\d\d$")
    texts = pc.if_else(bare, pc.binary_join_element_wise(column, "T00:00:00Z", ""), texts)
    try:
        return texts.cast(_UTC)
    except pa.ArrowInvalid:
        for row, text in enumerate(texts):
            try:
                text.cast(_UTC)
            except pa.ArrowInvalid:
                shown = str(column[row])[:60]
                raise _BadCell(row, f"must be an ISO 8601 timestamp, not {shown!r}") from None
        raise


def _lists(column: pa.Array, known: AttributeType) -> pa.Array:
    texts = ["null" if text is None else text for text in column.to_pylist()]
    try:
        values = msgspec.json.decode("[" + ",".join(texts) + "]")
        if len(values) != len(texts):
            raise msgspec.DecodeError
        return _array(values, known)
    except (msgspec.DecodeError, UnicodeEncodeError, pa.ArrowException, TypeError, ValueError):
        for row, text in enumerate(texts):
            try:
                _array([msgspec.json.decode(text)], known)
            except (msgspec.DecodeError, pa.ArrowException, TypeError, ValueError):
                raise _BadCell(row, f"must be {known} as JSON, not {text[:60]!r}") from None
        raise


def _array(values: list[Any], known: AttributeType) -> pa.Array:
    if known.element == "timestamp":
        return pa.array(values, pa.list_(pa.string())).cast(pa.list_(_UTC))
    if known.element == "bytes":
        decoded = [
            None if cells is None else [None if c is None else parse_base64(c) for c in cells]
            for cells in values
        ]
        return pa.array(decoded, known.arrow)
    try:
        return pa.array(values, known.arrow)
    except pa.ArrowInvalid:
        if known.element != "float64":
            raise
    spelled = [
        None if cells is None else [NOT_FINITE.get(c, c) if type(c) is str else c for c in cells]
        for cells in values
    ]
    return pa.array(spelled, known.arrow)

"""What the tree writes into log records.

    rows:     tag u8 = 1 | 7 zero bytes | schema length u64 | Arrow schema | Arrow record batch
    ingest:   tag u8 = 2 | JSON of Ingest
    condemn:  tag u8 = 3 | JSON of Condemn
    plain:    tag u8 = 4 | packed rows, see `reef.data.plain`
    drop:     tag u8 = 5 | JSON of Drop

What older readers do not know, types that are not known yet, is in records of the same shape whose
tag is 16 higher: 17 for rows, 18 for an ingest, 20 for plain rows.

The rows of all records of a log object, in order, are the operations of its batches. The Arrow
messages start at multiples of eight within the record.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeAlias

import msgspec
import pyarrow as pa

from reef.data.documents import is_json
from reef.data.plain import PlainRows, Rows
from reef.data.rows import ID, KIND, NULL_FLAG, PATCH, is_attribute, kinds_of
from reef.data.schema import ID_TYPES, format_of
from reef.data.types import type_of_arrow
from reef.errors import Corruption
from reef.log.codec import SECOND, LogEntry
from reef.log.naming import WAL
from reef.segment.info import SegmentInfo
from reef.store.contract import Buffer

_ROWS, _INGEST, _CONDEMN, _PLAIN, _DROP = 1, 2, 3, 4, 5
_ROWS_HEAD = struct.Struct("<B7xQ")
_PLAIN_TAGS = {1: bytes([_PLAIN]), 2: bytes([_PLAIN + SECOND])}
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_UNREADABLE = (
    *(ValueError, KeyError, OSError, EOFError, RecursionError),
    *(struct.error, msgspec.DecodeError, pa.ArrowException),
)


class Ingest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Finished segments that become visible with this record's slot, as one write.

    With `truncate` everything written before the slot is gone from it on.
    """

    segments: tuple[SegmentInfo, ...]
    schema: dict[str, object] = {}
    truncate: bool = False


class Condemn(msgspec.Struct, frozen=True):
    """No segment born before `orphan_floor` may be ingested from this slot on."""

    orphan_floor: int


class Drop(msgspec.Struct, frozen=True):
    """There is no namespace any more from this slot on. Everything written before is gone, and no
    segment born before `orphan_floor` may be ingested."""

    orphan_floor: int


def placed(ingest: Ingest, lsn: int) -> tuple[SegmentInfo, ...]:
    """The segments of an ingest record as those of its slot: all their rows are that new."""
    return tuple(
        msgspec.structs.replace(info, lsn=lsn, min_lsn=lsn, max_lsn=lsn) for info in ingest.segments
    )


Record: TypeAlias = "Rows | Ingest | Condemn | Drop"
WITHOUT_ROWS = (Ingest, Condemn, Drop)


_messages: tuple[tuple[pa.Schema, tuple[bytes, int]], ...] = ()
_MOST_MESSAGES = 8


def _schema_message(schema: pa.Schema) -> tuple[bytes, int]:
    """A schema's bytes, and the tag of a record of such rows."""
    # A few recent ones, compared: hashing a schema costs forty times as much as comparing it.
    global _messages
    for known, message in _messages:
        if known.equals(schema, check_metadata=True):
            return message
    known = (type_of_arrow(field.type) for field in schema if is_attribute(field.name))
    is_open = any(kind is not None and kind.is_open for kind in known)
    fresh = (schema.serialize().to_pybytes(), _ROWS + SECOND if is_open else _ROWS)
    _messages = ((schema, fresh), *_messages[: _MOST_MESSAGES - 1])
    return fresh


@lru_cache(maxsize=256)
def _schema_of(message: bytes) -> pa.Schema:
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    fields = {field.name: field for field in schema}
    ids, kinds = fields.pop(ID, None), fields.pop(KIND, None)
    if len(fields) + 2 != len(schema) or ids is None or kinds is None:
        raise ValueError("not the columns of rows")
    if kinds.type != pa.uint8() or ids.type not in ID_TYPES.values():
        raise ValueError("not the columns of rows")
    for name, field in fields.items():
        arrow = field.type
        flag = name.startswith(NULL_FLAG)
        known = arrow == pa.bool_() if flag else type_of_arrow(arrow, json=is_json(field))
        if not known or (name.startswith("\0") and not flag):
            raise ValueError(f"a column {name!r} of type {arrow}")
    return schema


def _is_compressed(message: memoryview) -> bool:
    """Whether a record batch message (a flatbuffer behind two words) says that its body is
    compressed. None of ours is; one that was would say itself how much memory it takes."""
    table = 8 + _U32.unpack_from(message, 8)[0]
    fields = table - _I32.unpack_from(message, table)[0]
    header = table + _U16.unpack_from(message, fields + 8)[0]
    header += _U32.unpack_from(message, header)[0]
    fields = header - _I32.unpack_from(message, header)[0]
    length = _U16.unpack_from(message, fields)[0]
    return length > 10 and _U16.unpack_from(message, fields + 10)[0] != 0


def _decode_rows(record: memoryview) -> pa.RecordBatch:
    _, length = _ROWS_HEAD.unpack_from(record)
    start = _ROWS_HEAD.size + length
    schema = _schema_of(bytes(record[_ROWS_HEAD.size : start]))
    message = record[start:]
    if _is_compressed(message):
        raise ValueError("its rows are compressed")
    buffer = pa.py_buffer(message)
    if buffer.address % 8:
        buffer = pa.py_buffer(bytes(buffer))
    batch = pa.ipc.read_record_batch(buffer, schema)
    # Arrow reads where offsets lead, even out of the record; ours always stay in it.
    batch.validate(full=True)
    kinds = batch.column(KIND)
    if batch.column(ID).null_count or kinds.null_count:
        raise ValueError("a row without id or kind")
    if kinds_of(batch).max(initial=0) > PATCH:
        raise ValueError("a row of unknown kind")
    return batch


def encode_rows(batch: Rows) -> tuple[list[Buffer], Rows]:
    """A record of rows, in parts, and the same rows as they stand in it.

    Those share no memory with the batch, which may be a view of an array that its owner goes
    on to change: what is read and folded later is what was written, whatever happens to it.
    """
    if isinstance(batch, PlainRows):
        return [b"".join([_PLAIN_TAGS[batch.types.format], *batch.encode()])], batch
    schema = batch.schema
    message, tag = _schema_message(schema)
    body = batch.serialize()
    parts: list[Buffer] = [_ROWS_HEAD.pack(tag, len(message)), message, memoryview(body)]
    return parts, pa.ipc.read_record_batch(body, schema)


def encode_ingest(ingest: Ingest) -> list[Buffer]:
    """A record that names finished segments."""
    tag = _INGEST if format_of(ingest.schema) == 1 else _INGEST + SECOND
    return [bytes([tag]) + msgspec.json.encode(ingest)]


def encode_condemn(condemn: Condemn) -> list[Buffer]:
    """A record that raises the orphan floor."""
    return [bytes([_CONDEMN]) + msgspec.json.encode(condemn)]


def encode_drop(drop: Drop) -> list[Buffer]:
    """A record that ends the namespace."""
    return [bytes([_DROP]) + msgspec.json.encode(drop)]


def is_drop(entry: LogEntry) -> bool:
    """Whether the namespace ends with that entry."""
    return any(len(record) > 0 and record[0] == _DROP for record in entry.records)


def decode_record(record: memoryview) -> Record:
    """What a record holds. Its checksum was checked, so a failure is a format that is not ours."""
    tag = record[0] if len(record) else 0
    if tag > SECOND:
        tag -= SECOND
    if tag == _ROWS:
        return _decode_rows(record)
    if tag == _PLAIN:
        return PlainRows.decode(record[1:])
    if tag == _INGEST:
        return msgspec.json.decode(record[1:], type=Ingest)
    if tag == _CONDEMN:
        return msgspec.json.decode(record[1:], type=Condemn)
    if tag == _DROP:
        return msgspec.json.decode(record[1:], type=Drop)
    raise ValueError(f"a record of unknown kind {tag}")


def names_segments(front: memoryview) -> bool:
    """Whether a record that begins like this is an ingest."""
    return len(front) > 0 and front[0] in (_INGEST, _INGEST + SECOND)


def records_of(entry: LogEntry) -> list[Record]:
    """All records of a log entry, or `Corruption`."""
    try:
        return [decode_record(record) for record in entry.records]
    except _UNREADABLE as error:
        raise Corruption(WAL.key(entry.lsn), f"a record cannot be read ({error})") from None

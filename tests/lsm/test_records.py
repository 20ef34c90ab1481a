"""Records whose checksum is right and whose content was never written: told, not believed."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pytest

from reef.data.plain import PlainRows, Types, as_batch
from reef.data.rows import DELETE, PATCH, UPSERT
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import Corruption
from reef.log.codec import LogEntry, LogHeader
from reef.lsm.read.merge import merge
from reef.lsm.records import (
    Ingest,
    Record,
    decode_record,
    encode_ingest,
    encode_rows,
    records_of,
)
from reef.lsm.unfolded import Unfolded
from reef.store.contract import Buffer, as_bytes

HEADER = LogHeader(7, "me", 1, "n", 0.0)
TYPES = Types(
    {
        "n": parse_type("int64"),
        "t": parse_type("string"),
        "v": parse_type("vector<float32, 2>"),
        "l": parse_type("list<int64>"),
        "j": parse_type("json"),
    },
    "string",
)
ROWS = PlainRows(
    [
        {"id": "a", "n": 1, "t": "red", "v": bytes(8), "l": [1, None], "j": "[1]"},
        {"id": "b", "n": None, "t": "green"},
        {"id": "c"},
    ],
    bytes([UPSERT, PATCH, DELETE]),
    TYPES,
)


def entry_of(record: Sequence[Buffer] | bytes) -> LogEntry:
    data = record if isinstance(record, bytes) else bytes(as_bytes(list(record)))
    return LogEntry(HEADER, (memoryview(data),), len(data))


def decoded(record: Sequence[Buffer] | bytes) -> Record:
    (found,) = records_of(entry_of(record))
    return found


def refused(record: Sequence[Buffer] | bytes) -> str:
    with pytest.raises(Corruption) as caught:
        records_of(entry_of(record))
    return caught.value.reason


def plain(
    rows: object, kinds: bytes = b"\0", types: bytes = TYPES.encoded, count: int = -1
) -> bytes:
    packed = b"".join(map(msgspec.msgpack.encode, rows if isinstance(rows, list) else [rows]))
    number = len(kinds) if count < 0 else count
    return (
        b"\4" + struct.pack("<I", len(types)) + types + struct.pack("<I", number) + kinds + packed
    )


def test_what_was_written_is_read() -> None:
    back = decoded(encode_rows(ROWS)[0])
    assert isinstance(back, PlainRows)
    assert (back.rows, back.kinds) == (ROWS.rows, ROWS.kinds)
    assert decoded(encode_rows(as_batch(ROWS))[0]).equals(as_batch(ROWS))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"id": None},
        {"id": 3},
        {"id": b"a"},
        {"id": "a", "n": "1"},
        {"id": "a", "n": 1.5},
        {"id": "a", "n": 2**63},
        {"id": "a", "t": 1},
        {"id": "a", "t": b"\xff"},
        {"id": "a", "v": bytes(7)},
        {"id": "a", "v": [1.0, 2.0]},
        {"id": "a", "l": 3},
        {"id": "a", "l": ["x"]},
        {"id": "a", "j": {}},
        [],
        "a",
        msgspec.Raw(b"\x81\xa1j" + b"\x91" * 5000 + b"\xc0"),
        msgspec.Raw(b"\xdf\xff\xff\xff\xff"),
        msgspec.Raw(b"\x81\xa2id\xdb\xff\xff\xff\xff"),
    ],
)
def test_plain_rows_of_other_values(row: object) -> None:
    assert "cannot be read" in refused(plain([row]))


@pytest.mark.parametrize(
    "record",
    [
        plain([{"id": "a"}], b"\3"),
        plain([{"id": "a"}], b"\0\0"),
        plain([{"id": "a"}], b"\0", count=2**32 - 1),
        plain([{"id": "a"}], types=b'{"id":"float"}'),
        plain([{"id": "a"}], types=b"{}"),
        plain([{"id": "a"}], types=b'{"id":"string","v":"vector<float32, %s>"}' % (b"9" * 5000)),
        plain([{"id": "a"}], types=b"[" * 5000),
        plain([{"id": "a"}], types=b"\xff"),
        b"\4\xff\xff\xff\xff",
        b"\1",
        b"\1" + bytes(7) + b"\xff" * 8,
        b"\1" + bytes(15),
        b"\2" + b"[" * 5000,
        b'\2{"segments":[],"schema":{"\xff":1}}',
        b"\3{}",
        b"\5",
        b"",
    ],
)
def test_records_that_are_none(record: bytes) -> None:
    refused(record)


def test_integer_ids_are_not_negative() -> None:
    types = Types({}, "uint64").encoded
    assert isinstance(decoded(plain([{"id": 2**64 - 1}], types=types)), PlainRows)
    refused(plain([{"id": -1}], types=types))


def test_json_that_is_none_is_told_when_it_is_looked_at() -> None:
    for text in ("{", "[" * 5000 + "]" * 5000):
        rows = decoded(plain([{"id": "a", "j": text}]))
        assert isinstance(rows, PlainRows)
        with pytest.raises(Corruption, match="document 'a'"):
            rows.document(0)


def arrow(**columns: pa.Array) -> list[Buffer]:
    batch = pa.record_batch(list(columns.values()), names=[n.replace("__", "\0") for n in columns])
    return encode_rows(batch)[0]


IDS = pa.array(["a", "b"])
KINDS = pa.array([0, 1], pa.uint8())


@pytest.mark.parametrize(
    "columns",
    [
        {"id": IDS},
        {"__kind": KINDS},
        {"id": IDS, "__kind": pa.array([0, 1])},
        {"id": pa.array([1, 2]), "__kind": KINDS},
        {"id": pa.array(["a", None]), "__kind": KINDS},
        {"id": IDS, "__kind": pa.array([0, None], pa.uint8())},
        {"id": IDS, "__kind": pa.array([0, 3], pa.uint8())},
        {"id": IDS, "__kind": KINDS, "n": pa.array([1, 2], pa.int32())},
        {"id": IDS, "__kind": KINDS, "__null__n": pa.array([1, 2])},
        {"id": IDS, "__kind": KINDS, "__lsn": pa.array([1, 2], pa.uint64())},
        {"id": IDS, "__kind": KINDS, "v": pa.array([[], []], pa.list_(pa.float32(), 0))},
    ],
)
def test_batches_that_are_no_rows(columns: dict[str, pa.Array]) -> None:
    refused(arrow(**columns))


def test_offsets_that_lead_out_of_the_record() -> None:
    for wrong in ((0, 1_000_000, 3), (0, -5, 3), (0, 3, 1)):
        offsets = pa.py_buffer(struct.pack("<3i", *wrong))
        text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abc")])
        refused(arrow(id=IDS, __kind=KINDS, t=text))
        refused(arrow(id=text, __kind=KINDS))


def test_text_that_is_none() -> None:
    text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    refused(arrow(id=text, __kind=KINDS))


def test_buffers_of_odd_length() -> None:
    """As other programs may write them, and a stray bit can make them."""
    offsets = pa.py_buffer(struct.pack("<3i", 0, 1, 2) + b"?")
    ids = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    numbers = pa.Array.from_buffers(pa.float32(), 4, [None, pa.py_buffer(bytes(19))])
    vectors = pa.FixedSizeListArray.from_arrays(numbers, 2)
    entry = entry_of(arrow(id=ids, __kind=KINDS, v=vectors))
    unfolded = Unfolded(1, Schema(), 0)
    unfolded.apply(entry)
    (rows,) = merge(unfolded.memtable.sorted().sources(), keep_tombstones=True)
    assert rows.column(0).to_pylist() == ["a", "b"]


def test_ids_that_are_all_empty() -> None:
    unfolded = Unfolded(1, Schema(), 0)
    unfolded.apply(entry_of(arrow(id=pa.array(["", ""]), __kind=KINDS)))
    (rows,) = merge(unfolded.memtable.sorted().sources(), keep_tombstones=True)
    assert rows.column(0).to_pylist() == [""]


def test_rows_that_are_compressed() -> None:
    """What they take would be for them to say."""
    batch = as_batch(ROWS)
    head = encode_rows(batch)[0][:2]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = pa.BufferReader(sink.getvalue())
    pa.ipc.read_message(stream)
    message = pa.ipc.read_message(stream).serialize()
    assert "compressed" in refused([*head, memoryview(message)])


@pytest.mark.parametrize(
    "schema",
    [
        {"attributes": 3},
        {"attributes": {"n": "int128"}},
        {"id": "float"},
        {"attributes": {"": "bool"}},
    ],
)
def test_a_schema_that_is_none_is_told_by_the_slot(schema: dict[str, object]) -> None:
    entry = entry_of(encode_ingest(Ingest((), schema)))
    with pytest.raises(Corruption, match="000007"):
        Unfolded(1, Schema(), 0).apply(entry)


def test_rows_that_contradict_the_schema_are_told_by_the_slot() -> None:
    known = Schema("string", {"n": parse_type("string")})
    with pytest.raises(Corruption, match="000007"):
        Unfolded(1, known, 0).apply(entry_of(encode_rows(ROWS)[0]))


def test_a_column_that_is_marked_as_json_holds_text() -> None:
    marked = pa.field("a", pa.bool_(), metadata={b"reef": b"json"})
    schema = pa.schema([pa.field("id", pa.string()), pa.field("\0kind", pa.uint8()), marked])
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["x"]), pa.array([0], pa.uint8()), pa.array([True])], schema=schema
    )
    parts, _ = encode_rows(rows)
    with pytest.raises(ValueError, match="of type bool"):
        decode_record(memoryview(as_bytes(parts)))

"""Valid objects to begin with: small, and between them every encoding and every kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

import numpy as np
import pyarrow as pa

from reef.data.plain import Document, PlainRows, Types, as_batch
from reef.data.rows import DELETE, ID, PATCH, UPSERT, with_lsn
from reef.data.schema import Schema
from reef.data.types import AttributeType, parse_type
from reef.log.codec import BatchHeader, LogHeader, encode
from reef.lsm.records import (
    Condemn,
    Drop,
    Ingest,
    encode_condemn,
    encode_drop,
    encode_ingest,
    encode_rows,
)
from reef.manifest.codec import encode as encode_manifest
from reef.manifest.model import Life, Manifest, Pin, Settings
from reef.manifest.retired import LogSpan, Retired, Superseded
from reef.manifest.runs import Segments
from reef.segment import SegmentInfo, SegmentWriter
from reef.store.contract import as_bytes

LSN = 7

_MOMENT = datetime(2020, 2, 28, 12, 30, 1, 250_000, tzinfo=UTC)
_VECTOR = np.array([0.5, -1.0, 2.0], "<f4").tobytes()
_HALF = np.array([0.5, 2.0], "<f2").tobytes()

VALUES: dict[str, tuple[object, ...]] = {
    "bool": (True, False, True),
    "int64": (1, -5, 2**40),
    "float64": (1.25, -0.5, 1e300),
    "string": ("red", "grün", ""),
    "bytes": (b"\xff\0", b"", b"abc"),
    "timestamp": (_MOMENT, _MOMENT.replace(year=1969), _MOMENT),
    "list<bool>": ([True, None], [], [False]),
    "list<int64>": ([1, 2, 3], [], [-1]),
    "list<float64>": ([0.5], [1e9, None], []),
    "list<string>": (["a", None, "bc"], [], ["ü"]),
    "list<bytes>": ([b"\xff"], [], [b""]),
    "list<timestamp>": ([_MOMENT], [None], []),
    "json": ('{"a":[1,2.5,null]}', "[]", '"x"'),
    "vector<float32, 3>": (_VECTOR, _VECTOR, _VECTOR),
    "vector<float16, 2>": (_HALF, _HALF, _HALF),
}
"""Three values of each attribute type, as plain rows hold them."""


def plain(names: Sequence[str], *, integers: bool = False, rows: int = 3) -> PlainRows:
    """Upserts, a patch, a delete: rows of those types, some cells absent and some null."""
    kinds = (bytes([UPSERT, UPSERT, PATCH, DELETE]) * rows)[:rows]
    documents: list[Document] = []
    for row in range(rows):
        document: Document = {ID: row * 3 + 1 if integers else f"k{row:03}"}
        if kinds[row] != DELETE:
            for place, name in enumerate(names):
                turn = (row + place) % 5
                if turn != 3:
                    document[_attribute(place)] = None if turn == 4 else VALUES[name][row % 3]
        documents.append(document)
    return PlainRows(documents, kinds, _types(names, integers))


def _attribute(place: int) -> str:
    return "abcdefghijklmnopqrst"[place]


def _types(names: Sequence[str], integers: bool) -> Types:
    attributes = {_attribute(place): parse_type(name) for place, name in enumerate(names)}
    return Types(attributes, "uint64" if integers else "string")


INFO = SegmentInfo("s1", 3, "r", 0, 5, 1, "a", "z", 4, 6, 5000, 700, 12345)
_SCHEMA: dict[str, object] = {
    "id": "string",
    "attributes": {"a": "int64", "b": "vector<float32, 3>"},
}

_NAMES = tuple(VALUES)
_SETS: tuple[tuple[str, ...], ...] = (
    *((name,) for name in _NAMES),
    ("int64", "string"),
    _NAMES[:6],
)

PLAIN = tuple(plain(names, integers=whole) for names, whole in product(_SETS, (False, True)))
ARROW = tuple(as_batch(rows) for rows in PLAIN)


def _record(parts: Sequence[object]) -> bytes:
    return bytes(as_bytes(parts))  # type: ignore[arg-type]


def _compressed(batch: pa.RecordBatch) -> bytes:
    """A record as no Reef writes it, but as Arrow reads it."""
    parts = encode_rows(batch)[0]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream = pa.BufferReader(sink.getvalue())
    pa.ipc.read_message(stream)
    message = pa.ipc.read_message(stream)
    return _record([*parts[:2], message.serialize()])


COMPRESSED = _compressed(ARROW[-1])
ROW_RECORDS = (*(_record(encode_rows(batch)[0]) for batch in ARROW), COMPRESSED)
PLAIN_RECORDS = tuple(_record(encode_rows(rows)[0]) for rows in PLAIN)
INGEST_RECORDS = (
    _record(encode_ingest(Ingest((INFO,), _SCHEMA))),
    _record(encode_ingest(Ingest((), _SCHEMA))),
    _record(encode_ingest(Ingest((INFO, INFO), {}, truncate=True))),
)
CONDEMN_RECORDS = (_record(encode_condemn(Condemn(17))), _record(encode_drop(Drop(18))))
RECORDS = (*ROW_RECORDS, *PLAIN_RECORDS, *INGEST_RECORDS, *CONDEMN_RECORDS)

_RECEIPT = {"upserted": 2, "patched": 1, "rejected": ["x"]}
HEADERS = (
    LogHeader(LSN, "writer-1", 3, "abcdef0123456789", 1700000000.5),
    LogHeader(
        *(LSN, "writer-1", 3, "abcdef0123456789", 1700000000.5),
        guest=True,
        skips=(5, 6),
        batches=(BatchHeader(3, "key", {"kind": "equal", "values": {"a": 1}}, _RECEIPT),),
    ),
)
LOGS: tuple[tuple[LogHeader, tuple[bytes, ...]], ...] = (
    (HEADERS[0], ()),
    *((HEADERS[1], (record,)) for record in RECORDS[::3] if record is not COMPRESSED),
    (HEADERS[1], (ROW_RECORDS[2], PLAIN_RECORDS[2], INGEST_RECORDS[0], CONDEMN_RECORDS[0])),
)
LOG_OBJECTS = tuple(
    b"".join(map(bytes, encode(header, [[record] for record in records])))
    for header, records in LOGS
)

MANIFESTS = (
    encode_manifest(Manifest(1, "n", 1700000000.5, "p", "0123456789abcdef")),
    encode_manifest(
        Manifest(
            *(9, "movies", 1700000000.5, "p", "0123456789abcdef", "fedcba9876543210"),
            schema=_SCHEMA,
            fingerprint="0011223344556677",
            settings=Settings(60.0, 15.0, 10, 20.0),
            writer_epoch=4,
            compactor_epoch=2,
            wal_floor=8,
            last_applied_lsn=7,
            segments=Segments.of((INFO, INFO)),
            window=(INFO,),
            orphan_floor=3,
            superseded=Retired((Superseded("segments/x.seg", 8),)),
            folded=(LogSpan(1, 7, 9),),
            snapshots={"s": Pin(5, 7, 6, 60.0)},
            branches={"b": 3},
        )
    ),
    encode_manifest(
        Manifest(
            *(9, "movies", 1700000000.5, "p", "0123456789abcdef", "fedcba9876543210", 2),
            dropping=True,
            life=Life(4, 17, 900.0),
        )
    ),
)


@dataclass(frozen=True)
class SegmentSeed:
    """A segment's bytes, and its schema."""

    data: bytes
    schema: Schema


def _segment(rows: PlainRows, group_bytes: int) -> SegmentSeed:
    schema = Schema(rows.types.id_kind, rows.types.attributes)
    writer = SegmentWriter(schema, group_bytes=group_bytes)
    writer.append(with_lsn(as_batch(rows), 5))
    parts, _ = writer.finish(id="s1", birth=3, run="r", level=1)
    return SegmentSeed(bytes(as_bytes(parts)), schema)


def _patterned(kind: AttributeType, integers: bool, cells: Sequence[object]) -> PlainRows:
    rows: list[Document] = [
        {ID: place * 70_000 if integers else f"k{place:03}", "a": cell}
        for place, cell in enumerate(cells)
    ]
    types = Types({"a": kind}, "uint64" if integers else "string")
    return PlainRows(rows, bytes(len(rows)), types)


def _patterns() -> list[PlainRows]:
    """Columns that make the encoder choose each of its encodings."""
    count = 20
    cells: list[tuple[str, list[object]]] = [
        ("int64", [i * 100_000 for i in range(count)]),
        ("int64", [i * i * 1000 for i in range(count)]),
        ("int64", [(-1) ** i * 2**62 + i for i in range(count)]),
        ("int64", [7] * count),
        ("int64", [i % 3 for i in range(count)]),
        ("float64", [i / 100 for i in range(count)]),
        ("float64", [i / 7 for i in range(count)]),
        ("float64", [0.5] * count),
        ("string", [("red", "green")[i % 2] for i in range(count)]),
        ("string", [f"value {i} é" for i in range(count)]),
        ("string", ["same size"[: 5 + i % 2] for i in range(count)]),
        ("bytes", [bytes([i]) * 3 for i in range(count)]),
        ("list<int64>", [[5] * 4 for _ in range(count)]),
        ("list<string>", [["a"] * (i % 3) for i in range(count)]),
        ("list<float64>", [[None] * (i % 3) for i in range(count)]),
        ("bool", [None] * count),
        ("vector<float32, 3>", [None] * count),
        ("list<bool>", [None] * count),
    ]
    found = []
    for place, (name, column) in enumerate(cells):
        found.append(_patterned(parse_type(name), place % 2 == 0, column))
        holed = [None if i % 4 == 1 else cell for i, cell in enumerate(column)]
        found.append(_patterned(parse_type(name), place % 2 == 1, holed))
    return found


SEGMENTS = (
    *(_segment(rows, 1 << 20) for rows in PLAIN),
    *(_segment(rows, 1 << 20) for rows in _patterns()),
    *(_segment(rows, 200) for rows in _patterns()[::5]),
)

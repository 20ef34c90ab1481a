"""Log objects with every kind of record, as values; `golden/` holds them as version 1 wrote them.

`python -m log.golden_objects` (from `tests`) writes the files that are not there yet, and never
one that is: what was stored must keep its meaning.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from reef.data.plain import PlainRows, Types, as_batch
from reef.data.rows import DELETE, PATCH, UPSERT
from reef.data.types import AttributeType, parse_type
from reef.log import BatchHeader, LogHeader, encode
from reef.lsm.records import (
    Condemn,
    Drop,
    Ingest,
    Record,
    encode_condemn,
    encode_drop,
    encode_ingest,
    encode_rows,
)
from reef.segment import SegmentInfo
from reef.store.contract import Buffer, as_bytes

GOLDEN = Path(__file__).parent / "golden"

TYPES: dict[str, AttributeType] = {
    name: parse_type(text)
    for name, text in {
        "flag": "bool",
        "count": "int64",
        "price": "float64",
        "title": "string",
        "raw": "bytes",
        "at": "timestamp",
        "flags": "list<bool>",
        "counts": "list<int64>",
        "prices": "list<float64>",
        "tags": "list<string>",
        "raws": "list<bytes>",
        "times": "list<timestamp>",
        "extra": "json",
        "embedding": "vector<float32, 3>",
        "half": "vector<float16, 2>",
    }.items()
}
_AT = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
_FULL = {
    "flag": True,
    "count": -(2**63),
    "price": 0.1,
    "title": "Smørrebrød 🦐",
    "raw": b"\x00\xff",
    "at": _AT,
    "flags": [True, None, False],
    "counts": [1, None, 2**63 - 1],
    "prices": [1.5, float("inf")],
    "tags": ["a", None, ""],
    "raws": [b"", b"\xfe"],
    "times": [_AT, None],
    "extra": '{"n":[1,2.5,null,"x"]}',
    "embedding": np.array([0.5, -1.0, 3e38], "<f4").tobytes(),
    "half": np.array([0.25, -2.0], "<f2").tobytes(),
}
MANY = PlainRows(
    [
        {"id": "full", **_FULL},
        {"id": "null", **dict.fromkeys(_FULL)},
        {"id": "some", "title": "", "count": 0, "tags": []},
        {"id": "patched", "price": None, "title": "new"},
        {"id": "gone"},
        {"id": "full", "count": 1},
    ],
    bytes([UPSERT, UPSERT, UPSERT, PATCH, DELETE, PATCH]),
    Types(TYPES, "string"),
)
NUMBERED = PlainRows(
    [{"id": 0}, {"id": 2**64 - 1, "count": 7}, {"id": 5}],
    bytes([UPSERT, PATCH, DELETE]),
    Types({"count": TYPES["count"]}, "uint64"),
)
INFO = SegmentInfo(
    "01hzyx0000000000000000000a",
    3,
    "01hzyx0000000000000000000b",
    0,
    12,
    2,
    "a",
    "z",
    4,
    6,
    5120,
    700,
    1,
)
NUMBERED_INFO = SegmentInfo("s", 4, "r", 1, 3, 0, 0, 2**64 - 1, 0, 0, 900, 300, 2**32 - 1, lsn=9)
_SCHEMA: dict[str, object] = {
    "id": "string",
    "attributes": {name: str(kind) for name, kind in TYPES.items()},
}


def _header(
    lsn: int, *batches: BatchHeader, guest: bool = False, skips: tuple[int, ...] = ()
) -> LogHeader:
    nonce = f"{lsn:016x}"
    return LogHeader(
        lsn, "01hzyx0000000000000000000c", 2, nonce, 1_700_000_000.25, guest, skips, batches
    )


OBJECTS: dict[str, tuple[LogHeader, list[Record]]] = {
    "fencing": (_header(1), []),
    "plain": (_header(2, BatchHeader(6)), [MANY]),
    "plain-numbered": (_header(3, BatchHeader(3)), [NUMBERED]),
    "arrow": (_header(4, BatchHeader(6)), [as_batch(MANY)]),
    "arrow-numbered": (_header(5, BatchHeader(3)), [as_batch(NUMBERED)]),
    "group": (
        _header(
            6,
            BatchHeader(
                6, "key-1", {"kind": "absent", "values": {}}, {"upserted": 3, "deleted": 1}
            ),
            BatchHeader(3, None, {"kind": "equal", "values": {"count": 3}}, {"rejected": ["x"]}),
            skips=(4, 5),
        ),
        [as_batch(MANY), NUMBERED],
    ),
    "ingest": (
        _header(7, BatchHeader(10, "load", None, {"upserted": 10}), guest=True),
        [Ingest((INFO, NUMBERED_INFO), _SCHEMA)],
    ),
    "truncate": (_header(8, BatchHeader(0), guest=True), [Ingest((), {}, truncate=True)]),
    "declaration": (_header(9), [Ingest((), _SCHEMA)]),
    "condemn": (_header(10, guest=True), [Condemn(17)]),
    "drop": (_header(11), [Drop(18)]),
}


def encoded(name: str) -> bytes:
    """The object as it is encoded today."""
    header, records = OBJECTS[name]
    return bytes(as_bytes(encode(header, [_payload(record) for record in records])))


def _payload(record: Record) -> list[Buffer]:
    if isinstance(record, Ingest):
        return encode_ingest(record)
    if isinstance(record, Condemn):
        return encode_condemn(record)
    if isinstance(record, Drop):
        return encode_drop(record)
    return encode_rows(record)[0]


def value_of(record: Record) -> object:
    """A record as values that can be compared."""
    if isinstance(record, PlainRows):
        return record.rows, record.kinds, record.types.attributes, record.types.id_kind
    if isinstance(record, pa.RecordBatch):
        return record.to_pylist(), [(field, field.metadata) for field in record.schema]
    return record


def is_plain(rows: Record) -> bool:
    """Whether its bytes are Reef's own: what Arrow writes, Arrow may come to write differently."""
    return not isinstance(rows, pa.RecordBatch)


def make() -> None:
    """Write what is not there yet."""
    for name in OBJECTS:
        path = GOLDEN / f"version-1-{name}.wal"
        if not path.exists():
            path.write_bytes(encoded(name))


if __name__ == "__main__":
    make()

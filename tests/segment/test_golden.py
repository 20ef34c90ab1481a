"""Segments written by every format version stay readable.

`golden/version-1.seg` holds `BATCH`. It was written once and is never written again: encoders may
change what they choose, but what was stored must keep its meaning.
"""

from __future__ import annotations

from pathlib import Path

from reef.data.rows import DELETE, UPSERT, concat
from reef.segment import BlockCache, SegmentReader, describe
from reef.store import MemoryStore
from segment.making import ABSENT, EPOCH, TYPES, bits, rows, schema_of

GOLDEN = Path(__file__).parent / "golden"
COUNT = 60
SCHEMA = schema_of(**{f"a{number:02}": name for number, name in enumerate(TYPES)})
CELLS = {
    "bool": lambda i: i % 3 == 0,
    "int64": lambda i: i * 1000 - 7,
    "float64": lambda i: i / 100,
    "string": lambda i: ["red", "green", "blue"][i % 3],
    "bytes": lambda i: bytes([i, 255 - i]) * 5,
    "timestamp": lambda i: EPOCH.replace(year=2000 + i),
    "list<bool>": lambda i: [True, None] * (i % 3),
    "list<int64>": lambda i: list(range(i % 5)),
    "list<float64>": lambda i: [i / 7, float("inf")],
    "list<string>": lambda i: [f"{i}", None, ""],
    "list<bytes>": lambda i: [b"\xff"] * (i % 2),
    "list<timestamp>": lambda i: [EPOCH, None],
    "json": lambda i: f'{{"n":[{i},null]}}',
    "vector<float32, 3>": lambda i: [i, i / 2, -i],
    "vector<float16, 2>": lambda i: [i, 0.5],
}
KINDS = [DELETE if i % 20 == 19 else UPSERT for i in range(COUNT)]
MISSING = {5: ABSENT, 6: None}
BATCH = rows(
    SCHEMA,
    [f"id-{i:04}" for i in range(COUNT)],
    {
        name: [ABSENT if KINDS[i] == DELETE else MISSING.get(i % 10, make(i)) for i in range(COUNT)]
        for name, make in zip(SCHEMA.attributes, CELLS.values(), strict=True)
    },
    lsns=[1 + i // 7 for i in range(COUNT)],
    kinds=KINDS,
)


def test_version_1() -> None:
    store = MemoryStore()
    store.put("segment", (GOLDEN / "version-1.seg").read_bytes())
    info = describe(store, "segment")
    assert (info.id, info.rows, info.tombstones, info.min_lsn, info.max_lsn) == ("s", 60, 3, 1, 9)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    assert len(reader.groups()) == 2
    assert bits(concat(list(reader.read(reader.groups())))) == bits(BATCH)
    assert reader.verify(deep=True) == []

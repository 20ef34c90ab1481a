"""Segments written by every format version stay readable.

`golden/version-1.seg` holds `BATCH`, and `version-1-encodings.seg` holds `EVERY_ENCODING`. They
were written once and are never written again: encoders may change what they choose, but what was
stored must keep its meaning. `python -m segment.test_golden` (from `tests`) writes what is not
there yet.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from reef.data.rows import DELETE, PATCH, UPSERT, concat
from reef.segment import BlockCache, SegmentReader, describe
from reef.segment.block import decode_block
from reef.segment.node import (
    BITS,
    DECIMALS,
    DICTIONARY,
    LISTS,
    NODE,
    NOTHING,
    OFFSETS,
    PLAIN,
    STEPS,
    TEXT,
)
from reef.store import MemoryStore
from segment.making import ABSENT, EPOCH, TYPES, bits, encoded, rows, schema_of

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

_ENCODED = {
    "nothing": ("int64", NOTHING, lambda i: None),
    "no_vector": ("vector<float32, 3>", NOTHING, lambda i: None),
    "wild": ("int64", PLAIN, lambda i: (-1) ** i * 2**62 + i),
    "same": ("int64", OFFSETS, lambda i: -7),
    "byte": ("int64", OFFSETS, lambda i: 1000 + i * 37 % 200),
    "word": ("int64", OFFSETS, lambda i: i * 7919 % 50_000),
    "double_word": (
        "timestamp",
        OFFSETS,
        lambda i: EPOCH.replace(microsecond=i * 7919 % 50_000 * 19),
    ),
    "even": ("int64", STEPS, lambda i: i * 1_000_000),
    "rising": ("int64", STEPS, lambda i: i * i * 500),
    "holed": ("int64", OFFSETS, lambda i: ABSENT if i % 3 else i),
    "cents": ("float64", DECIMALS, lambda i: i / 100),
    "thirds": ("float64", PLAIN, lambda i: i / 3),
    "half": ("float64", OFFSETS, lambda i: 0.5),
    "bits": ("bool", BITS, lambda i: None if i % 5 == 0 else i % 2 == 0),
    "text": ("string", TEXT, lambda i: f"text {i} é" * (i % 4)),
    "raw": ("bytes", TEXT, lambda i: bytes([i, 255 - i])),
    "color": ("string", DICTIONARY, lambda i: None if i % 7 == 3 else ["red", "grün"][i % 2]),
    "code": ("bytes", DICTIONARY, lambda i: [b"\xff", b""][i % 2]),
    "long": ("string", TEXT, lambda i: "a text that is well worth compressing " * 5 + str(i)),
    "lists": ("list<string>", LISTS, lambda i: ["x", None] * (i % 3)),
    "equal_lists": ("list<int64>", LISTS, lambda i: [5, 5, 5]),
    "empty_lists": ("list<float64>", LISTS, lambda i: []),
    "vectors": ("vector<float16, 2>", PLAIN, lambda i: [i, None][:1] * 2),
}
ENCODINGS_SCHEMA = schema_of("uint64", **{name: text for name, (text, _, _) in _ENCODED.items()})
EVERY_ENCODING = rows(
    ENCODINGS_SCHEMA,
    [i * 2**57 + i * i for i in range(COUNT)],
    {name: [make(i) for i in range(COUNT)] for name, (_, _, make) in _ENCODED.items()},
    lsns=[2**40 + 60 - i for i in range(COUNT)],
    kinds=[PATCH if i % 9 == 0 else UPSERT for i in range(COUNT)],
)


def read(name: str) -> SegmentReader:
    store = MemoryStore()
    store.put("segment", (GOLDEN / name).read_bytes())
    return SegmentReader(store, "segment", describe(store, "segment"), BlockCache(1 << 20))


def tags_of(reader: SegmentReader) -> dict[str, int]:
    """The encoding of each column's block."""
    tail = reader.tail()
    assert tail.whole is not None
    found = {}
    for name, place in tail.index.places(0).items():
        if name is not None:
            data = tail.whole[place.offset : place.offset + place.length]
            body = decode_block("segment", place.offset, data, place.length, place.crc)
            found[name] = NODE.unpack_from(body)[0]
    return found


def test_version_1_has_every_encoding() -> None:
    reader = read("version-1-encodings.seg")
    assert tags_of(reader) == {name: tag for name, (_, tag, _) in _ENCODED.items()}
    assert set(tags_of(reader).values()) == set(range(9))
    batch = concat(list(reader.read(reader.groups())))
    assert bits(batch) == bits(EVERY_ENCODING)
    assert batch.column(0).type == pa.uint64()
    assert reader.verify(deep=True) == []
    found = reader.find(3 * 2**57 + 9)
    assert found is not None
    assert found[0].document(found[1])["long"].endswith("compressing 3")  # type: ignore[attr-defined]


def test_what_is_written_today_reads_the_same() -> None:
    data, _ = encoded([EVERY_ENCODING], ENCODINGS_SCHEMA)
    # Compressed bytes depend on the version of Zstandard: what they hold does not.
    golden = (GOLDEN / "version-1-encodings.seg").read_bytes()
    assert abs(len(data) - len(golden)) < len(golden) // 10
    store = MemoryStore()
    store.put("segment", data)
    reader = SegmentReader(store, "segment", describe(store, "segment"), BlockCache(1 << 20))
    assert tags_of(reader) == tags_of(read("version-1-encodings.seg"))
    assert bits(concat(list(reader.read(reader.groups())))) == bits(EVERY_ENCODING)


def make() -> None:
    """Write what is not there yet."""
    path = GOLDEN / "version-1-encodings.seg"
    if not path.exists():
        path.write_bytes(encoded([EVERY_ENCODING], ENCODINGS_SCHEMA)[0])


def test_version_1() -> None:
    store = MemoryStore()
    store.put("segment", (GOLDEN / "version-1.seg").read_bytes())
    info = describe(store, "segment")
    assert (info.id, info.rows, info.tombstones, info.min_lsn, info.max_lsn) == ("s", 60, 3, 1, 9)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    assert len(reader.groups()) == 2
    assert bits(concat(list(reader.read(reader.groups())))) == bits(BATCH)
    assert reader.verify(deep=True) == []


if __name__ == "__main__":
    make()

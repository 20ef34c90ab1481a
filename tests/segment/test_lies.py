"""Segments whose checksums are right and whose content was never written: told, at little cost."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c

from reef.errors import Corruption
from reef.segment import BlockCache, Group, SegmentReader, describe
from reef.segment.block import DESCRIPTION, PREFIX, zstd
from reef.segment.index import BlockPlace
from reef.segment.layout import MAGIC, TRAILER, VERSION, decode_footer
from reef.segment.node import (
    DICTIONARY,
    LISTS,
    NODE,
    NOTHING,
    OFFSETS,
    PLAIN,
    STEPS,
    TEXT,
    TWO_WORDS,
    VALIDITY,
    WORD,
)
from reef.store import MemoryStore
from segment.making import encoded, rows, schema_of

MEBIBYTE = 1 << 20


def block(body: bytes) -> bytes:
    described = DESCRIPTION.pack(len(body), 0) + body
    return PREFIX.pack(len(described), crc32c(described)) + described


def integers(values: list[int]) -> bytes:
    return NODE.pack(PLAIN, 8, 0, len(values)) + struct.pack(f"<{len(values)}Q", *values)


def same(value: int, count: int) -> bytes:
    return NODE.pack(OFFSETS, 0, 0, count) + WORD.pack(value)


def text(lengths: bytes, data: bytes, count: int) -> bytes:
    return (
        NODE.pack(TEXT, 0, 0, count) + lengths + WORD.pack(len(data)) + data + bytes(-len(data) % 8)
    )


def group_of(kind: str, column: bytes, count: int = 3, keys: bytes | None = None) -> Group:
    """A group whose attribute `a` has that body."""
    keys = keys or integers(list(range(count))) + same(5, count) + same(0, count)
    blocks = {None: block(keys), "a": block(column)}
    places = {
        name: BlockPlace(16, len(data), int.from_bytes(data[4:8], "little"))
        for name, data in blocks.items()
    }
    views = {name: memoryview(data) for name, data in blocks.items()}
    return Group("k", schema_of("uint64", a=kind), count, places, views, 0)


def refused(kind: str, column: bytes, count: int = 3) -> str:
    """Why a column is not read; it must not take memory to find that out."""
    group = group_of(kind, column, count)
    tracemalloc.start()
    arrow = pa.total_allocated_bytes()
    try:
        with pytest.raises(Corruption) as caught:
            group.column("a")
        assert tracemalloc.get_traced_memory()[1] < 4 * MEBIBYTE
        assert pa.total_allocated_bytes() - arrow < 4 * MEBIBYTE
    finally:
        tracemalloc.stop()
    return caught.value.reason


def test_what_is_made_here_can_be_read() -> None:
    column = group_of("string", text(integers([1, 0, 2]), b"abc", 3)).column("a")
    assert column is not None
    assert column.values.to_pylist() == ["a", "", "bc"]
    column = group_of("int64", integers([1, 2, 3])).column("a")
    assert column is not None
    assert column.values.to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    "lengths",
    [
        integers([5, 2**64 - 4, 2]),
        integers([2**63, 2**63, 3]),
        integers([2**32, 0, 3]),
        NODE.pack(OFFSETS, 8, 0, 3) + WORD.pack(2**64 - 1) + struct.pack("<3Q", 6, 2**64 - 2, 2),
        NODE.pack(OFFSETS, 0, 0, 3) + WORD.pack(2**63),
        NODE.pack(STEPS, 0, 0, 3) + TWO_WORDS.pack(5, 2**64 - 3),
    ],
)
def test_lengths_that_lead_back(lengths: bytes) -> None:
    """Their sum may be right, and one of them beyond the end."""
    assert "length" in refused("string", text(lengths, b"abc", 3))


def test_lengths_of_eight_bytes() -> None:
    lengths = NODE.pack(OFFSETS, 8, 0, 3) + WORD.pack(0) + struct.pack("<3Q", 1, 0, 2)
    column = group_of("string", text(lengths, b"abc", 3)).column("a")
    assert column is not None
    assert column.values.to_pylist() == ["a", "", "bc"]


@pytest.mark.parametrize(
    ("data", "lengths"), [(b"\xff\xfe\xfd", [1, 1, 1]), ("éa".encode(), [1, 1, 1])]
)
def test_text_that_is_none(data: bytes, lengths: list[int]) -> None:
    assert "UTF8" in refused("string", text(integers(lengths), data, 3))
    column = group_of("bytes", text(integers(lengths), data, 3)).column("a")
    assert column is not None
    framed = block(text(integers(lengths), data, 3) + same(5, 3) + same(0, 3))
    schema = schema_of("string", a="bool")
    place = BlockPlace(16, len(framed), int.from_bytes(framed[4:8], "little"))
    with pytest.raises(Corruption, match="key block"):
        Group("k", schema, 3, {None: place}, {None: memoryview(framed)}, 0)


@pytest.mark.parametrize("many", [2**27 + 1, 2**31 - 1, 2**32 - 1])
def test_counts_that_a_few_bytes_claim(many: int) -> None:
    one = NODE.pack(OFFSETS, 0, 0, 1) + WORD.pack(min(many, 2**31 - 1))
    elements = min(many, 2**31 - 1)
    for values in (same(7, elements), NODE.pack(NOTHING, 0, 0, elements)):
        refused("list<int64>", NODE.pack(LISTS, 0, 0, 1) + one + values, count=1)
    distinct = text(same(0, many), b"", many)
    refused("string", NODE.pack(DICTIONARY, 0, 0, 3) + same(0, 3) + distinct)


def test_a_dictionary_is_no_larger_than_its_column() -> None:
    distinct = text(same(0, 4), b"", 4)
    assert "dictionary" in refused("string", NODE.pack(DICTIONARY, 0, 0, 3) + same(0, 3) + distinct)
    valid = bytes(8)
    column = NODE.pack(DICTIONARY, 0, VALIDITY, 3) + valid + same(3, 3) + text(same(0, 3), b"", 3)
    assert "dictionary" in refused("string", column)


def test_kinds_that_are_none() -> None:
    for kind in (3, 256, 2**64 - 1):
        with pytest.raises(Corruption, match="key block"):
            group_of("bool", b"", keys=integers([1, 2, 3]) + same(5, 3) + same(kind, 3))


def test_values_that_were_never_written() -> None:
    """A year that is not, JSON that is none: told when they are looked at."""
    group = group_of("timestamp", integers([2**62, 0, 0]))
    with pytest.raises(Corruption, match="document 0"):
        group.document(0)
    assert "a" in group.document(1)
    group = group_of("json", text(integers([1, 0, 2]), b"{[]", 3))
    with pytest.raises(Corruption, match="document 0"):
        group.document(0)
    assert group.document(2)["a"] == []


SCHEMA = schema_of("string", n="int64", t="timestamp")
DATA, _ = encoded([rows(SCHEMA, ["a", "b", "c"], {"n": [1, 2, 3], "t": [None] * 3})], SCHEMA)


def rebuilt(change: Any) -> MemoryStore:
    """The segment with another index (a list, see `IndexRecord`) and another footer."""
    footer, _ = decode_footer("k", memoryview(DATA), len(DATA))
    stored = DATA[footer.index.offset : footer.index.offset + footer.index.length]
    raw = zstd().decompress(stored, decompressed_size=footer.index.raw, asbytes=True)
    index = msgspec.msgpack.decode(raw)
    said = msgspec.msgpack.decode(msgspec.msgpack.encode(footer))
    change(index, said)
    raw = msgspec.msgpack.encode(index)
    packed = zstd().compress(raw, asbytes=True)
    said["index"] = [footer.index.offset, len(packed), len(raw), crc32c(packed)]
    body = msgspec.msgpack.encode(said)
    crc = crc32c(struct.pack("<II", len(body), VERSION), crc32c(body))
    store = MemoryStore()
    trailer = TRAILER.pack(len(body), VERSION, crc, 0, MAGIC)
    store.put("segment", DATA[: footer.index.offset] + packed + body + trailer)
    return store


def read(store: MemoryStore) -> list[Any]:
    """Everything that the segment says; what `verify` finds if it cannot say it."""
    info = describe(store, "segment")
    reader = SegmentReader(store, "segment", info, BlockCache(MEBIBYTE))
    problems = reader.verify(deep=True)
    try:
        reader.statistics(0)
        found = [batch.to_pylist() for batch in reader.read(reader.groups())]
        reader.find("b")
    except Corruption:
        assert problems
        raise
    return found


def test_a_segment_put_together_again() -> None:
    assert [row["n"] for row in read(rebuilt(lambda index, footer: None))[0]] == [1, 2, 3]


def _set(part: int, *path: Any) -> Any:
    *way, last, value = path

    def change(index: Any, footer: Any) -> None:
        target = (index, footer)[part]
        for step in way:
            target = target[step]
        target[last] = value

    return change


_DEEP = msgspec.Raw(b"\x91" * 5000 + b"\xc0")


@pytest.mark.parametrize(
    "change",
    [
        _set(0, 3, 0, 2**32 - 1),
        _set(0, 3, 0, 2**60),
        _set(0, 7, 0, 2**63),
        _set(0, 7, [16, 16]),
        _set(0, 1, 0, 7),
        _set(0, 2, 0, 7),
        _set(0, 0, ["n", "n"]),
        _set(0, 10, 0, 0, []),
        _set(0, 10, 0, 0, 0, "x"),
        _set(0, 10, 0, 1, 0, 1.5),
        _set(0, 10, 1, 0, 0, b"x"),
        _set(0, 10, 0, 2, [1, 2]),
        _set(0, 10, 0, 0, 0, _DEEP),
        _set(0, 10, 0, 0, 0, msgspec.Raw(b"\xa1\xff")),
        _set(0, 10, []),
        _set(1, "min_id", 7),
        _set(1, "max_id", 7),
        _set(1, "schema", {"id": "uint64", "attributes": {"n": "int64", "t": "timestamp"}}),
        _set(1, "schema", {"id": "float", "attributes": {"n": "int64", "t": "timestamp"}}),
        _set(1, "schema", {"id": "string", "attributes": [1]}),
        _set(1, "schema", {"id": "string", "attributes": {"n": "vector<float32, " + "9" * 5000}}),
        _set(1, "schema", {"id": _DEEP}),
        _set(1, "id", msgspec.Raw(b"\xa1\xff")),
    ],
)
def test_tails_that_were_never_written(change: Any) -> None:
    with pytest.raises(Corruption):
        read(rebuilt(change))

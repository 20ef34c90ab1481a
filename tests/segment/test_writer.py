"""What the writer refuses, and how it cuts rows into groups and segments."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random

import pyarrow as pa
import pytest

from reef.data.rows import concat
from reef.errors import InvalidInput
from reef.segment import BlockCache, SegmentReader, SegmentWriter, split_segments
from reef.store import MemoryStore
from segment.making import bits, rows, schema_of, stored

SCHEMA = schema_of(n="int64")


@pytest.mark.parametrize(
    "pieces",
    [
        [["b", "a"]],
        [["a", "a"]],
        [["a", "b"], ["b"]],
        [["a", "c"], ["b"]],
        [["a", "z", "b", "c"]],
    ],
)
def test_unsorted_ids_are_refused(pieces: list[list[str]]) -> None:
    writer = SegmentWriter(SCHEMA)
    *sound, wrong = [rows(SCHEMA, ids, {}) for ids in pieces]
    for batch in sound:
        writer.append(batch)
    with pytest.raises(InvalidInput):
        writer.append(wrong)


def test_integer_ids_are_ordered_as_numbers() -> None:
    schema = schema_of("uint64")
    writer = SegmentWriter(schema)
    writer.append(rows(schema, [9, 10, 2**64 - 2], {}))
    with pytest.raises(InvalidInput):
        writer.append(rows(schema, [10], {}))
    writer.append(rows(schema, [2**64 - 1], {}))
    assert writer.rows == 4


def test_columns_outside_the_schema_are_refused() -> None:
    batch = rows(schema_of(other="int64"), ["a"], {"other": [1]})
    with pytest.raises(InvalidInput):
        SegmentWriter(SCHEMA).append(batch)
    wrong = batch.rename_columns(["id", "\0lsn", "\0kind", "n"])
    SegmentWriter(SCHEMA).append(wrong)
    with pytest.raises(InvalidInput):
        SegmentWriter(schema_of(n="string")).append(wrong)
    with pytest.raises(InvalidInput):
        SegmentWriter(SCHEMA).append(wrong.select(["id", "n"]))


def test_an_empty_segment_is_refused() -> None:
    writer = SegmentWriter(SCHEMA)
    writer.append(rows(SCHEMA, [], {}))
    with pytest.raises(InvalidInput):
        writer.finish(id="x", birth=0, run="r", level=0)


def test_groups_are_full_however_rows_arrive() -> None:
    ids = [f"{i:06}" for i in range(20_000)]
    whole = rows(SCHEMA, ids, {"n": list(range(20_000))})
    shapes = []
    for step in (7, 1000, 20_000):
        store = MemoryStore()
        slices = [whole.slice(at, step) for at in range(0, 20_000, step)]
        info = stored(store, slices, SCHEMA, group_bytes=64 * 1024)
        reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
        groups = [reader.group_rows(g) for g in reader.groups()]
        assert sum(groups) == 20_000
        assert all(1000 < size < 8192 for size in groups[:-1])
        shapes.append(len(groups))
    assert max(shapes) - min(shapes) <= 1


def test_a_group_has_at_most_8192_rows_and_one_huge_row_stands_alone() -> None:
    schema = schema_of(t="string")
    ids = [f"{i:06}" for i in range(9000)]
    store = MemoryStore()
    info = stored(store, [rows(schema, ids, {})], schema)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    assert [reader.group_rows(g) for g in reader.groups()] == [8192, 808]
    texts = ["x" * (1_000_000 if i % 100 == 50 else 1) for i in range(300)]
    info = stored(store, [rows(schema, ids[:300], {"t": texts})], schema)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    got = list(reader.read(reader.groups()))
    assert all(batch.num_rows == 1 or batch.nbytes < 1_100_000 for batch in got)
    assert concat(got).column("t").to_pylist() == texts


def test_segments_split_at_a_size_with_disjoint_ranges() -> None:
    ids = [f"{i:06}" for i in range(30_000)]
    schema = schema_of(t="bytes")
    noise = Random(1).randbytes(20 * 30_000)
    values = [noise[20 * i : 20 * i + 20] for i in range(30_000)]
    batch = rows(schema, ids, {"t": values})
    names = (f"s{i}" for i in count())
    store = MemoryStore()
    pieces = []
    infos = []
    slices = (batch.slice(at, 11_000) for at in range(0, 30_000, 11_000))
    for parts, info in split_segments(
        slices,
        schema,
        100_000,
        make_id=lambda: next(names),
        birth=1,
        run="r",
        level=2,
        group_bytes=20_000,
    ):
        store.put(info.key, parts)
        infos.append(info)
        reader = SegmentReader(store, info.key, info, BlockCache(1 << 20))
        pieces += list(reader.read(reader.groups()))
        assert reader.verify(deep=True) == []
    assert len(infos) > 3
    assert len({info.id for info in infos}) == len(infos)
    assert all(a.max_id < b.min_id for a, b in pairwise(infos))  # type: ignore[operator]
    assert all(info.size < 200_000 for info in infos)
    assert bits(concat(pieces)) == bits(batch)
    unsorted = [batch.slice(20_000), batch.slice(0, 20_000)]
    with pytest.raises(InvalidInput):
        list(
            split_segments(
                unsorted, schema, 100_000, make_id=lambda: "x", birth=1, run="r", level=0
            )
        )


def test_size_grows_with_what_was_appended() -> None:
    writer = SegmentWriter(SCHEMA)
    before = writer.size
    batch: pa.RecordBatch = rows(SCHEMA, ["a"], {"n": [1]})
    writer.append(batch)
    assert writer.size == before + batch.nbytes + 1
    _, info = writer.finish(id="x", birth=0, run="r", level=0)
    assert info.size == writer.size

"""How many requests a read makes, and how many bytes it asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reef.data.rows import ID, KIND, LSN, concat
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store import CountingStore, MemoryStore
from segment.making import bits, rows, schema_of, stored

SCHEMA = schema_of(n="int64", v="vector<float32, 128>")
IDS = [f"{i:06}" for i in range(0, 8000, 2)]


@pytest.fixture(scope="module")
def made() -> tuple[CountingStore, SegmentInfo, pa.RecordBatch]:
    numbers = np.random.default_rng(1).standard_normal((len(IDS), 128)).astype(np.float32)
    batch = rows(SCHEMA, IDS, {"n": list(range(len(IDS))), "v": numbers.tolist()})
    store = CountingStore(MemoryStore())
    return store, stored(store, [batch], SCHEMA, group_bytes=256 * 1024), batch


@pytest.fixture
def reader(made: Any) -> SegmentReader:
    store, info, _ = made
    store.reset()
    return SegmentReader(store, "segment", info, BlockCache(1 << 26))


def test_a_cold_find_takes_two_requests_and_a_warm_one_none(made: Any, reader: Any) -> None:
    store, info, _ = made
    assert reader.find("001234")
    counts = store.reset()
    assert (counts.get_range, counts.requests) == (2, 2)
    assert counts.bytes_read == info.tail + reader.group_bytes(
        next(g for g in reader.groups() if reader.group_bounds(g)[1] >= "001234")
    )
    found = reader.find("001234")
    assert found
    assert found[0].document(found[1], ["n"]) == {"id": "001234", "n": 617}
    assert store.reset().requests == 0


def test_ids_out_of_range_or_filtered_take_no_group(made: Any, reader: Any) -> None:
    store, *_ = made
    assert reader.find("zzz") is None
    assert reader.find("") is None
    assert not reader.may_contain("zzz")
    assert store.reset().requests == 0
    missing = [f"{i:06}" for i in range(1, 8000, 2)]
    passed = [identity for identity in missing if reader.may_contain(identity)]
    assert len(passed) < 0.03 * len(missing)
    assert reader.may_contain_many(pa.array(missing)).sum() == len(passed)
    refused = next(identity for identity in missing if identity not in passed)
    assert reader.find(refused) is None
    assert store.reset().requests == 1


def test_a_small_segment_takes_one_request(made: Any) -> None:
    _, _, batch = made
    small = CountingStore(MemoryStore())
    info = stored(small, [batch.slice(0, 200)], SCHEMA, group_bytes=20_000)
    small.reset()
    reader = SegmentReader(small, "segment", info, BlockCache(1 << 20))
    assert len(reader.groups()) > 3
    assert reader.find("000100")
    assert reader.find("000000")
    assert bits(concat(list(reader.read(reader.groups())))) == bits(batch.slice(0, 200))
    assert concat(list(reader.lookup(batch.column(ID)[:200]))).num_rows == 200
    assert small.reset().requests == 1


def test_a_projection_fetches_only_its_bytes(made: Any, reader: Any) -> None:
    store, info, batch = made
    reader.groups()
    store.reset()
    got = concat(list(reader.read(reader.groups(), ["n"])))
    counts = store.reset()
    assert got.schema.names == [ID, LSN, KIND, "n"]
    assert got.column("n").equals(batch.column("n"))
    assert counts.get_range == len(reader.groups())
    assert counts.bytes_read < info.size / 20
    keys = concat(list(reader.read(reader.groups(), [])))
    assert keys.schema.names == [ID, LSN, KIND]
    assert keys.column(ID).equals(batch.column(ID))


def test_a_whole_read_takes_spans(made: Any, reader: Any) -> None:
    store, info, batch = made
    got = concat(list(reader.read(reader.groups())))
    counts = store.reset()
    assert bits(got) == bits(batch)
    assert counts.requests == 2
    assert counts.bytes_read <= info.size
    assert not list(reader.read([], None))


@pytest.mark.parametrize("ahead", [0, 1, 2, 7])
@pytest.mark.parametrize("columns", [None, ["n"], ["v"], ["n", "v"], []])
def test_ranges_and_order(made: Any, reader: Any, ahead: int, columns: Any) -> None:
    _, _, batch = made
    for start, stop in ((None, None), ("000101", "006001"), ("000100", "000102"), ("9", None)):
        groups = reader.groups(start, stop)
        low = 0 if start is None else sum(identity < start for identity in IDS)
        high = len(IDS) if stop is None else sum(identity < stop for identity in IDS)
        got = list(reader.read(groups, columns, start=start, stop=stop, ahead=ahead))
        ids = [identity for b in got for identity in b.column(ID).to_pylist()]
        assert ids == IDS[low:high]
        back = list(reader.read(groups[::-1], columns, start=start, stop=stop, ahead=ahead))
        assert [b.column(ID).to_pylist() for b in back] == [
            b.column(ID).to_pylist() for b in got[::-1]
        ]
        if got and columns:
            name = columns[0]
            assert concat(got).column(name).equals(batch.column(name)[low:high])


def test_groups_cover_exactly_the_range(reader: Any) -> None:
    bounds = [reader.group_bounds(g) for g in reader.groups()]
    assert len(bounds) > 5
    first, last = bounds[2]
    assert list(reader.groups(first, last)) == [2]
    assert list(reader.groups(last + "x", bounds[3][0])) == []
    assert reader.groups(last, None).start == 2
    assert list(reader.groups(None, bounds[0][0])) == []
    assert list(reader.groups("9", None)) == []


@pytest.mark.parametrize("columns", [None, ["n"], []])
@pytest.mark.parametrize("step", [1, 5, 600])
def test_lookup(made: Any, reader: Any, columns: Any, step: int) -> None:
    store, _, batch = made
    wanted = sorted([*IDS[::step], *(f"{i:06}" for i in range(1, 8000, 200)), "", "zz"])
    got = concat(list(reader.lookup(pa.array(wanted), columns)))
    assert got.column(ID).to_pylist() == IDS[::step]
    if columns:
        assert got.column("n").equals(batch.column("n").take(pa.array(range(0, len(IDS), step))))
    assert store.reset().requests <= 2 + len(reader.groups())
    assert not list(reader.lookup(pa.array([], pa.string()), columns))
    assert not list(reader.lookup(pa.array(["zz"]), columns))


def test_reading_fills_no_cache_but_uses_it(made: Any) -> None:
    store, info, batch = made
    cache = BlockCache(1 << 26)
    reader = SegmentReader(store, "segment", info, cache)
    list(reader.read(reader.groups()))
    assert len(cache) == 1
    for group in reader.groups():
        reader.find(reader.group_bounds(group)[0])
    store.reset()
    assert bits(concat(list(reader.read(reader.groups(), ["n"])))) == bits(
        batch.select([ID, LSN, KIND, "n"])
    )
    assert store.reset().requests == 0


def test_it_works_with_a_cache_that_holds_nothing(made: Any) -> None:
    store, info, _ = made
    reader = SegmentReader(store, "segment", info, BlockCache(0))
    assert reader.find("000100")
    assert sum(b.num_rows for b in reader.read(reader.groups(), ["n"])) == len(IDS)
    assert concat(list(reader.lookup(pa.array(IDS[:3])))).num_rows == 3


def test_loads_bring_in_only_what_is_missing(made: Any, reader: Any) -> None:
    store, *_ = made
    assert not reader.is_open()
    reader.find(IDS[0])
    assert reader.is_open()
    store.reset()
    calls = reader.loads([IDS[0], IDS[1], IDS[-1], IDS[-2], ""])
    assert len(calls) == 1
    assert store.reset().requests == 0
    (call,) = calls.values()
    call()
    assert store.reset().requests == 1
    assert not reader.loads([IDS[-1]])

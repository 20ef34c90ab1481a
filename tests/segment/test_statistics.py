"""Bounds hold for every value; counts are exact."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.data.types import parse_type
from reef.segment import BlockCache, ColumnStatistics, SegmentReader
from reef.segment.bounds import LONGEST, bounds_of
from reef.store import MemoryStore
from segment.making import ABSENT, rows, schema_of, stored

TOP = chr(0x10FFFF)
DAY = datetime(2020, 2, 3, 4, 5, 6, 7, UTC)


@pytest.mark.parametrize(
    ("name", "cells", "low", "high"),
    [
        ("int64", [3, -(2**63), ABSENT, 2**63 - 1], -(2**63), 2**63 - 1),
        ("float64", [1.5, -math.inf, None], -math.inf, 1.5),
        ("float64", [1.5, math.nan], None, None),
        ("bool", [True, ABSENT, True], True, True),
        ("bool", [True, False], False, True),
        ("string", ["b", "a", ABSENT], "a", "b"),
        ("string", ["x" * 100], "x" * 64, "x" * 63 + "y"),
        ("string", ["x" * 10 + TOP * 30], "x" * 10 + TOP * 13, "x" * 9 + "y"),
        ("string", [TOP * 30], TOP * 16, None),
        ("string", ["é" * 50], "é" * 32, "é" * 31 + "ê"),
        ("string", ["\ud7ff" * 30], "\ud7ff" * 21, "\ud7ff" * 20 + "\ue000"),
        ("bytes", [b"\x00", b"\xff" * 64], b"\x00", b"\xff" * 64),
        ("bytes", [b"\xff" * 65], b"\xff" * 64, None),
        ("bytes", [b"a\xff" + b"\xff" * 70], b"a" + b"\xff" * 63, b"b"),
        ("timestamp", [DAY, ABSENT], DAY, DAY),
        ("json", ["1"], None, None),
        ("list<int64>", [[1]], None, None),
        ("vector<float32, 1>", [[1.0]], None, None),
        ("int64", [None, ABSENT], None, None),
    ],
)
def test_bounds(name: str, cells: list[Any], low: Any, high: Any) -> None:
    schema = schema_of(x=name)
    store = MemoryStore()
    info = stored(store, [rows(schema, list("abcd")[: len(cells)], {"x": cells})], schema)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    absent = sum(cell is ABSENT for cell in cells)
    nulls = sum(cell is None for cell in cells)
    assert reader.statistics(0) == {
        "x": ColumnStatistics(low, high, len(cells) - absent - nulls, nulls, absent)
    }
    assert reader.verify(deep=True) == []


@given(st.lists(st.text(max_size=40) | st.text("ab" + TOP + "\ud7ff", max_size=90), min_size=1))
def test_text_bounds_hold(values: list[str]) -> None:
    low, high = bounds_of(pa.array(values), parse_type("string"))
    assert isinstance(low, str)
    assert len(low.encode()) <= LONGEST
    assert all(low.encode() <= value.encode() for value in values)
    if high is not None:
        assert isinstance(high, str)
        assert len(high.encode()) <= LONGEST
        assert all(value.encode() <= high.encode() for value in values)


@given(
    st.lists(
        st.binary(max_size=90) | st.text("\xfe\xff", max_size=90).map(lambda s: s.encode("latin1")),
        min_size=1,
    )
)
def test_byte_bounds_hold(values: list[bytes]) -> None:
    low, high = bounds_of(pa.array(values, pa.binary()), parse_type("bytes"))
    assert isinstance(low, bytes)
    assert all(low <= value for value in values)
    assert high is None or all(value <= high for value in values)  # type: ignore[operator]


def test_columns_that_some_groups_lack() -> None:
    schema = schema_of(x="int64", y="int64", z="int64")
    store = MemoryStore()
    batches = [
        rows(schema, ["a"], {"x": [1]}),
        rows(schema, ["b"], {"y": [2], "x": [ABSENT]}),
        rows(schema, ["c"], {}),
    ]
    info = stored(store, batches, schema, group_bytes=1)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    nothing = ColumnStatistics(None, None, 0, 0, 1)
    assert [reader.statistics(g) for g in reader.groups()] == [
        {"x": ColumnStatistics(1, 1, 1, 0, 0), "y": nothing},
        {"x": nothing, "y": ColumnStatistics(2, 2, 1, 0, 0)},
        {"x": nothing, "y": nothing},
    ]
    names = [batch.schema.names[3:] for batch in reader.read(reader.groups())]
    assert names == [["x"], ["y"], []]

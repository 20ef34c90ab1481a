"""What goes into a segment comes out of it, bit for bit."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.data.documents import document_of, documents_of
from reef.data.rows import DELETE, ID, KIND, LSN, concat
from reef.data.types import parse_type
from reef.segment import BlockCache, SegmentReader
from reef.store import MemoryStore, Store
from segment.making import ABSENT, EPOCH, TYPES, bits, rows, schema_of, stored, values_of


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, pa.RecordBatch]:
    id_kind = draw(st.sampled_from(["string", "uint64"]))
    identity = st.text(min_size=1, max_size=6) if id_kind == "string" else st.integers(0, 2**64 - 1)
    ids = sorted(draw(st.sets(identity, min_size=1, max_size=40)))
    kinds = draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=len(ids), max_size=len(ids)))
    names = draw(st.lists(st.sampled_from(TYPES), max_size=5, unique=True))
    schema = schema_of(id_kind, **{f"a{i}": name for i, name in enumerate(names)})
    cells: dict[str, list[Any]] = {}
    for name, kind in schema.attributes.items():
        missing = draw(st.sampled_from([[], [ABSENT], [None], [ABSENT, None]]))
        value = values_of(kind)
        cell = st.one_of(value, value, st.sampled_from(missing)) if missing else value
        column = draw(st.lists(cell, min_size=len(ids), max_size=len(ids)))
        cells[name] = [ABSENT if k == DELETE else c for k, c in zip(kinds, column, strict=True)]
    lsns = draw(st.lists(st.integers(0, 2**64 - 1), min_size=len(ids), max_size=len(ids)))
    return schema, rows(schema, ids, cells, lsns=lsns, kinds=kinds)


@settings(max_examples=120, deadline=None)
@given(tables(), st.sampled_from([1, 40, 200, 4000, 1 << 19]), st.integers(1, 40))
def test_every_type_round_trips(table: Any, group_bytes: int, step: int) -> None:
    schema, batch = table
    store = MemoryStore()
    slices = [batch.slice(at, step) for at in range(0, batch.num_rows, step)]
    info = stored(store, slices, schema, group_bytes=group_bytes)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    got = concat(list(reader.read(reader.groups(), None)))
    got.validate(full=True)
    assert bits(got) == bits(batch)
    assert reader.verify(deep=True) == []
    expected = documents_of(batch)
    for row, document in enumerate(expected):
        found = reader.find(document[ID])  # type: ignore[arg-type]
        assert found is not None
        for same in (found[0].document(found[1]), document_of(batch, row)):
            assert repr(sorted(same.items())) == repr(sorted(document.items()))
    looked = concat(list(reader.lookup(batch.column(ID), None)))
    assert bits(looked) == bits(batch)


@pytest.mark.parametrize("name", TYPES)
def test_nulls_absence_and_presence_are_told_apart(name: str) -> None:
    schema = schema_of(x=name)
    value = {"bool": True, "int64": 5, "float64": 0.5, "string": "s", "bytes": b"b"}.get(name)
    if name == "timestamp":
        value = EPOCH
    if name == "json":
        value = "[1]"
    if name.startswith("list"):
        value = []
    if name.startswith("vector"):
        value = [0.5] * parse_type(name).dimension
    store = MemoryStore()
    batch = rows(schema, ["a", "b", "c"], {"x": [value, None, ABSENT]})
    info = stored(store, [batch], schema)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 20))
    documents = []
    for identity in "abc":
        found = reader.find(identity)
        assert found
        documents.append(found[0].document(found[1]))
    assert documents[0]["x"] == ([1] if name == "json" else value)
    assert documents[1:] == [{"id": "b", "x": None}, {"id": "c"}]
    facts = reader.statistics(0)["x"]
    assert (facts.valid, facts.nulls, facts.absent) == (1, 1, 1)


def test_on_every_store(store: Store) -> None:
    schema = schema_of(n="int64", t="string", v="vector<float32, 4>")
    ids = [f"{i:05}" for i in range(3000)]
    cells = {
        "n": list(range(3000)),
        "t": [f"text {i % 7} {i}" for i in range(3000)],
        "v": [[i, 0.5, 1.0, i / 3] for i in range(3000)],
    }
    batch = rows(schema, ids, cells)
    info = stored(store, [batch], schema, group_bytes=8000)
    reader = SegmentReader(store, "segment", info, BlockCache(1 << 24))
    got = concat(list(reader.read(reader.groups(), None)))
    assert bits(got) == bits(batch)
    assert reader.find("01234") is not None
    assert reader.find("01234x") is None
    assert reader.verify(deep=True) == []


def test_an_ingested_segment_takes_the_lsn_of_its_record() -> None:
    schema = schema_of(n="int64")
    store = MemoryStore()
    batch = rows(schema, ["a", "b"], {"n": [1, 2]}, lsns=[0, 0])
    info = stored(store, [batch], schema)
    assert (info.min_lsn, info.max_lsn) == (0, 0)
    reader = SegmentReader(
        store, "segment", msgspec.structs.replace(info, lsn=99), BlockCache(1 << 20)
    )
    found = reader.find("b")
    assert found
    assert found[0].lsn(found[1]) == 99
    (got,) = reader.read(reader.groups(), [])
    assert got.column(LSN).to_pylist() == [99, 99]
    assert got.schema.names == [ID, LSN, KIND]
    assert reader.verify(deep=True) == []

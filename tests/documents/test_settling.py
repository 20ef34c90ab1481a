"""An attribute that is null, or an empty list, before it is anything else: the first value that
says more settles its type, wherever the rows of before lie by then."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reef
from reef import SchemaConflict
from reef.data.types import parse_type
from reef.documents import Database, Namespace
from reef.documents.batches import make_batch
from reef.documents.load import load
from reef.store import MemoryStore

MOMENT = datetime(2020, 1, 2, tzinfo=UTC)
VECTOR = np.array([1, 2], np.float32)
FIRST_VALUES: list[tuple[str, Any, Any]] = [
    ("bool", True, True),
    ("int64", 5, 5),
    ("float64", 2.5, 2.5),
    ("string", "x", "x"),
    ("bytes", b"\xff", b"\xff"),
    ("timestamp", MOMENT, MOMENT),
    ("list<int64>", [1, 2], [1, 2]),
    ("list<null>", [], []),
    ("json", {"a": [1]}, {"a": [1]}),
    ("json", [[1], "x"], [[1], "x"]),
    ("vector<float32, 2>", VECTOR, [1.0, 2.0]),
]
FIRST_LISTS: list[tuple[str, Any]] = [
    ("list<bool>", [True]),
    ("list<int64>", [1]),
    ("list<string>", ["x", None]),
    ("list<timestamp>", [MOMENT]),
    ("json", [{"a": 1}]),
    ("json", {"a": 1}),
]


@pytest.fixture
def bucket() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def database(bucket: MemoryStore) -> Database:
    return reef.connect(bucket)


@pytest.fixture
def ns(database: Database) -> Namespace:
    return database.namespace("n", maintain=False)


def _written(ns: Namespace, rows: list[dict[str, Any]]) -> None:
    ns.write(upserts=rows)


def _columns(ns: Namespace, rows: list[dict[str, Any]]) -> None:
    """As Arrow columns, where what is absent in one row is null."""
    ns.write(upserts=pa.Table.from_pylist(rows))


def _folded(ns: Namespace, rows: list[dict[str, Any]]) -> None:
    ns.write(upserts=rows)
    ns.index()


def _loaded(ns: Namespace, rows: list[dict[str, Any]]) -> None:
    ns.load(rows)


WAYS: list[Callable[[Namespace, list[dict[str, Any]]], None]] = [_written, _folded, _loaded]


def _everywhere(database: Database, ns: Namespace) -> Iterator[Namespace]:
    """The writer, a reader that replays the log, and both again after every kind of upkeep."""
    yield ns
    yield database.namespace("n", "r")
    ns.index()
    yield ns
    ns.compact(full=True)
    yield ns
    yield database.namespace("n", "r")
    ns.rebuild()
    yield ns
    assert ns.verify(deep=True).sound


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "value", "stored"), FIRST_VALUES, ids=[case[0] for case in FIRST_VALUES]
)
def test_null_first(
    database: Database, ns: Namespace, way: Any, kind: str, value: Any, stored: Any
) -> None:
    way(ns, [{"id": "null", "x": None}, {"id": "absent", "y": 1}])
    assert str(ns.schema.attributes["x"]) == "null"
    first = ns.lsn
    way(ns, [{"id": "value", "x": value}, {"id": "later", "x": None}])
    assert str(ns.schema.attributes["x"]) == kind
    want = {
        "absent": {"id": "absent", "y": 1},
        "later": {"id": "later", "x": None},
        "null": {"id": "null", "x": None},
        "value": {"id": "value", "x": stored},
    }
    for state in _everywhere(database, ns):
        assert str(state.schema.attributes["x"]) == kind
        assert {id: state.get(id) for id in want} == want
        assert list(state.scan().documents()) == list(want.values())
        assert state.scan().to_table().schema.field("x").type == parse_type(kind).arrow
        assert state.count("exists x") == 3
        assert state.count("x is null") == 3
        assert state.count("x is not null") == 1
    assert ns.at(lsn=first).get("null") == {"id": "null", "x": None}
    assert str(ns.at(lsn=first).schema.attributes["x"]) == "null"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "value"), FIRST_LISTS, ids=[case[0] for case in FIRST_LISTS])
def test_empty_list_first(
    database: Database, ns: Namespace, way: Any, kind: str, value: Any
) -> None:
    way(
        ns,
        [{"id": "empty", "x": []}, {"id": "nulls", "x": [None, None]}, {"id": "null", "x": None}],
    )
    assert str(ns.schema.attributes["x"]) == "list<null>"
    way(ns, [{"id": "value", "x": value}])
    assert str(ns.schema.attributes["x"]) == kind
    want = {"empty": [], "null": None, "nulls": [None, None], "value": value}
    for state in _everywhere(database, ns):
        assert {id: state.get(id)["x"] for id in want} == want  # type: ignore[index]
        assert {row["id"]: row["x"] for row in state.scan().documents()} == want
        assert state.scan().to_table().schema.field("x").type == parse_type(kind).arrow


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [5, "x", VECTOR, b"x", MOMENT], ids=lambda v: type(v).__name__)
def test_an_empty_list_is_no_scalar_and_no_vector(ns: Namespace, way: Any, value: Any) -> None:
    way(ns, [{"id": "a", "x": []}])
    with pytest.raises(SchemaConflict, match="list<null>"):
        way(ns, [{"id": "b", "x": value}])
    assert ns.count() == 1


def test_comparisons_and_statistics_work_once_it_is_settled(ns: Namespace) -> None:
    rows = [{"id": f"{n:05}", "x": None, "l": []} for n in range(9_000)]
    ns.write(upserts=pa.Table.from_pylist(rows))
    assert ns.count("x > 5 or x = 'text' or x in (1.5) or l contains 3") == 0
    ns.index()
    ns.write(
        upserts={"id": [f"{n:05}" for n in range(8_500, 20_000)], "x": range_of(8_500, 20_000)}
    )
    ns.index()
    assert ns.count("x >= 19990") == 10
    assert ns.count("x < 8510") == 10
    assert ns.count("x is null") == 8_500
    ns.compact(full=True)
    assert ns.count("x >= 19990") == 10
    reader = ns._current().runs[0].readers[0]
    bounds = [reader.statistics(group)["x"] for group in reader.groups()]
    assert bounds[0].valid == 0
    assert (bounds[-1].maximum, bounds[-1].nulls) == (19_999, 0)


def range_of(start: int, stop: int) -> list[int]:
    return list(range(start, stop))


@pytest.mark.parametrize(
    "column",
    [pa.nulls(20), pd.Series([None] * 20, dtype=object), pl.Series([None] * 20), [None] * 20,
     pa.chunked_array([pa.nulls(5), pa.nulls(15)]), np.array([None] * 20)],
    ids=["arrow", "pandas", "polars", "list", "chunks", "numpy"],
)  # fmt: skip
def test_columns_of_nothing_but_nulls(ns: Namespace, column: Any) -> None:
    ns.write(upserts={"id": [str(n) for n in range(20)], "x": column})
    assert str(ns.schema.attributes["x"]) == "null"
    assert ns.get("7") == {"id": "7", "x": None}
    ns.write(patches=[{"id": "7", "x": 1.5}])
    assert ns.get("7") == {"id": "7", "x": 1.5}


def test_frames_of_nothing_but_nulls(ns: Namespace) -> None:
    ns.write(upserts=pd.DataFrame({"id": ["a"], "x": [None]}))
    ns.write(upserts=pl.DataFrame({"id": ["b"], "x": [None], "l": [[]]}))
    assert ns.schema.to_dict()["attributes"] == {"x": "null", "l": "list<null>"}


def test_a_patch_may_bring_null_and_a_patch_may_settle(database: Database, ns: Namespace) -> None:
    ns.write(upserts=[{"id": "a"}, {"id": "b"}])
    ns.index()
    ns.write(patches=[{"id": "a", "x": None}])
    ns.index()
    ns.write(patches=[{"id": "b", "x": "text"}])
    ns.write(patches=[{"id": "b", "x": None}, {"id": "a", "y": []}])
    for state in _everywhere(database, ns):
        assert list(state.scan().documents()) == [
            {"id": "a", "x": None, "y": []},
            {"id": "b", "x": None},
        ]
        assert state.schema.to_dict()["attributes"] == {"x": "string", "y": "list<null>"}


def test_a_declared_type_settles(database: Database, ns: Namespace) -> None:
    ns.write(upserts=[{"id": "a", "x": None}])
    ns.declare(reef.Schema("string", {"x": parse_type("vector<float32, 2>")}))
    ns.write(upserts=[{"id": "b", "x": [1, 2]}])
    assert database.namespace("n", "r").get("b") == {"id": "b", "x": [1.0, 2.0]}
    with pytest.raises(SchemaConflict):
        ns.declare(reef.Schema("string", {"x": parse_type("string")}))
    # What is known already is not forgotten by somebody who knows less.
    ns.declare(reef.Schema("string", {"x": parse_type("null")}))
    assert str(ns.schema.attributes["x"]) == "vector<float32, 2>"


def test_of_two_that_settle_it_the_second_in_the_log_conflicts(ns: Namespace) -> None:
    ns.write(upserts=[{"id": "a", "x": None}])
    options = ns._tree.options
    one, two, three = (
        make_batch(ns.schema, options, upserts=[{"id": id, "x": value}])
        for id, value in (("b", 1), ("c", "text"), ("d", None))
    )
    assert ns._writer is not None
    ns._writer.commit(one)
    with pytest.raises(SchemaConflict, match="'x' is int64, not string"):
        ns._writer.commit(two)
    ns._writer.commit(three)
    assert [row["x"] for row in ns.scan().documents()] == [None, 1, None]


def test_a_load_that_began_before_it_was_settled(database: Database, ns: Namespace) -> None:
    ns.write(upserts=[{"id": "a", "x": None, "l": []}])
    other = database.namespace("n", "r")

    def rows(value: Any, values: Any) -> Iterator[list[dict[str, Any]]]:
        yield [{"id": "c", "x": None, "l": []}]
        # The live writer is faster.
        ns.write(upserts=[{"id": "b", "x": 1, "l": [{"a": 1}]}])
        yield [{"id": "d", "x": value, "l": values}]

    with pytest.raises(SchemaConflict):
        other.load(rows("text", None))
    assert other.load(rows(None, [])).upserted == 2
    ns.write(deletes=["nobody"])
    for state in _everywhere(database, ns):
        assert [(row["x"], row["l"]) for row in state.scan().documents()] == [
            (None, []),
            (1, [{"a": 1}]),
            (None, []),
            (None, []),
        ]


def test_a_load_settles_on_its_way_however_it_is_spilled(ns: Namespace) -> None:
    def pieces() -> Iterator[list[dict[str, Any]]]:
        for piece in range(8):
            value = [float(piece)] if piece == 5 else [] if piece % 2 else None
            yield [{"id": f"{row:03}-{piece}", "x": value} for row in range(50)]

    load(ns._tree, pieces(), stretch_bytes=4_000)
    ns.refresh()
    assert str(ns.schema.attributes["x"]) == "list<float64>"
    assert ns.count("x is null") == 200
    assert ns.count("x contains 5.0") == 50
    assert ns.get("001-3") == {"id": "001-3", "x": []}


def test_small_batches_of_one_log_object_need_not_know_the_same(ns: Namespace) -> None:
    from reef.data.plain import PlainRows, as_batch, join

    schema = reef.Schema("string", {"x": parse_type("null"), "l": parse_type("list<null>")})
    known = schema.extended({"x": parse_type("int64"), "l": parse_type("json")})
    batches = [
        make_batch(given, ns._tree.options, upserts=rows).upserts
        for given, rows in (
            (schema, [{"id": "a", "x": None}]),
            (known, [{"id": "b", "x": 1}]),
            (schema, [{"id": "c", "l": []}]),
            (known, [{"id": "d", "l": {"k": 1}}]),
        )
    ]
    assert all(isinstance(rows, PlainRows) for rows in (batches[0], batches[1], batches[3]))
    assert isinstance(join(batches[:2]), PlainRows)  # type: ignore[arg-type]
    found = as_batch(join(batches))  # type: ignore[arg-type]
    assert [row["l"] for row in found.to_pylist()] == [None, None, "[]", '{"k":1}']
    assert [row["x"] for row in found.to_pylist()] == [None, 1, None, None]


def test_formats_rise_only_where_they_must(bucket: MemoryStore, ns: Namespace) -> None:
    def versions() -> tuple[set[int], set[int], int]:
        log = {
            struct.unpack_from("<I", bucket.get(info.key).data, 8)[0]
            for info in bucket.list("namespaces/n/wal/")
        }
        segments = {
            struct.unpack_from("<I", bucket.get(info.key).data, 8)[0]
            for info in bucket.list("namespaces/n/segments/")
        }
        return log, segments, ns._tree.register.head().root.format

    ns.write(upserts=[{"id": "a", "y": 1}])
    ns.index()
    assert versions() == ({1}, {1}, 1)
    ns.write(upserts=[{"id": "a", "x": None}])
    assert versions()[0] == {1, 2}
    ns.index()
    assert versions() == ({1, 2}, {1, 2}, 2)
    ns.write(upserts=[{"id": "b", "x": 5}])
    ns.index()
    assert versions()[2] == 1


def test_exports_of_what_is_not_known_yet(ns: Namespace, tmp_path: Path) -> None:
    ns.write(upserts=[{"id": "a", "x": None, "l": []}])
    ns.export(tmp_path / "out")
    (part,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(part).to_pylist() == [{"id": "a", "x": None, "l": []}]
    assert ns.scan().to_pandas()["x"].isna().all()
    assert ns.scan().to_polars()["x"].is_null().all()


def test_text_of_one_namespace_is_not_json_of_another(database: Database) -> None:
    """Arrow finds their columns equal, for they differ in metadata only."""
    for name, value in (("texts", "x"), ("documents", {"a": 1}), ("more", "y")):
        ns = database.namespace(name, maintain=False)
        ns.write(upserts=pa.table({"id": ["a"]}).to_pylist() * 20)
        ns.write(upserts=[{"id": str(n), "x": value} for n in range(20)])
        kind = "json" if isinstance(value, dict) else "string"
        for state in (ns, database.namespace(name, "r")):
            assert str(state.schema.attributes["x"]) == kind
            assert state.get("7") == {"id": "7", "x": value}

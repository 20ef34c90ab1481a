"""Declared schemas: at creation, later, and against what is there."""

from __future__ import annotations

import pytest

import reef
from reef.store import MemoryStore
from support.faults import FaultyStore, request

VECTOR = {"id": "string", "v": "vector<float32, 2>"}


def test_what_is_declared_later_decides_what_is_written(memory_store: MemoryStore) -> None:
    database = reef.connect(memory_store)
    with database.namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": "a", "x": 1}])
    with database.namespace("n", maintain=False, schema=VECTOR) as namespace:
        before = namespace.lsn
        namespace.write(upserts=[{"id": "b", "v": [1.0, 2.0]}])
        assert str(namespace.schema.attributes["v"]) == "vector<float32, 2>"
        with pytest.raises(reef.SchemaConflict):
            namespace.write(upserts=[{"id": "c", "v": [1.0]}])
        # Declaring the same again writes nothing.
        namespace.declare(namespace.schema)
        assert namespace.lsn == before + 1
        namespace.index()
    with database.namespace("n", "r", schema=VECTOR) as reader:
        assert reader.get("b") == {"id": "b", "v": [1.0, 2.0]}
        assert reader.verify(deep=True).sound


def test_a_declaration_alone_survives(memory_store: MemoryStore) -> None:
    database = reef.connect(memory_store)
    database.namespace("n", maintain=False).close()
    database.namespace("n", maintain=False, schema=VECTOR).close()
    with database.namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": "a", "v": [1.0, 2.0]}])
        assert namespace.schema.attributes["v"] == reef.vector(2)


def test_a_declaration_that_disagrees_changes_nothing(memory_store: MemoryStore) -> None:
    database = reef.connect(memory_store)
    with database.namespace("n", maintain=False, schema=VECTOR) as namespace:
        namespace.write(upserts=[{"id": "a", "v": [1.0, 2.0]}])
    with pytest.raises(reef.SchemaConflict):
        database.namespace("n", maintain=False, schema={"v": "vector<float32, 3>", "y": "int64"})
    with pytest.raises(reef.SchemaConflict):
        database.namespace("n", "r", schema={"y": "int64"})
    assert set(database.namespace("n", "r").schema.attributes) == {"v"}


def test_a_declaration_that_races_a_load_is_decided_by_the_log(memory_store: MemoryStore) -> None:
    faulty = FaultyStore(memory_store)
    namespace = reef.connect(faulty).namespace("n", maintain=False)
    other = reef.connect(memory_store)

    def load() -> None:
        other.namespace("n", "r").load([{"id": "a", "v": "text"}])

    faulty.pause_before(request("create", "wal/"), load)
    with pytest.raises(reef.SchemaConflict):
        namespace.declare(reef.Schema("string", {"v": reef.vector(2)}))
    assert namespace.get("a") == {"id": "a", "v": "text"}
    namespace.index()
    assert other.namespace("n", "r").verify(deep=True).sound


def test_what_is_written_after_a_declaration_is_seen(memory_store: MemoryStore) -> None:
    with reef.connect(memory_store).namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": "a", "x": 1}])
        namespace.declare(reef.Schema("string", {"v": reef.vector(2)}))
        namespace.write(upserts=[{"id": "a", "x": 2}])
        assert namespace.get("a") == {"id": "a", "x": 2}
        assert list(namespace.scan().documents()) == [{"id": "a", "x": 2}]
        with pytest.raises(reef.ConditionFailed):
            namespace.write(upserts=[{"id": "a", "x": 3}], condition=reef.if_equal(x=1))

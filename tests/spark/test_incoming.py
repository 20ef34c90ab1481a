"""Columns of a DataFrame against a schema, and batches of Spark's as rows. No Spark runs here."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType, _parse_datatype_string

from reef.data.documents import documents_of
from reef.data.rows import DELETE, with_lsn
from reef.data.schema import Schema
from reef.documents.database import declared_schema
from reef.errors import InvalidId, InvalidInput, InvalidName, SchemaConflict
from reef.spark.failures import Failure, spark_errors, unwrap
from reef.spark.incoming import Incoming, open_vectors, plan_incoming
from reef.spark.writing import parse_schema

EMPTY = Schema()


def struct(text: str) -> StructType:
    parsed = _parse_datatype_string(text)
    assert isinstance(parsed, StructType)
    return parsed


@pytest.fixture(autouse=True)
def _needs_spark(spark: object) -> None:
    """Spark itself parses types."""


def documents(incoming: Incoming, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for rows in incoming.rows([batch]):
        found += documents_of(with_lsn(rows, 1))
    return found


def test_types_and_values() -> None:
    given = struct(
        "id bigint, b boolean, i int, f float, d double, s string, x binary, t timestamp, day date,"
        " l array<string>, v array<float>, doubles array<double>, o struct<a:int,b:array<int>>,"
        " m map<string,int>, nothing void"
    )
    assert open_vectors(given, EMPTY) == ["v"]
    incoming = plan_incoming(given, EMPTY, dimensions={"v": 2})
    assert {name: str(kind) for name, kind in incoming.schema.attributes.items()} == {
        "b": "bool",
        "i": "int64",
        "f": "float64",
        "d": "float64",
        "s": "string",
        "x": "bytes",
        "t": "timestamp",
        "day": "timestamp",
        "l": "list<string>",
        "v": "vector<float32, 2>",
        "doubles": "list<float64>",
        "o": "json",
        "m": "json",
        "nothing": "null",
    }
    moment = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    arrays = {
        "id": pa.array([7], pa.int64()),
        "b": pa.array([True]),
        "i": pa.array([3], pa.int32()),
        "f": pa.array([0.5], pa.float32()),
        "d": pa.array([0.25]),
        "s": pa.array(["text"]),
        "x": pa.array([b"\0\1"]),
        "t": pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
        "day": pa.array([moment.date()], pa.date32()),
        "l": pa.array([["a", None]]),
        "v": pa.array([[1.0, 2.0]], pa.list_(pa.float32())),
        "doubles": pa.array([[1.0]]),
        "o": pa.array([{"a": 1, "b": [1, 2]}]),
        "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())),
        "nothing": pa.nulls(1),
    }
    (document,) = documents(incoming, pa.RecordBatch.from_pydict(arrays))
    assert document == {
        "id": 7,
        "b": True,
        "i": 3,
        "f": 0.5,
        "d": 0.25,
        "s": "text",
        "x": b"\0\1",
        "t": moment,
        "day": datetime(2024, 5, 6, tzinfo=UTC),
        "l": ["a", None],
        "v": [1.0, 2.0],
        "doubles": [1.0],
        "o": {"a": 1, "b": [1, 2]},
        "m": {"k": 1},
        "nothing": None,
    }


def test_text_of_a_json_attribute_is_json() -> None:
    incoming = plan_incoming(
        struct("id string, meta string"), EMPTY, declared=declared_schema({"meta": "json"})
    )
    batch = pa.RecordBatch.from_pydict({"id": ["a", "b"], "meta": ['{"k": [1, 2]}', "null"]})
    assert documents(incoming, batch) == [
        {"id": "a", "meta": {"k": [1, 2]}},
        {"id": "b", "meta": None},
    ]
    with pytest.raises(InvalidInput, match=r"id 'a'.*not JSON"):
        documents(incoming, pa.RecordBatch.from_pydict({"id": ["a"], "meta": ["{"]}))


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ("name string", InvalidId, "no id column 'id'"),
        ("id double", InvalidId, "'id' is double; ids are strings or integers"),
        ("id decimal(10,2)", InvalidId, "decimal"),
        ("id string, n decimal(10,2)", SchemaConflict, "'n' is decimal.*cast it to double"),
        ("id string, t timestamp_ntz", SchemaConflict, "'t'.*no time zone, so cast"),
        ("id string, v variant", SchemaConflict, r"to_json\(\)"),
        ("id string, n interval day to second", SchemaConflict, "'n' is interval"),
        ("id string, n time", SchemaConflict, "'n' is time"),
        ("id string, v array<float>", SchemaConflict, "dimension is not known: declare it"),
        ("id string, o struct<t:timestamp>", SchemaConflict, "timestamp .in 't'., which JSON"),
        ("id string, m map<int,string>", SchemaConflict, "int keys"),
        ("id string, l array<struct<x:binary>>", SchemaConflict, "binary .in 'x'."),
        ("id string, `` string", InvalidName, "attribute name"),
    ],
)
def test_what_no_namespace_takes(columns: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        plan_incoming(struct(columns), EMPTY)


def test_two_columns_of_one_name() -> None:
    with pytest.raises(InvalidInput, match="two columns 'a'"):
        plan_incoming(struct("id string, a int").add("a", "string"), EMPTY)


def test_an_attribute_called_id() -> None:
    with pytest.raises(InvalidName, match="document id"):
        plan_incoming(struct("key string, id string"), EMPTY, id_column="key")


@pytest.mark.parametrize(
    ("known", "column", "fits"),
    [
        ("int64", "smallint", True),
        ("int64", "double", False),
        ("float64", "int", True),
        ("float64", "float", True),
        ("string", "int", False),
        ("timestamp", "date", True),
        ("list<float64>", "array<int>", True),
        ("list<float64>", "array<float>", True),
        ("list<int64>", "array<double>", False),
        ("list<int64>", "int", False),
        ("vector<float32, 4>", "array<double>", True),
        ("vector<float16, 4>", "array<float>", True),
        ("vector<float32, 4>", "array<string>", False),
        ("json", "map<string,int>", True),
        ("json", "timestamp", False),
        ("string", "void", True),
        ("list<null>", "int", False),
        ("list<null>", "array<void>", True),
        ("null", "void", True),
        ("string", "decimal(5,0)", False),
    ],
)
def test_columns_against_a_known_schema(known: str, column: str, fits: bool) -> None:
    schema = declared_schema({"id": "string", "a": known})
    if fits:
        assert plan_incoming(struct(f"id string, a {column}"), schema).schema == schema
    else:
        with pytest.raises(SchemaConflict, match="'a'"):
            plan_incoming(struct(f"id string, a {column}"), schema)


def test_columns_settle_what_is_not_known_yet() -> None:
    schema = declared_schema({"id": "string", "a": "null", "l": "list<null>", "v": "null"})
    given = struct("id string, a timestamp, l array<bigint>, v array<float>")
    assert open_vectors(given, schema) == ["v"]
    incoming = plan_incoming(given, schema, dimensions={"v": 3})
    assert {name: str(kind) for name, kind in incoming.schema.attributes.items()} == {
        "a": "timestamp",
        "l": "list<int64>",
        "v": "vector<float32, 3>",
    }


def test_ids_of_the_other_kind() -> None:
    with pytest.raises(InvalidId, match="ids of this namespace are string"):
        plan_incoming(struct("id int"), Schema("string"))


def test_decimal_ids_reach_the_whole_range() -> None:
    incoming = plan_incoming(struct("id decimal(20,0)"), EMPTY)
    kind = pa.decimal128(20, 0)
    batch = pa.RecordBatch.from_pydict({"id": pa.array([Decimal(2**64 - 1)], kind)})
    assert documents(incoming, batch) == [{"id": 2**64 - 1}]
    for wrong in (2**64, -1):
        with pytest.raises(InvalidId, match=str(wrong)):
            incoming.convert(pa.RecordBatch.from_pydict({"id": pa.array([Decimal(wrong)], kind)}))


def test_deletions_look_at_nothing_but_ids() -> None:
    incoming = plan_incoming(
        struct("x decimal(3,1), key string"), EMPTY, id_column="key", kind=DELETE
    )
    batch = pa.RecordBatch.from_pydict({"x": pa.nulls(2), "key": ["a", "b"]})
    (rows,) = incoming.rows([batch])
    assert rows.column("id").to_pylist() == ["a", "b"]
    assert rows.column("\0kind").to_pylist() == [DELETE, DELETE]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pa.array(["a", None]), "missing"),
        (pa.array(["a", ""]), "empty"),
        (pa.array(["x" * 513]), "more than 512"),
        (pa.array(["a\nb"]), "control character"),
    ],
)
def test_ids_that_no_document_can_have(ids: pa.Array, message: str) -> None:
    incoming = plan_incoming(struct("id string"), EMPTY)
    with pytest.raises(InvalidId, match=message):
        documents(incoming, pa.RecordBatch.from_arrays([ids], names=["id"]))


def test_negative_ids() -> None:
    incoming = plan_incoming(struct("id bigint"), EMPTY)
    with pytest.raises(InvalidId, match="negative"):
        documents(incoming, pa.RecordBatch.from_pydict({"id": [-1]}))


def test_large_batches_are_converted_in_slices() -> None:
    incoming = plan_incoming(struct("id bigint, t string"), EMPTY)
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array(range(40), pa.int64()), "t": ["x" * (1 << 20)] * 40}
    )
    pieces = list(incoming.rows([batch]))
    assert len(pieces) >= 5
    assert sum(piece.num_rows for piece in pieces) == 40


def test_schemas_as_text() -> None:
    assert parse_schema("") == {}
    assert parse_schema("e vector<float32, 32>, meta json,`odd name` list<string>") == {
        "e": "vector<float32, 32>",
        "meta": "json",
        "odd name": "list<string>",
    }
    with pytest.raises(InvalidInput, match="names and types"):
        parse_schema("e")


def test_errors_come_out_as_they_went_in() -> None:
    wrapped = RuntimeError(
        "Job aborted\nTraceback (most recent call last):\n  File …\n"
        "reef.errors.InvalidInput: first\n\n"
        "reef.errors.SchemaConflict: attribute 'a' is wrong\n at x"
    )
    with pytest.raises(SchemaConflict, match=r"^attribute 'a' is wrong$"), spark_errors():
        raise wrapped
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("x")
    other = ValueError("nothing of ours")
    assert unwrap(other) is other
    corruption = Failure("Corruption", "wal/1 is damaged", ()).error()
    assert type(corruption).__name__ == "Corruption"
    assert str(corruption) == "wal/1 is damaged"

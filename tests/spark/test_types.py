"""Reef's types as Spark's, and rows as the batches that Spark takes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import InvalidInput
from reef.spark.types import arrow_schema, check_columns, spark_schema, spark_type, to_spark

NAMES = {
    "bool": "boolean",
    "int64": "bigint",
    "float64": "double",
    "string": "string",
    "bytes": "binary",
    "timestamp": "timestamp",
    "json": "string",
    "list<int64>": "array<bigint>",
    "list<timestamp>": "array<timestamp>",
    "list<string>": "array<string>",
    "vector<float32, 3>": "array<float>",
    "vector<float16, 3>": "array<float>",
    "null": "void",
    "list<null>": "array<void>",
}
WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "bool": [True, None, False],
    "int64": [1, None, -(2**63)],
    "float64": [1.5, None, float("inf")],
    "string": ["a", None, ""],
    "bytes": [b"\0", None, b""],
    "timestamp": [WHEN, None, WHEN],
    "json": ['{"a":1}', None, "[]"],
    "list<int64>": [[1, None], None, []],
    "list<timestamp>": [[WHEN], None, []],
    "list<string>": [["a", None], None, []],
    "vector<float32, 3>": [[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]],
    "vector<float16, 3>": [[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.5]],
    "null": [None, None, None],
    "list<null>": [[None], None, []],
}
SCHEMA = Schema("string", {"year": parse_type("int64"), "v": parse_type("vector<float32, 3>")})


@pytest.mark.parametrize("kind", NAMES)
def test_each_type_has_one_of_sparks(kind: str) -> None:
    assert spark_type(parse_type(kind)).simpleString() == NAMES[kind]


def test_a_namespace_is_its_id_and_its_attributes() -> None:
    assert spark_schema(SCHEMA).simpleString() == "struct<id:string,year:bigint,v:array<float>>"
    assert spark_schema(SCHEMA, ["v", "id"]).names == ["v", "id"]
    assert spark_schema(Schema()).simpleString() == "struct<id:string>"
    numbers = Schema("uint64")
    assert spark_schema(numbers)["id"].dataType == LongType()
    assert spark_schema(numbers, unsigned_ids=True)["id"].dataType == DecimalType(20, 0)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("cut", [slice(0, 3), slice(1, 3), slice(2, 3), slice(0, 0)])
def test_values_stay_what_they_are(kind: str, cut: slice) -> None:
    attribute = parse_type(kind)
    struct = spark_schema(Schema("string", {"x": attribute}))
    schema = arrow_schema(struct)
    # The rows before are there to be cut away: arrays with an offset are the tricky ones.
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array(VALUES[kind], attribute.arrow)], ["id", "x"]
    )
    found = to_spark(batch.slice(cut.start, cut.stop - cut.start), schema)
    found.validate(full=True)
    assert found.schema.equals(schema)
    assert found.column("x").to_pylist() == VALUES[kind][cut]
    assert found.column("id").to_pylist() == ["a", "b", "c"][cut]


def test_missing_columns_are_null_and_others_left_out() -> None:
    schema = arrow_schema(spark_schema(SCHEMA))
    batch = pa.RecordBatch.from_pydict({"id": ["a"], "\0lsn": [7], "\0kind": [0]})
    assert to_spark(batch, schema).to_pylist() == [{"id": "a", "year": None, "v": None}]


def test_vectors_share_their_numbers() -> None:
    numbers = np.arange(6, dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 3)
    batch = pa.RecordBatch.from_arrays([pa.array(["a", "b"]), column], ["id", "v"])
    found = to_spark(batch, arrow_schema(spark_schema(SCHEMA, ["v"]))).column("v")
    assert found.values.buffers()[1].address == column.values.buffers()[1].address


def test_large_ids_are_refused_or_shown_as_decimals() -> None:
    schema = Schema("uint64")
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2**63 + 5], pa.uint64())], ["id"])
    with pytest.raises(InvalidInput, match=r"id 9223372036854775813 does not fit.*unsignedIds"):
        to_spark(batch, arrow_schema(spark_schema(schema)))
    assert to_spark(batch.slice(0, 1), arrow_schema(spark_schema(schema))).to_pylist() == [
        {"id": 1}
    ]
    wide = to_spark(batch, arrow_schema(spark_schema(schema, unsigned_ids=True)))
    assert wide.column("id").to_pylist() == [Decimal(1), Decimal(2**63 + 5)]


def test_a_null_in_a_column_without_is_an_error() -> None:
    struct = StructType([StructField("year", LongType(), nullable=False)])
    batch = pa.RecordBatch.from_pydict({"id": ["a", "b"], "year": [1, None]})
    assert to_spark(batch.slice(0, 1), arrow_schema(struct)).to_pylist() == [{"year": 1}]
    with pytest.raises(InvalidInput, match="column 'year' has nulls"):
        to_spark(batch, arrow_schema(struct))


@pytest.mark.parametrize(
    ("struct", "message"),
    [
        (StructType().add("yaer", LongType()), "no column 'yaer'; did you mean 'year'?"),
        (StructType().add("Year", LongType()), "no column 'Year'; did you mean 'year'?"),
        (StructType().add("zzzzzz", LongType()), "no column 'zzzzzz'; there are 'id', 'year', 'v'"),
        (StructType().add("year", StringType()), "column 'year' is bigint, not string"),
        (StructType().add("id", LongType()), "column 'id' is string, not bigint"),
        (StructType().add("id", DecimalType(20, 0)), "column 'id' is string, not decimal"),
        (StructType().add("v", ArrayType(LongType())), "'v' is array<float>, not array<bigint>"),
    ],
)
def test_a_schema_that_does_not_fit(struct: StructType, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_columns(struct, SCHEMA)
    assert message in str(caught.value)


def test_a_schema_that_fits() -> None:
    check_columns(spark_schema(SCHEMA), SCHEMA)
    check_columns(StructType().add("v", ArrayType(FloatType(), containsNull=False)), SCHEMA)
    check_columns(StructType().add("id", DecimalType(20, 0)), Schema("uint64"))
    check_columns(StructType().add("id", LongType()), Schema("uint64"))

"""The edges of Spark's types: the first and the last moment, and types not known yet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NullType, StructField, StructType

import reef
from reef.errors import SchemaConflict
from reef.spark.types import arrow_schema, to_spark

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
DAY = timedelta(days=1)
MOMENTS = {"first": FIRST, "second": FIRST + DAY, "between": LAST - DAY, "last": LAST}


def _frame(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    options = {"bucket": str(folder), "namespace": name}
    return spark.read.format("reef").options(**options).load()


def test_the_first_and_the_last_moment(spark: SparkSession, tmp_path: Path) -> None:
    """Spark holds them all, compares them, and gives them back."""
    database = reef.connect(tmp_path)
    database.namespace("moments", maintain=False).write(
        upserts=[{"id": id, "t": moment} for id, moment in MOMENTS.items()]
    )
    frame = _frame(spark, tmp_path, "moments")
    found = {row["id"]: row["t"] for row in frame.toArrow().to_pylist()}
    assert found == MOMENTS
    texts = frame.where("t = timestamp'0001-01-01 00:00:00' or t > timestamp'9999-12-31'")
    assert {
        row["id"]: row["text"] for row in texts.selectExpr("id", "string(t) text").collect()
    } == {
        "first": "0001-01-01 00:00:00",
        "last": "9999-12-31 23:59:59.999999",
    }
    # From the second day to the last but one, collect() can have them, wherever it is run.
    inside = frame.where("id in ('second', 'between')").collect()
    assert {row["id"] for row in inside} == {"second", "between"}
    frame.write.format("reef").options(bucket=str(tmp_path), namespace="copy").mode("append").save()
    copied = database.namespace("copy", "r").scan().documents()
    assert {row["id"]: row["t"] for row in copied} == MOMENTS


def test_the_first_moment_is_beyond_collect_with_or_without_reef(spark: SparkSession) -> None:
    """PySpark makes local datetimes, by way of a year that is not. When this fails, docs/spark.md
    can say less."""
    with pytest.raises(ValueError, match="year 0"):
        spark.sql("select timestamp'0001-01-01 00:00:00' t").collect()


def test_types_that_are_not_known_yet(spark: SparkSession, tmp_path: Path) -> None:
    ns = reef.connect(tmp_path).namespace("n", maintain=False)
    rows: list[dict[str, Any]] = [{"id": "a", "x": None, "l": []}, {"id": "b", "v": None}]
    ns.write(upserts=rows)
    ns.index()
    frame = _frame(spark, tmp_path, "n")
    assert frame.schema.simpleString() == "struct<id:string,x:void,l:array<void>,v:void>"
    assert [row.asDict() for row in frame.orderBy("id").collect()] == [
        {"id": "a", "x": None, "l": [], "v": None},
        {"id": "b", "x": None, "l": None, "v": None},
    ]
    options = {"bucket": str(tmp_path), "namespace": "n"}
    frame.write.format("reef").options(**options | {"namespace": "copy"}).mode("append").save()
    copy = reef.connect(tmp_path).namespace("copy", "r")
    assert copy.schema.to_dict()["attributes"] == ns.schema.to_dict()["attributes"]
    more = spark.createDataFrame([("c", 1.5, ["t"])], "id string, x double, l array<string>")
    more.write.format("reef").options(**options).mode("append").save()
    settled = _frame(spark, tmp_path, "n")
    assert settled.schema.simpleString() == "struct<id:string,x:double,l:array<string>,v:void>"
    assert [row.asDict() for row in settled.where("x > 1").collect()] == [
        {"id": "c", "x": 1.5, "l": ["t"], "v": None}
    ]
    assert settled.where("x is null").count() == 2


def test_rows_of_a_type_that_was_decided_after_a_query_began() -> None:
    void = arrow_schema(StructType([StructField("x", NullType())]))
    with pytest.raises(SchemaConflict, match="start it again"):
        to_spark(pa.record_batch({"x": pa.array([1])}), void)
    assert to_spark(pa.record_batch({"x": pa.nulls(2)}), void).num_rows == 2
    text = pa.schema([pa.field("x", pa.string())])
    lists = pa.record_batch({"x": pa.array([[], [None]], pa.list_(pa.null()))})
    assert to_spark(lists, text).column(0).to_pylist() == ["[]", "[null]"]

"""One DataFrame into many namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reef.documents.database import connect
from reef.errors import InvalidInput, InvalidName, SchemaConflict
from reef.spark.loading import load
from reef.spark.tenants import TenantsFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "tenant string, id int, n int"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


def contents(bucket: Path, name: str) -> dict[Any, Any]:
    with connect(bucket) as database:
        found = database.namespace(name, "r").scan().documents()
        return {row.pop("id"): row for row in found}


def test_each_tenant_gets_its_rows_and_a_restart_goes_on(spark: SparkSession, bucket: Path) -> None:
    rows = [(f"t{n % 50:02d}", n, n) for n in range(1_000)]
    df = spark.createDataFrame(rows, COLUMNS).repartition(3)
    some = load(df.where("tenant < 't20'"), bucket, tenant_column="tenant", key="k", partitions=3)
    assert len(some.loaded) == 20
    segments = set(bucket.rglob("*.seg"))
    report = load(df, bucket, tenant_column="tenant", key="k", partitions=3)
    assert {name for name, each in report.loaded.items() if each.replayed} == set(some.loaded)
    assert len(report.loaded) == 50
    assert report.rows == 600
    added = {path.parent.parent.name for path in set(bucket.rglob("*.seg")) - segments}
    assert added == {f"t{n:02d}" for n in range(20, 50)}
    for tenant in (0, 19, 20, 49):
        expected = {n: {"n": n} for n in range(tenant, 1_000, 50)}
        assert contents(bucket, f"t{tenant:02d}") == expected


def test_a_tenant_over_several_tasks_is_one_commit(spark: SparkSession, bucket: Path) -> None:
    df = spark.createDataFrame([("big", n, n) for n in range(300)], COLUMNS)
    report = load(df, bucket, tenant_column="tenant", keep_tenant=True, partitions=3)
    assert report.loaded["big"].segments == 3
    assert report.loaded["big"].lsn == 1
    assert len(contents(bucket, "big")) == 300
    assert contents(bucket, "big")[7] == {"tenant": "big", "n": 7}


def test_what_is_wrong_with_one_tenant_stops_only_that_one(
    spark: SparkSession, bucket: Path
) -> None:
    with connect(bucket) as database:
        database.create("clash", schema={"n": "string"})
    rows = [("a", 1, 1), ("clash", 1, 1), ("twice", 1, 1), ("twice", 1, 2), ("z", 1, 1)]
    df = spark.createDataFrame(rows, COLUMNS)
    with pytest.raises(TenantsFailed, match=r"^2 of 4 tenants.*'clash'.*'n' is string") as failed:
        load(df, bucket, tenant_column="tenant", key="k")
    report = failed.value.report
    assert set(report.loaded) == {"a", "z"}
    assert isinstance(report.failed["clash"], SchemaConflict)
    assert "the id 1 comes more than once" in str(report.failed["twice"])
    assert contents(bucket, "z") == {1: {"n": 1}}
    assert contents(bucket, "clash") == contents(bucket, "twice") == {}
    mended = load(
        df.where("tenant <> 'clash'"), bucket, tenant_column="tenant", key="k", order_by="n"
    )
    assert mended.rows == 1
    assert contents(bucket, "twice") == {1: {"n": 2}}


def test_names_are_checked_before_anything_is_written(spark: SparkSession, bucket: Path) -> None:
    for name, message in (("no/slash", "namespace name 'no/slash'"), (None, "null in some rows")):
        df = spark.createDataFrame([("good", 1, 1), (name, 2, 2)], COLUMNS)
        with pytest.raises(InvalidName, match=message):
            load(df, bucket, tenant_column="tenant")
    df = spark.createDataFrame([("good", 1, 1)], COLUMNS)
    for wrong, message in (
        ("tenent", "did you mean 'tenant'"),
        ("n", "must be of strings"),
        ("id", "both the tenant and the id"),
    ):
        with pytest.raises(InvalidInput, match=message):
            load(df, bucket, tenant_column=wrong)
    assert not bucket.exists() or not list(bucket.iterdir())


def test_deletions_and_overwrites_by_tenant(spark: SparkSession, bucket: Path) -> None:
    df = spark.createDataFrame([("a", 1, 1), ("a", 2, 2), ("b", 1, 1)], COLUMNS)
    load(df, bucket, tenant_column="tenant")
    load(df.where("id = 1"), bucket, tenant_column="tenant", mode="delete")
    assert contents(bucket, "a") == {2: {"n": 2}}
    assert contents(bucket, "b") == {}
    load(df.where("id = 1 and tenant = 'a'"), bucket, tenant_column="tenant", mode="overwrite")
    assert contents(bucket, "a") == {1: {"n": 1}}


@pytest.mark.slow
def test_two_thousand_tenants(spark: SparkSession, bucket: Path) -> None:
    df = spark.range(0, 20_000, 1, 4).selectExpr(
        "concat('t', id % 2000) as tenant", "id", "cast(id as int) as n"
    )
    report = load(df, bucket, tenant_column="tenant", key="k")
    assert report.rows == 20_000
    assert len(report.loaded) == 2_000

"""Writing through the data source, in batches and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.types import StructType, _parse_datatype_string

import reef
from reef.documents.database import connect
from reef.errors import CommitUncertain, ConcurrentPublication, ConditionFailed, InvalidInput
from reef.spark.failures import unwrap
from reef.spark.source import ReefDataSource
from reef.spark.writing import Message, ReefStreamWriter, ReefWriter, Writing, plan_writing
from reef.store import MemoryStore
from support.faults import Clock, FaultyStore, request
from support.held import HeldBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "docs"
COLUMNS = "id string, n int"


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(ReefDataSource)
    return spark


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


def contents(bucket: Path) -> dict[Any, Any]:
    with connect(bucket) as database:
        found = database.namespace(NAME, "r").scan().documents()
        return {row.pop("id"): row for row in found}


def save(df: DataFrame, bucket: Path, mode: str = "append", **options: Any) -> None:
    writer = df.write.format("reef").option("bucket", str(bucket)).option("namespace", NAME)
    writer.options(**options).mode(mode).save()


def refused(write: Callable[[], None]) -> str:
    with pytest.raises(PySparkException) as caught:
        write()
    return str(unwrap(caught.value))


def test_append_overwrite_and_once(spark: SparkSession, bucket: Path) -> None:
    rows = [(f"d{n * 37 % 100}", n) for n in range(100)]
    df = spark.createDataFrame(rows, COLUMNS).repartition(3)
    save(df, bucket, txnAppId="app", txnVersion=7)
    assert contents(bucket) == {id: {"n": n} for id, n in rows}
    segments = sorted(bucket.rglob("*.seg"))
    save(df, bucket, txnAppId="app", txnVersion=7)
    assert sorted(bucket.rglob("*.seg")) == segments
    save(df.limit(5), bucket, "overwrite")
    assert len(contents(bucket)) == 5
    with connect(bucket) as database:
        assert database.namespace(NAME, "r").at(lsn=1).count() == 100
        assert database.namespace(NAME, "r").verify(deep=True).sound


def test_bad_writes_say_what_is_wrong(spark: SparkSession, bucket: Path) -> None:
    df = spark.createDataFrame([("a", 1), ("a", 2)], COLUMNS)
    assert "the id 'a' comes more than once" in refused(lambda: save(df, bucket))
    assert "did you mean 'orderBy'" in refused(lambda: save(df, bucket, orderBye="n"))
    assert contents(bucket) == {}
    with pytest.raises(AnalysisException, match='use either the "Append" or "Overwrite" mode'):
        save(df, bucket, "errorifexists")


def test_a_stream_is_written_once(spark: SparkSession, bucket: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"

    def feed(number: int, *ids: str) -> None:
        rows = [(id, number) for id in ids]
        spark.createDataFrame(rows, COLUMNS).coalesce(1).write.mode("append").json(str(source))

    def run() -> None:
        query = (
            spark.readStream.schema(COLUMNS)
            .json(str(source))
            .writeStream.format("reef")
            .option("bucket", str(bucket))
            .option("namespace", NAME)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    feed(1, "a", "b")
    run()
    feed(2, "b", "c")
    run()
    assert contents(bucket) == {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 2}}
    # The commit happened, and the query died before it could note that down.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    with connect(bucket) as database, database.namespace(NAME, maintain=False) as writer:
        writer.write([{"id": "b", "n": 99}])
        slots = writer._tree.view.unfolded.next_lsn
        run()
        writer.refresh()
        assert writer._tree.view.unfolded.next_lsn == slots
        assert writer.get("b") == {"id": "b", "n": 99}


# What tasks and commits do, in this process.


@pytest.fixture
def database(spark: SparkSession) -> reef.Database:
    """Spark itself only parses types here."""
    return connect(FaultyStore(MemoryStore()), environment=Clock().environment())


def struct(text: str = COLUMNS) -> StructType:
    parsed = _parse_datatype_string(text)
    assert isinstance(parsed, StructType)
    return parsed


def planned(
    database: reef.Database,
    monkeypatch: pytest.MonkeyPatch,
    *,
    overwrite: bool = False,
    **options: str,
) -> Writing:
    monkeypatch.setattr("reef.spark.options.bucket_at", lambda *_: HeldBucket(database))
    return plan_writing({"bucket": "b", "namespace": NAME, **options}, struct(), overwrite)


def batch(*rows: tuple[str, int | None]) -> pa.RecordBatch:
    ids, numbers = zip(*rows, strict=True)
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.string()), "n": pa.array(numbers, pa.int32())}
    )


def found(database: reef.Database) -> dict[Any, Any]:
    return {row["id"]: row.get("n") for row in database.namespace(NAME, "r").scan().documents()}


def test_a_task_spills_what_does_not_fit(
    database: reef.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = planned(database, monkeypatch, orderBy="n", taskMemory=str(1 << 20))
    batches = [
        batch(*((f"{(n * 7919) % 30_000:06d}", n) for n in range(start, start + 2_000)))
        for start in range(0, 60_000, 2_000)
    ]
    part = writing.write(batches)
    assert sum(info.rows for info in part.segments) == 30_000
    assert writing.commit([part], None) is not None
    expected = {f"{(n * 7919) % 30_000:06d}": n for n in range(60_000)}
    assert found(database) == expected
    unique = planned(database, monkeypatch, taskMemory=str(1 << 20)).write(batches)
    assert unique.failure is not None
    assert "'000000' comes more than once" in unique.failure.message


def test_duplicates_across_tasks(database: reef.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [batch(("a", 1), ("c", 5), ("b", 2))]
    two = [batch(("c", 4), ("a", 3), ("z", None))]
    three = [batch(("z", 7), ("x", None))]
    unique = planned(database, monkeypatch)
    with pytest.raises(InvalidInput, match="the id 'a' comes more than once"):
        unique.commit([unique.write(some) for some in (one, two, three)], None)
    assert found(database) == {}
    last = planned(database, monkeypatch, orderBy="n")
    report = last.commit([last.write(some) for some in (one, two, three)], None)
    assert report is not None
    assert report.rows == 5
    assert found(database) == {"a": 3, "b": 2, "c": 5, "x": None, "z": 7}
    delete = planned(database, monkeypatch, operation="delete")
    delete.commit([delete.write(one), delete.write(two)], None)
    assert found(database) == {"x": None}


def test_tasks_that_divide_the_ids_make_one_run(
    database: reef.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = planned(database, monkeypatch)
    parts = [writing.write([batch((id, 1))]) for id in "cab"]
    writing.commit(parts, None)
    view = database.namespace(NAME, "r")._tree.view
    assert len(view.segments) == 3
    assert len(view.runs) == 1


def test_an_insert_through_the_source(
    database: reef.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.namespace(NAME, maintain=False).write([{"id": "a", "n": 0}])
    refuse = planned(database, monkeypatch, operation="insert")
    with pytest.raises(ConditionFailed, match="'a'"):
        refuse.commit([refuse.write([batch(("a", 1), ("b", 1))])], None)
    skip = planned(database, monkeypatch, operation="insert", onConflict="skip")
    part = skip.write([batch(("a", 1), ("b", 1))])
    assert part.skipped == 1
    database.namespace(NAME, maintain=False).write([{"id": "b", "n": 0}])
    with pytest.raises(ConcurrentPublication, match="do it again"):
        skip.commit([part], None)
    assert found(database) == {"a": 0, "b": 0}


def writer_of(kind: type[Any], writing: Writing, key: str | None = None) -> Any:
    made = kind.__new__(kind)
    made._writing = writing
    made._key = key
    return made


def test_an_abort_after_a_commit_whose_answer_was_lost_deletes_nothing(
    database: reef.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = database.store
    assert isinstance(store, FaultyStore)
    writer = writer_of(ReefWriter, planned(database, monkeypatch), "app:1")
    message = writer.write(iter([batch(("a", 1))]))
    store.lose_answer(request("create", "wal/"))
    store.refuse(request("get", "wal/"), times=10_000)
    with pytest.raises(CommitUncertain):
        writer.commit([message, None])
    writer.abort([message, None])
    assert not [key for kind, key in store.requests if kind == "delete"]
    after = connect(store.inner, environment=database.environment)
    assert found(after) == {"a": 1}
    again = writer_of(ReefWriter, planned(after, monkeypatch), "app:1")
    again.commit([again.write(iter([batch(("a", 2))]))])
    assert found(after) == {"a": 1}


def test_batches_of_a_stream(database: reef.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    store = database.store
    assert isinstance(store, FaultyStore)
    writer = writer_of(ReefStreamWriter, planned(database, monkeypatch))

    def message(*rows: tuple[str, int]) -> Message:
        return Message(writer._writing.write([batch(*rows)] if rows else []), "query")

    writer.commit([message(("a", 1)), message()], 0)
    before = len(store.requests)
    writer.commit([message(), message()], 1)
    assert len(store.requests) == before
    writer.commit([message(("a", 2))], 0)
    assert found(database) == {"a": 1}
    writer.commit([message(("a", 2))], 2)
    assert found(database) == {"a": 2}
    with pytest.raises(InvalidInput, match="set txnAppId"):
        writer.commit([Message(writer._writing.write([]))], 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operation": "merge"}, "operation is one of upsert, insert, delete"),
        ({"duplicates": "last"}, "needs orderBy"),
        ({"orderBy": "m"}, "no order column 'm'"),
        ({"orderBy": "id"}, "'id' is the id"),
        ({"onConflict": "skip"}, "goes with the operation insert"),
        ({"tenantColumn": "n"}, "reef.spark.load"),
        ({"taskMemory": "many"}, "taskMemory is a whole number"),
        ({"schema": "n string"}, "'n' is string, and the column is int"),
        ({"idColumn": "n"}, "document id"),
    ],
)
def test_bad_options(
    database: reef.Database,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(InvalidInput, match=message):
        planned(database, monkeypatch, **options)
    assert not database.exists(NAME)


def test_transactions_are_named_by_both_options(
    database: reef.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reef.spark.options.bucket_at", lambda *_: HeldBucket(database))
    options = {"bucket": "b", "namespace": NAME, "txnAppId": "a"}
    with pytest.raises(InvalidInput, match="go together"):
        ReefWriter(options, struct(), False)
    with pytest.raises(InvalidInput, match="numbers its batches itself"):
        ReefStreamWriter({**options, "txnVersion": "1"}, struct(), False)
    with pytest.raises(InvalidInput, match=r'goes with mode\("append"\)'):
        ReefWriter({**options, "operation": "delete"}, struct(), True)


def test_messages_are_small(database: reef.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    part = planned(database, monkeypatch).write([batch(*((f"{n:05d}", n) for n in range(5_000)))])
    assert len(pickle.dumps(Message(part))) < 1_000
    assert msgspec.json.decode(msgspec.json.encode(part), type=type(part)) == part

"""Loading DataFrames: `reef.spark.load` into one namespace."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reef
from reef.data.rows import DELETE, ID, UPSERT
from reef.data.schema import Schema
from reef.documents.database import connect
from reef.errors import (
    ConcurrentPublication,
    ConditionFailed,
    InvalidInput,
    ReefError,
    SchemaConflict,
    StoreUnavailable,
)
from reef.lsm.write.ingest import ingest
from reef.manifest import Settings
from reef.spark.bucket import bucket_at
from reef.spark.distinct import last_of_each_id
from reef.spark.incoming import Incoming
from reef.spark.job import Job, Written, write_sorted
from reef.spark.loading import LoadReport, checked_segments, commit, load
from reef.store import MemoryStore
from support.faults import Clock, FaultyStore, request
from support.held import HeldBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "docs"


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


def contents(bucket: Path, name: str = NAME) -> dict[Any, dict[str, Any]]:
    with connect(bucket) as database:
        namespace = database.namespace(name, "r")
        return {row["id"]: row for row in namespace.scan().documents()}


def frame(spark: SparkSession, rows: list[Any], columns: str) -> DataFrame:
    return spark.createDataFrame(rows, columns)


def test_a_load_and_the_same_rows_loaded_locally(spark: SparkSession, bucket: Path) -> None:
    rows = [
        (f"d{n * 7919 % 500}", n, n / 8, [float(n), 1.0], {"n": n}, None if n % 3 else "x")
        for n in range(500)
    ]
    df = frame(
        spark, rows, "id string, n int, f double, v array<float>, m map<string,int>, s string"
    )
    told: list[tuple[str, int, int]] = []
    report = load(
        df, bucket, NAME, partitions=3, progress=lambda *what: told.append(what), key="first"
    )
    assert (report.rows, report.deleted, report.segments, report.replayed) == (500, 0, 3, False)
    assert told[0][1:] == (0, 3)
    assert told[-1][1:] == (3, 3)
    local = connect("memory://").namespace(NAME, schema={"v": reef.vector(2)})
    local.load([{"id": r[0], "n": r[1], "f": r[2], "v": r[3], "m": r[4], "s": r[5]} for r in rows])
    assert contents(bucket) == {row["id"]: row for row in local.scan().documents()}
    with connect(bucket) as database:
        assert database.namespace(NAME, "r").schema == local.schema
        assert len(database.namespace(NAME, "r")._tree.view.runs) == 1
        assert database.namespace(NAME, "r").verify(deep=True).sound

    before = sorted(bucket.rglob("*.seg"))
    again = load(df, bucket, NAME, key="first")
    assert again.replayed
    assert again.lsn == report.lsn
    assert sorted(bucket.rglob("*.seg")) == before
    assert load(df, bucket, NAME, key="second").lsn == report.lsn + 1


def test_modes(spark: SparkSession, bucket: Path) -> None:
    old = frame(spark, [(1, "a"), (2, "b"), (3, "c")], "id int, s string")
    new = frame(spark, [(3, "C"), (4, "D")], "id int, s string")
    load(old, bucket, NAME)
    with pytest.raises(ConditionFailed, match=r"id 3$") as failed:
        load(new, bucket, NAME, mode="insert")
    assert failed.value.ids == (3,)
    assert set(contents(bucket)) == {1, 2, 3}
    skipped = load(new, bucket, NAME, mode="insert", on_conflict="skip")
    assert (skipped.rows, skipped.skipped) == (1, 1)
    assert {id: row["s"] for id, row in contents(bucket).items()} == {
        1: "a",
        2: "b",
        3: "c",
        4: "D",
    }
    assert load(new.select("id"), bucket, NAME, mode="delete").deleted == 2
    assert set(contents(bucket)) == {1, 2}
    overwritten = load(new, bucket, NAME, mode="overwrite")
    assert set(contents(bucket)) == {3, 4}
    assert load(new.where("false"), bucket, NAME).rows == 0
    emptied = load(new.where("false"), bucket, NAME, mode="overwrite")
    assert emptied.lsn == overwritten.lsn + 1
    assert contents(bucket) == {}
    with connect(bucket) as database:
        namespace = database.namespace(NAME, "r")
        assert namespace.at(lsn=overwritten.lsn - 1).count() == 2
        assert namespace.at(lsn=overwritten.lsn).get(4) == {"id": 4, "s": "D"}
        assert namespace.verify(deep=True).sound


def test_the_last_row_of_an_id(spark: SparkSession, bucket: Path) -> None:
    rows = [("a", 1, "old"), ("b", 5, "only"), ("a", 3, "new"), ("a", None, "older"), ("c", 1, "x")]
    df = frame(spark, rows, "key string, at int, s string")
    with pytest.raises(InvalidInput, match="the id 'a' comes more than once"):
        load(df, bucket, NAME, id_column="key")
    assert contents(bucket) == {}
    report = load(df, bucket, NAME, id_column="key", order_by="at")
    assert report.rows == 3
    assert {id: row["s"] for id, row in contents(bucket).items()} == {
        "a": "new",
        "b": "only",
        "c": "x",
    }


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ("id string, n int", [("a", 1), (None, 2)], "missing"),
        ("id string, n int", [("a", 1), ("", 2)], "empty"),
        ("id bigint, n int", [(1, 1), (-5, 2)], "negative"),
        ("id string, v array<float>", [("a", [1.0]), ("b", [1.0, 2.0])], "'v'.*dimension"),
        ("id string, v array<float>", [("a", [float("nan")])], "finite"),
        ("id string, n string", [("a", "1")], "'n' is int64"),
        ("id string, t timestamp_ntz", [("a", None)], "no time zone"),
        ("id string, Id string", [("a", "b")], "x"),
    ],
)
def test_bad_rows_leave_nothing(
    spark: SparkSession, bucket: Path, columns: str, rows: list[Any], message: str
) -> None:
    with connect(bucket) as database:
        database.create(NAME, schema={"n": "int64"})
    if message == "x":  # names that differ in case only are different attributes
        load(frame(spark, rows, columns), bucket, NAME)
        assert contents(bucket) == {"a": {"id": "a", "Id": "b"}}
        return
    with pytest.raises(InvalidInput, match=message):
        load(frame(spark, rows, columns), bucket, NAME)
    assert contents(bucket) == {}
    with connect(bucket) as database:
        assert database.namespace(NAME, "r").schema.attributes.keys() == {"n"}


def test_bad_requests(spark: SparkSession, bucket: Path) -> None:
    df = frame(spark, [("a", 1)], "id string, n int")
    for wrong, message in (
        ({"mode": "append"}, "mode is one of upsert, insert, delete, overwrite, not 'append'"),
        ({"on_conflict": "skip"}, "goes with mode"),
        ({"duplicates": "last"}, "needs order_by"),
        ({"order_by": "m"}, "no order column 'm'"),
        ({"id_column": "ID"}, "no id column 'ID'"),
        ({"partitions": 0}, "at least 1"),
        ({"task_memory": 5}, "memory of a task"),
        ({"key": ""}, "idempotency key"),
        ({"schema": {"n": "int32"}}, "not an attribute type"),
        ({"tenant_column": "n"}, "not both"),
    ):
        with pytest.raises(InvalidInput, match=message):
            load(df, bucket, NAME, **wrong)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="no namespace was given"):
        load(df, bucket)  # type: ignore[call-overload]
    assert not bucket.exists() or list(bucket.rglob("*.seg")) == []


def test_a_live_writer_goes_on(spark: SparkSession, bucket: Path) -> None:
    df = frame(spark, [(f"d{n}", n) for n in range(50)], "id string, n int")
    with connect(bucket) as database, database.namespace(NAME, maintain=False) as writer:
        writer.write([{"id": "d1", "n": -1}, {"id": "w", "n": 0}])
        load(df, bucket, NAME)
        writer.write([{"id": "d2", "n": -2}])
        writer.refresh()
        assert writer.get("d1") == {"id": "d1", "n": 1}
        assert writer.get("d2") == {"id": "d2", "n": -2}
        assert writer.count() == 51


def test_vectors_that_are_all_null_are_left_out(spark: SparkSession, bucket: Path) -> None:
    load(frame(spark, [("a", None)], "id string, v array<float>"), bucket, NAME)
    assert contents(bucket) == {"a": {"id": "a"}}
    with pytest.raises(SchemaConflict, match="empty array"):
        load(frame(spark, [("a", [])], "id string, v array<float>"), bucket, NAME)
    load(frame(spark, [("a", [])], "id string, v array<float>"), bucket, "n", schema={"v": "json"})
    assert contents(bucket, "n") == {"a": {"id": "a", "v": []}}


# What a task and the commit do, in this process.


@st.composite
def sorted_batches(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[pa.RecordBatch]]:
    ids = sorted(draw(st.lists(st.integers(0, 12), max_size=30)))
    rows = [(id, place) for place, id in enumerate(ids)]
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    bounds = [0, *cuts, len(rows)]
    batches = []
    for start, stop in pairwise(bounds):
        some = rows[start:stop]
        batches.append(
            pa.RecordBatch.from_pydict(
                {
                    ID: pa.array([id for id, _ in some], pa.uint64()),
                    "n": pa.array([n for _, n in some], pa.int64()),
                }
            )
        )
    return rows, batches


@given(sorted_batches())
def test_one_row_an_id_whatever_the_batches(
    case: tuple[list[tuple[int, int]], list[pa.RecordBatch]],
) -> None:
    rows, batches = case
    out = list(last_of_each_id(batches, unique=False))
    assert all(batch.num_rows for batch in out)
    found = [pair for batch in out for pair in zip(*batch.to_pydict().values(), strict=True)]
    assert found == sorted(dict(rows).items())
    if len(dict(rows)) < len(rows):
        with pytest.raises(InvalidInput, match="more than once"):
            list(last_of_each_id(batches, unique=True))
    else:
        list(last_of_each_id(batches, unique=True))


class World:
    """A namespace on a store that can be made to fail, and a load of it up to the commit."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = FaultyStore(MemoryStore(self.clock.environment()))
        self.database = connect(self.store, environment=self.clock.environment())
        self.database.create(NAME, settings=Settings(grace=100.0, retention=100.0))
        self.bucket = HeldBucket(self.database)

    def write(
        self, ids: list[str], *, absent: str | None = None, kind: int = UPSERT, birth: int = 1
    ) -> Written:
        schema = Schema("string")
        job = Job(
            self.bucket, NAME, Incoming(schema, (ID,), frozenset(), kind), birth, True, absent
        )
        batch = pa.RecordBatch.from_pydict({ID: pa.array(ids, pa.string())})
        return write_sorted(job, self.bucket.tree(NAME), [batch])

    def commit(self, *parts: Written, **wishes: Any) -> LoadReport:
        tree = self.bucket.tree(NAME)
        wishes = {"key": None, "truncate": False, **wishes}
        return commit(tree, NAME, checked_segments(parts), Schema("string"), **wishes)

    def ids(self) -> set[str]:
        return {row["id"] for row in self.database.namespace(NAME, "r").scan().documents()}


def test_a_lost_answer_is_not_a_lost_load() -> None:
    world = World()
    part = world.write(["a", "b"])
    world.store.lose_answer(request("create", "wal/"))
    report = world.commit(part, key="k")
    assert report.rows == 2
    assert not report.replayed
    again = world.commit(world.write(["a", "b"]), key="k")
    assert again.replayed
    assert again.lsn == report.lsn
    assert world.ids() == {"a", "b"}


def test_a_commit_that_never_arrived_is_done_again() -> None:
    world = World()
    part = world.write(["a"])
    world.store.refuse(request("create", "wal/"), times=1000)
    with pytest.raises((StoreUnavailable, ReefError)):
        world.commit(part, key="k")
    fresh = World.__new__(World)
    fresh.__dict__ = {**world.__dict__}
    fresh.store = FaultyStore(world.store.inner)
    fresh.database = connect(fresh.store, environment=world.clock.environment())
    fresh.bucket = HeldBucket(fresh.database)
    assert fresh.ids() == set()
    assert not fresh.commit(part, key="k").replayed
    assert fresh.ids() == {"a"}


def test_orphans_of_tasks_that_died_are_collected_and_those_committed_are_not() -> None:
    world = World()
    world.write(["lost"])
    world.commit(world.write(["kept"]))
    tree = world.bucket.tree(NAME)
    namespace = world.database.namespace(NAME, maintain=False)
    world.clock.advance(1_000)
    namespace.write([{"id": "later"}])
    namespace.index()
    world.clock.advance(1_000)
    namespace.gc(apply=True)
    namespace.gc(apply=True)
    assert world.ids() == {"kept", "later"}
    assert len(list(tree.store.list("segments/"))) <= 3
    assert namespace.verify(deep=True).sound


def test_a_load_that_slept_too_long() -> None:
    world = World()
    part = world.write(["late"], birth=1)
    namespace = world.database.namespace(NAME, maintain=False)
    for n in range(4):
        world.clock.advance(1_000)
        namespace.write([{"id": f"n{n}"}])
        namespace.index()
        namespace.gc(apply=True)
    with pytest.raises(ConcurrentPublication, match="nothing of it is visible: run it again"):
        world.commit(part)
    assert "late" not in world.ids()


@pytest.mark.parametrize("folded", [False, True])
def test_an_insert_sees_what_came_in_between(folded: bool) -> None:
    world = World()
    namespace = world.database.namespace(NAME, maintain=False)
    namespace.write([{"id": "before"}, {"id": "gone"}])
    assert world.write(["before"], absent="refuse").failure is not None
    skipping = world.write(["before", "x"], absent="skip")
    assert (skipping.skipped, skipping.segments[0].rows) == (1, 1)
    since = namespace._tree.view.unfolded.next_lsn - 1
    part = world.write(["a", "b", "gone2"], absent="refuse")
    namespace.write([{"id": "b"}, {"id": "other"}])
    if folded:
        namespace.index()
    with pytest.raises(ConditionFailed) as failed:
        world.commit(part, absent_since=since)
    assert failed.value.ids == ("b",)
    assert "a" not in world.ids()
    namespace.write(deletes=["b"])
    if folded:
        namespace.index()
        namespace.compact(full=True)
    assert world.commit(part, absent_since=since).rows == 3
    assert world.ids() == {"a", "b", "gone2", "before", "gone", "other"}


def test_an_insert_looks_again_when_its_slot_was_taken() -> None:
    world = World()
    namespace = world.database.namespace(NAME, maintain=False)
    namespace.write([{"id": "x"}])
    since = namespace._tree.view.unfolded.next_lsn - 1
    part = world.write(["a"], absent="refuse")
    struck = []

    def race() -> None:
        if not struck:
            struck.append(True)
            namespace.write([{"id": "a"}])

    world.store.pause_before(request("create", "wal/"), race)
    with pytest.raises(ConditionFailed):
        world.commit(part, absent_since=since)
    assert struck


def test_an_insert_of_an_id_that_was_patched_or_deleted() -> None:
    world = World()
    namespace = world.database.namespace(NAME, maintain=False)
    namespace.write([{"id": "p"}, {"id": "d"}, {"id": "s"}])
    namespace.index()
    namespace.write(patches=[{"id": "p", "n": 1}], deletes=["d"])
    failure = world.write(["d", "p", "s"], absent="refuse").failure
    assert failure is not None
    assert failure.ids == ("p", "s")


def test_ranges_that_overlap_are_noticed() -> None:
    world = World()
    with pytest.raises(InvalidInput, match="computed again"):
        checked_segments([world.write(["a", "c"]), world.write(["b"])])


def test_many_runs_in_one_record_read_fold_and_compact() -> None:
    """The one who writes a record says that ids are unique in it, not that ranges are disjoint."""
    world = World()
    parts = [world.write(["a", "d"]), world.write(["b", "e"]), world.write(["c", "f"])]
    tree = world.bucket.tree(NAME)
    segments = [info for part in parts for info in part.segments]
    ingest(tree, segments, Schema("string"))
    namespace = world.database.namespace(NAME, maintain=False)
    expected = set("abcdef")
    assert world.ids() == expected
    assert {change.id for change in namespace.changes(after=0)} == expected
    namespace.write(deletes=["d"])
    for step in (namespace.index, lambda: namespace.compact(full=True)):
        step()
        assert world.ids() == expected - {"d"}
        assert namespace.get("e") == {"id": "e"}
        assert namespace.verify(deep=True).sound
    assert world.write(["b"], kind=DELETE).segments[0].tombstones == 1


def test_a_bucket_in_memory_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="in memory"):
        load(frame(spark, [("a",)], "id string"), "memory://", NAME)
    assert bucket_at("x").url.startswith("/")

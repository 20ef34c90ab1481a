"""Reading with Spark: planning and tasks in this process, then the whole way through Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import InputPartition
from pyspark.sql.functions import expr, lit
from pyspark.sql.types import StructType

import reef
import reef.spark.bucket
from reef import Settings
from reef.data.filter import parse_filter
from reef.documents.database import Database
from reef.documents.namespace import Namespace
from reef.environment import Environment
from reef.errors import InvalidFilter, InvalidInput, NamespaceNotFound, PastRetention
from reef.lsm.options import Options
from reef.lsm.read.ranges import Range
from reef.lsm.read.splits import SMALLEST_SPLIT, Aim, plan_ranges
from reef.spark import reading
from reef.spark.failures import unwrap
from reef.spark.keeping import Hold, kept
from reef.spark.reading import ReefPartition, read, reader_of, sized
from reef.spark.source import ReefDataSource
from reef.spark.types import arrow_schema, spark_schema, to_spark
from reef.store import CountingStore, FolderStore

START = datetime(2026, 1, 1, tzinfo=UTC)
NAN = float("nan")


def noise(number: int, length: int) -> str:
    """Text that does not compress well."""
    return Random(number).randbytes(length // 2).hex()


def document(number: int) -> dict[str, Any]:
    """A document with every type, some of it null or absent."""
    found: dict[str, Any] = {
        "id": f"k{number:05d}",
        "year": number,
        "price": NAN if number % 7 == 0 else number / 3,
        "kind": ("red", "green", "blüe")[number % 3],
        "text": noise(number, 1000),
        "data": bytes([number % 256, 255]),
        "flag": number % 2 == 0,
        "when": START + timedelta(seconds=number, microseconds=number),
        "tree": {"n": number, "list": [1, None]},
        "tags": [f"t{number % 5}", None],
        "moments": [START],
        "v": [number, 0.5, -1.0],
        "half": [number % 100, 0.25],
    }
    if number % 11 == 0:
        del found["year"]
    if number % 13 == 0:
        found["kind"] = None
        found["v"] = None
    return found


def written(namespace: Namespace) -> None:
    """Several runs, an unfolded ingest, and a log with upserts, patches and deletes."""
    namespace.load([document(n) for n in range(3000)])
    namespace.index()
    namespace.load([document(n + 10_000) | {"id": f"k{n:05d}"} for n in range(0, 3000, 3)])
    namespace.index()
    namespace.load([document(n) for n in range(2900, 3200)])
    namespace.write(
        upserts=[document(5) | {"year": -5}, {"id": "k90000", "later": 7}],
        patches=[{"id": "k00010", "year": 1_000_000}, {"id": "k00011", "kind": None}],
        deletes=["k00020", "k03100"],
    )


SCHEMA = {"v": "vector<float32, 3>", "half": "vector<float16, 2>", "year": "int64"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket with the namespace `n`; do not write to it."""
    path = tmp_path_factory.mktemp("reading") / "bucket"
    with reef.connect(path) as database:
        with database.namespace("n", maintain=False, schema=SCHEMA) as namespace:
            written(namespace)
        with database.namespace("numbers", maintain=False) as namespace:
            namespace.write(upserts=[{"id": n, "x": n} for n in (1, 7, 2**63 - 1)])
    return path


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[Path, Database]]:
    """A bucket of the test's own."""
    path = tmp_path / "bucket"
    with reef.connect(path) as database:
        yield path, database


def options_of(folder: Path, **options: object) -> dict[str, str]:
    given = {"bucket": str(folder), "namespace": "n", **options}
    return {name: str(value) for name, value in given.items()}


def tasks_of(
    options: dict[str, str],
    filters: Iterable[spark_filters.Filter] = (),
    struct: StructType | None = None,
) -> tuple[reading.ReefReader, list[InputPartition]]:
    """What the driver makes of a read, after the way to the tasks."""
    struct = ReefDataSource(options).schema() if struct is None else struct
    reader = reader_of(options, struct)
    if options.get("pushdown") == "true":
        filters = list(filters)
        assert list(reader.pushFilters(filters)) == filters
    sent = pickle.dumps(reader)
    return pickle.loads(sent), pickle.loads(pickle.dumps(list(reader.partitions())))


def table_of(reader: reading.ReefReader, partitions: list[InputPartition]) -> pa.Table:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return pa.Table.from_batches(batches, schema=reader._schema)


def local(folder: Path, columns: list[str] | None = None, **how: Any) -> pa.Table:
    """What the engine itself reads, in Spark's types."""
    at = {name: how.pop(name) for name in ("generation", "lsn", "time") if name in how}
    with reef.connect(folder) as database, database.namespace("n", "r") as namespace:
        state = namespace.at(**at) if at else namespace
        schema = arrow_schema(spark_schema(state.schema, columns))
        scan = state.scan(columns=columns, **how)
        return pa.Table.from_batches([to_spark(batch, schema) for batch in scan], schema=schema)


def same(found: pa.Table, expected: pa.Table) -> None:
    """Bit for bit, NaN included."""
    assert found.schema.equals(expected.schema)
    assert found.num_rows == expected.num_rows
    for name in expected.schema.names:
        ours, theirs = found.column(name), expected.column(name)
        if pa.types.is_float64(ours.type):
            ours = pa.chunked_array([c.view(pa.int64()) for c in ours.chunks], pa.int64())
            theirs = pa.chunked_array([c.view(pa.int64()) for c in theirs.chunks], pa.int64())
        assert ours.equals(theirs), name


# Planning and tasks


@pytest.mark.parametrize("splits", [1, 2, 7, 1000])
def test_all_splits_together_are_the_namespace(folder: Path, splits: int) -> None:
    reader, partitions = tasks_of(options_of(folder, splits=splits))
    assert len(partitions) <= splits
    assert len(partitions) >= min(splits, 4)
    same(table_of(reader, partitions), local(folder))


def test_a_subset_of_columns_in_another_order(folder: Path) -> None:
    for text in ("price, id", '["price", "id"]'):
        reader, partitions = tasks_of(options_of(folder, columns=text))
        same(table_of(reader, partitions), local(folder, ["price", "id"]))
    struct = StructType().add("kind", "string").add("later", "long")
    reader, partitions = tasks_of(options_of(folder), struct=struct)
    same(table_of(reader, partitions), local(folder, ["kind", "later"]))


@pytest.mark.parametrize(
    "text", ["year < 100", 'id >= "k01000" and id < "k01010"', "later = 7", "year = 1000000"]
)
def test_a_filter_of_reefs_own(folder: Path, text: str) -> None:
    reader, partitions = tasks_of(options_of(folder, filter=text, splits=4))
    found = table_of(reader, partitions)
    assert found.num_rows
    same(found, local(folder, filter=text))


def test_conditions_of_sparks_narrow_the_ranges(folder: Path) -> None:
    conditions = [
        spark_filters.GreaterThanOrEqual(("id",), "k01000"),
        spark_filters.LessThan(("id",), "k01010"),
        spark_filters.IsNotNull(("year",)),
    ]
    reader, partitions = tasks_of(options_of(folder, pushdown="true", splits=4), conditions)
    assert isinstance(partitions[0], ReefPartition)
    assert partitions[0].within.start == "k01000"
    assert isinstance(partitions[-1], ReefPartition)
    assert partitions[-1].within.stop == "k01010"
    found = table_of(reader, partitions)
    same(found, local(folder, filter='id >= "k01000" and id < "k01010" and year is not null'))


def test_without_the_option_conditions_of_sparks_are_left_alone(folder: Path) -> None:
    reader, _ = tasks_of(options_of(folder))
    filters: list[spark_filters.Filter] = [spark_filters.EqualTo(("id",), "k01000")]
    assert list(reader.pushFilters(filters)) == filters
    assert table_of(reader, list(reader.partitions())).num_rows > 1


def test_nothing_to_read_is_no_task(folder: Path, fresh: tuple[Path, Database]) -> None:
    for text in ('id < "a"', 'id > "zzz"', 'id = "x" and id = "y"'):
        reader, partitions = tasks_of(options_of(folder, filter=text))
        assert partitions == [], text
    path, database = fresh
    database.create("n", schema={"x": "int64"})
    reader, partitions = tasks_of(options_of(path))
    assert partitions == []
    with database.namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": "a", "x": 1}])
        namespace.index()
    assert tasks_of(options_of(path, filter="x > 1"))[1] == []
    assert len(tasks_of(options_of(path, filter="x = 1"))[1]) == 1
    # What Spark makes of that.
    assert list(reader.read(InputPartition(None))) == []


def test_a_patch_may_make_a_row_match_that_statistics_rule_out(folder: Path) -> None:
    reader, partitions = tasks_of(options_of(folder, filter="year = 1000000", columns="id"))
    assert table_of(reader, partitions).column("id").to_pylist() == ["k00010"]


def test_one_state_for_the_whole_read(fresh: tuple[Path, Database]) -> None:
    path, database = fresh
    with database.namespace("n", maintain=False, schema=SCHEMA) as namespace:
        written(namespace)
        before = local(path)
        reader, partitions = tasks_of(options_of(path, splits=3))
        first = list(reader.read(partitions[0]))
        namespace.write(deletes=[f"k{n:05d}" for n in range(1000)])
        namespace.load([document(1) | {"year": 1}], truncate=True)
        while namespace.index():
            pass
        namespace.compact(full=True)
        rest = [batch for each in partitions[1:] for batch in reader.read(each)]
        same(pa.Table.from_batches([*first, *rest]), before)
        assert table_of(*tasks_of(options_of(path))).num_rows == 1


def test_time_travel(fresh: tuple[Path, Database]) -> None:
    path, database = fresh
    with database.namespace("n", maintain=False) as namespace:
        first = namespace.write(upserts=[{"id": "a", "x": 1}]).lsn
        namespace.index()
        generation = namespace.generation
        namespace.write(upserts=[{"id": "b", "y": 2}])
        moment = datetime.now(UTC)
        namespace.load([{"id": "c", "x": 3}], truncate=True)
        for how, at in (
            ({"versionAsOf": generation}, {"generation": generation}),
            ({"lsnAsOf": first}, {"lsn": first}),
            ({"timestampAsOf": moment.isoformat()}, {"time": moment}),
            ({"timestampAsOf": moment.strftime("%Y-%m-%d %H:%M:%S.%f")}, {"time": moment}),
            ({}, {}),
        ):
            found = table_of(*tasks_of(options_of(path, **how)))
            same(found, local(path, **at))
        assert table_of(*tasks_of(options_of(path))).column("id").to_pylist() == ["c"]


BAD_OPTIONS: list[tuple[dict[str, object], type[Exception], str]] = [
    ({"namespace": "m"}, NamespaceNotFound, "there is no namespace 'm' in the bucket"),
    ({"versionAsOf": 99}, InvalidInput, "no generation 99"),
    ({"versionAsOf": "x"}, InvalidInput, "versionAsOf is a whole number from 1 on"),
    ({"lsnAsOf": 99}, InvalidInput, "LSN 99 is not written yet"),
    ({"lsnAsOf": 1, "versionAsOf": 1}, InvalidInput, "one of versionAsOf, lsnAsOf"),
    ({"timestampAsOf": "yesterday"}, InvalidInput, "timestampAsOf is a time such as"),
    ({"timestampAsOf": "1999-01-01"}, PastRetention, "before anything that is still retained"),
    ({"branch": "b"}, InvalidInput, "there is no branch 'b' of namespace 'n'"),
    ({"columns": "id,,year"}, InvalidInput, "columns is a list of names"),
    ({"columns": "[1]"}, InvalidInput, "columns is a list of names"),
    ({"columns": "[,"}, InvalidInput, "columns is a list of names"),
    ({"columns": "id,id"}, InvalidInput, "names a column twice"),
    ({"columns": "id,yaer"}, InvalidInput, "no column 'yaer'; did you mean 'year'?"),
    ({"filter": "yaer = 5"}, InvalidFilter, "no attribute 'yaer'"),
    ({"splits": 0}, InvalidInput, "splits is a whole number from 1 on"),
    ({"pushdown": "maybe"}, InvalidInput, "pushdown is true or false"),
    ({"unsignedIds": "long"}, InvalidInput, "one of bigint, decimal"),
    ({"colums": "id"}, InvalidInput, "no option 'colums'; did you mean 'columns'?"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD_OPTIONS)
def test_what_cannot_be_read(
    folder: Path, options: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        tasks_of(options_of(folder, **options))
    assert message in str(caught.value)


def test_a_schema_and_columns_that_differ(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="name different columns"):
        tasks_of(options_of(folder, columns="id"), struct=StructType().add("year", "long"))


def test_a_bucket_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    with pytest.raises(NamespaceNotFound, match=f"no namespace 'n' in the bucket '{path}'"):
        ReefDataSource(options_of(path)).schema()
    with pytest.raises(NamespaceNotFound):
        read(path, "n")
    assert not path.exists()


def test_main_is_a_branch(folder: Path) -> None:
    assert tasks_of(options_of(folder, branch="main"))[1]


def test_large_integers_as_ids(fresh: tuple[Path, Database]) -> None:
    path, database = fresh
    with database.namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": n} for n in (1, 2**63, 2**64 - 1)])
    reader, partitions = tasks_of(options_of(path))
    with pytest.raises(InvalidInput, match="does not fit into bigint"):
        table_of(reader, partitions)
    found = table_of(*tasks_of(options_of(path, unsignedIds="decimal")))
    assert [int(id) for id in found.column("id").to_pylist()] == [1, 2**63, 2**64 - 1]


# What is fetched


@pytest.fixture
def counting(fresh: tuple[Path, Database], monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    """The requests of tasks on a bucket with 20,000 documents whose years rise with their ids."""
    path, database = fresh
    with database.namespace("n", maintain=False) as namespace:
        rows = [{"id": f"{n:06d}", "year": n, "t": noise(n, 800)} for n in range(20_000)]
        namespace.load(rows)
        while namespace.index():
            pass
    counting = CountingStore(FolderStore(path))
    connected = reef.connect(counting)
    monkeypatch.setattr(reef.spark.bucket, "_database", lambda bucket, create: connected)
    reading._state.cache_clear()
    return counting


@pytest.mark.parametrize(
    "conditions",
    [
        [
            spark_filters.GreaterThanOrEqual(("id",), "010000"),
            spark_filters.LessThan(("id",), "010100"),
        ],
        [spark_filters.GreaterThan(("year",), 19_900)],
        [spark_filters.In(("year",), (17, 18))],
    ],
)
def test_only_blocks_that_can_match_are_read(
    fresh: tuple[Path, Database], counting: CountingStore, conditions: list[spark_filters.Filter]
) -> None:
    options = options_of(fresh[0], splits=4)
    reader, partitions = tasks_of(options)
    counting.reset()
    table_of(reader, partitions)
    whole = counting.reset().bytes_read
    reader, partitions = tasks_of(options | {"pushdown": "true"}, conditions)
    reading._state.cache_clear()
    counting.reset()
    found = table_of(reader, partitions)
    part = counting.counts()
    assert 0 < found.num_rows <= 100
    assert part.bytes_read < whole / 5


def test_two_columns_cost_less_than_all(
    fresh: tuple[Path, Database], counting: CountingStore
) -> None:
    costs = []
    for columns in ("id,year,t", "id,year"):
        reader, partitions = tasks_of(options_of(fresh[0], columns=columns))
        reading._state.cache_clear()
        counting.reset()
        table_of(reader, partitions)
        costs.append(counting.counts().bytes_read)
    assert costs[1] < costs[0] / 2


def test_the_log_is_replayed_once_a_process(
    fresh: tuple[Path, Database], counting: CountingStore
) -> None:
    path, database = fresh
    with database.namespace("n", maintain=False) as namespace:
        for number in range(20):
            namespace.write(upserts=[{"id": f"{number:06d}", "year": -1}])
    reader, partitions = tasks_of(options_of(path, splits=4))
    assert len(partitions) == 4
    gets = []
    for partition in partitions:
        counting.reset()
        list(reader.read(partition))
        gets.append(counting.counts().get)
    assert gets[0] > 20
    assert gets[1:] == [0, 0, 0]


def test_an_object_that_is_gone(fresh: tuple[Path, Database]) -> None:
    path, database = fresh
    with database.namespace("n", maintain=False) as namespace:
        namespace.load([document(n) for n in range(5000)])
    reader, partitions = tasks_of(options_of(path))
    segments = list((path / "namespaces/n/segments").iterdir())
    for segment in segments:
        segment.unlink()
    with pytest.raises(PastRetention, match="no longer retained"):
        table_of(reader, partitions)


# Keeping what is read


def test_where_nothing_is_retained_a_read_is_pinned(fresh: tuple[Path, Database]) -> None:
    path, database = fresh
    database.create("n", settings=Settings(retention=0, grace=0))
    with database.namespace("n", maintain=False) as namespace:
        namespace.load([document(n) for n in range(100)])
        namespace.index()
        before = local(path)
        reader, partitions = tasks_of(options_of(path))
        namespace.load([document(1)], truncate=True)
        while namespace.index():
            pass
        for _ in range(3):
            namespace.gc(apply=True)
        same(table_of(reader, partitions), before)


def test_a_long_read_renews_its_pin(fresh: tuple[Path, Database]) -> None:
    path, _ = fresh
    now = [1000.0]
    environment = Environment(now=lambda: now[0])
    with (
        reef.connect(path, environment=environment) as database,
        database.namespace("n", maintain=False) as namespace,
    ):
        namespace.load([document(n) for n in range(10)])
        tree = namespace._tree
        view = tree.view
        batches: list[pa.RecordBatch] = list(view.scan()) * 4

        def pinned() -> int:
            pins = tree.board.read().pins
            return pins["spark-test"].entered if "spark-test" in pins else 0

        seen = []
        for place, _ in enumerate(kept(batches, tree, view, Hold("spark-test", 1000.0))):
            seen.append(pinned())
            now[0] += (10.0, 1500.0, 10.0, 0.0)[place]
    assert seen[0] == seen[1] == 0
    assert seen[2] == seen[3] > 0


def test_a_short_read_publishes_nothing(folder: Path) -> None:
    manifests = sorted((folder / "namespaces/n/manifest").iterdir())
    table_of(*tasks_of(options_of(folder)))
    assert sorted((folder / "namespaces/n/manifest").iterdir()) == manifests


# Cutting


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("aim", "total", "count"),
    [
        (Aim(), 0, 1),
        (Aim(splits=3), 10, 3),
        (Aim(parallelism=8), SMALLEST_SPLIT, 1),
        (Aim(parallelism=8), 4 * SMALLEST_SPLIT, 4),
        (Aim(parallelism=8), 100 * MEGABYTE, 8),
        (Aim(parallelism=2), 300 * MEGABYTE, 6),
        (Aim(parallelism=1), 300 * MEGABYTE, 5),
        (Aim(split_bytes=10 * MEGABYTE, parallelism=4), 300 * MEGABYTE, 32),
        (Aim(split_bytes=MEGABYTE, parallelism=4), 9 * MEGABYTE, 9),
    ],
)
def test_how_many_splits(aim: Aim, total: int, count: int) -> None:
    assert aim.count(total) == count


def test_splits_are_balanced_and_disjoint(fresh: tuple[Path, Database]) -> None:
    _, database = fresh
    options = Options(segment_bytes=256 * 1024)
    with database.namespace("n", maintain=False, options=options) as namespace:
        namespace.load([{"id": f"{n:06d}", "t": noise(n, 400)} for n in range(30_000)])
        view = namespace._tree.view
        ranges = plan_ranges(view, None, Aim(splits=4), lambda calls: [call() for call in calls])
        counts = [
            sum(b.num_rows for b in view.scan(start=each.start, stop=each.stop, columns=()))
            for each in ranges
        ]
        assert sum(counts) == 30_000
        assert len(counts) == 4
        assert max(counts) < 1.5 * min(counts)
        some = plan_ranges(
            view, parse_filter('id >= "015000"'), Aim(splits=2), lambda calls: [c() for c in calls]
        )
        assert some[0].start == "015000"
        assert len(some) == 2
        assert Range("000000", "015000") not in some


def test_batches_are_neither_tiny_nor_huge() -> None:
    small = pa.RecordBatch.from_pydict({"x": list(range(10))})
    assert [batch.num_rows for batch in sized([small] * 5)] == [50]
    assert [batch.num_rows for batch in sized([])] == []
    wide = pa.RecordBatch.from_pydict({"x": ["y" * 4 * MEGABYTE] * 20})
    found = list(sized([small.slice(0, 0), wide]))[-3:]
    assert sum(batch.num_rows for batch in found) == 20
    assert max(batch.nbytes for batch in found) <= 40 * MEGABYTE


# Through Spark


def frame(spark: SparkSession, folder: Path, **options: object) -> DataFrame:
    return spark.read.format("reef").options(**options_of(folder, **options)).load()


def test_spark_reads_what_the_engine_reads(spark: SparkSession, folder: Path) -> None:
    found = frame(spark, folder, splits=3)
    expected = local(folder)
    assert found.schema == spark_schema(reef.connect(folder).namespace("n", "r").schema)
    assert found.rdd.getNumPartitions() == 3
    same(found.toArrow().cast(expected.schema), expected)
    by_hand = read(folder, "n", columns=["id", "year"], filter="year < 50", session=spark)
    same(
        by_hand.toArrow().cast(local(folder, ["id", "year"]).schema),
        local(folder, ["id", "year"], filter="year < 50"),
    )


CONDITIONS = [
    "id = 'k00500'",
    "id >= 'k00500' and id < 'k00510'",
    "id in ('k00001', 'k00010', 'nope')",
    "id like 'k0001%'",
    "id like '%99'",
    "year > 2990",
    "year = 1000000",
    "year <=> null",
    "not (year <=> 5)",
    "year is not null and year < 10",
    "year in (1, 2, null)",
    "year not in (1, 2)",
    "price > 900",
    "price >= double('NaN')",
    "price = double('NaN')",
    "price <> 1.0",
    "kind = 'blüe' and flag",
    "not flag",
    "data > X'FE00'",
    "when >= timestamp'2026-01-01 00:49:00.002940Z'",
    'tree = \'{"n":4,"list":[1,null]}\'',
    "v is null",
    "tags = array('t1', null)",
    "later = 7 or year = 3",
]


def test_conditions_mean_the_same_pushed_or_not(spark: SparkSession, folder: Path) -> None:
    columns = "id,year,price,kind,flag,data,when,tree,v,tags,later"
    plain = frame(spark, folder, columns=columns)
    answers = plain.select("id", *(expr(text) for text in CONDITIONS)).collect()
    expected = {
        (place, row[0]) for row in answers for place, kept in enumerate(row[1:]) if kept is True
    }
    # A frame for each: Spark mixes up the conditions that it pushes into one.
    found = [
        frame(spark, folder, columns=columns, pushdown="true")
        .where(text)
        .select(lit(place).alias("place"), "id")
        for place, text in enumerate(CONDITIONS)
    ]
    rows = {(row.place, row.id) for row in reduce(DataFrame.union, found).collect()}
    assert {CONDITIONS[place] for place, _ in rows ^ expected} == set()
    assert {place for place, _ in expected} == set(range(len(CONDITIONS)))


def test_one_frame_may_be_used_in_many_ways(spark: SparkSession, folder: Path) -> None:
    found = frame(spark, folder, columns="id,year")
    count = local(folder).num_rows
    assert found.where("year = 1").count() == 1
    assert found.count() == count
    both = found.where("year = 1").union(found.where("year = 2"))
    assert both.count() == 2
    assert found.where("year = 1").join(found, "id").count() == 1


def test_a_session_that_pushes_no_filters(spark: SparkSession, folder: Path) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")
    try:
        assert frame(spark, folder).where("year = 1").count() == 1
        with pytest.raises(PySparkException, match=setting):
            frame(spark, folder, pushdown="true").where("year = 1").count()
    finally:
        spark.conf.set(setting, str(before))


def test_projection_by_a_schema(spark: SparkSession, folder: Path) -> None:
    reader = spark.read.format("reef").options(**options_of(folder))
    found = reader.schema("year bigint, id string").load()
    assert found.columns == ["year", "id"]
    assert found.where("year = 7").collect() == [(7, "k00007")]
    with pytest.raises(PySparkException) as caught:
        reader.schema("id string, yaer bigint").load().count()
    wrong = unwrap(caught.value)
    assert isinstance(wrong, InvalidInput)
    assert str(wrong) == "there is no column 'yaer'; did you mean 'year'?"


def test_ids_that_are_numbers(spark: SparkSession, folder: Path) -> None:
    found = frame(spark, folder, namespace="numbers")
    assert found.where("id >= 7").orderBy("id").collect() == [(7, 7), (2**63 - 1, 2**63 - 1)]
    wide = frame(spark, folder, namespace="numbers", unsignedIds="decimal", pushdown="true")
    assert [int(row.id) for row in wide.where("id = 7").collect()] == [7]


def test_errors_on_the_driver(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        frame(spark, folder, namespace="nope")
    wrong = unwrap(caught.value)
    assert isinstance(wrong, NamespaceNotFound)
    assert str(wrong) == f"there is no namespace 'nope' in the bucket '{folder}'"
    with pytest.raises(NamespaceNotFound):
        read(folder, "nope", session=spark)
    with pytest.raises(InvalidFilter, match="'yaer'"):
        read(folder, "n", filter="yaer = 1", session=spark)
    with pytest.raises(InvalidInput, match="must have a time zone"):
        read(folder, "n", timestamp=datetime(2026, 1, 1), session=spark)

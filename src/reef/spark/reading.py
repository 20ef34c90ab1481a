"""Reading a namespace with Spark: one state of it, a range of ids a task.

The driver fixes the state and cuts it into ranges; a task gets the state's name and its range, and
reads, merges and filters by itself. Spark prunes no columns of such a source: what is read is what
the schema says, so name the columns that are needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from reef.data.filter import And, Expression
from reef.data.rows import ID
from reef.data.schema import Schema
from reef.documents.batches import parsed_filter
from reef.errors import (
    BucketNotFound,
    InvalidInput,
    NamespaceDropped,
    NamespaceNotFound,
    ObjectNotFound,
    PastRetention,
    no_namespace,
)
from reef.lsm.read.history import (
    Moment,
    moment_of,
    view_at_generation,
    view_at_lsn,
    view_at_time,
    view_of,
)
from reef.lsm.read.ranges import Range
from reef.lsm.read.splits import SPLIT_BYTES, Aim, plan_ranges
from reef.lsm.read.view import View
from reef.lsm.tree import Tree
from reef.spark.bucket import Bucket
from reef.spark.filters import pushed
from reef.spark.keeping import Hold, hold, kept
from reef.spark.options import SourceOptions
from reef.spark.types import arrow_schema, check_columns, spark_schema, to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KNOWN = (
    "versionAsOf",
    "lsnAsOf",
    "timestampAsOf",
    "branch",
    "columns",
    "filter",
    "pushdown",
    "splits",
    "splitBytes",
    "parallelism",
    "unsignedIds",
    "readChangeFeed",
)
"""versionAsOf     the state of that manifest generation
lsnAsOf         the state after that slot of the log
timestampAsOf   the state at that time: ISO 8601, or "yyyy-MM-dd HH:mm:ss"; UTC unless it says
branch          "main"
columns         the columns to read, with commas between them or as a JSON array
filter          a filter in Reef's own language, for the tasks to apply
pushdown        true to have Spark's conditions applied by the tasks too (and see below)
splits          into how many ranges to cut the read, at most
splitBytes      how many bytes of objects a range has, about
parallelism     how many tasks run at a time
unsignedIds     "bigint" or "decimal": how integer ids are shown
readChangeFeed  true for the log instead of the state

Spark 4.3 plans a frame that was loaded once, and keeps the plan of the last query that pushed
conditions down: any other use of the frame, later or in the same query, would read what those left
and miss rows. So they are left alone unless `pushdown` says that the frame is used once. A
`filter` belongs to the frame, and is safe."""

_MAIN = "main"
_SLICE_BYTES = 32 * 1024 * 1024
_GATHER_ROWS = 16_384
_GATHER_BYTES = 512 * 1024


class Asked:
    """What the options of a read ask for, checked as far as that goes without the bucket."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str] = KNOWN) -> None:
        options = SourceOptions(given, known)
        self.bucket: Bucket = options.bucket
        self.namespace: str = options.namespace
        self.generation = options.number("versionAsOf", 1)
        self.lsn = options.number("lsnAsOf")
        self.time = _time(options.text("timestampAsOf"))
        if sum(each is not None for each in (self.generation, self.lsn, self.time)) > 1:
            raise InvalidInput("give one of versionAsOf, lsnAsOf and timestampAsOf, not several")
        branch = options.text("branch")
        if branch is not None and branch != _MAIN:
            raise InvalidInput(f"there is no branch {branch!r} of namespace {self.namespace!r}")
        self.columns = _columns(options.text("columns"))
        self.filter = options.text("filter")
        self.pushdown = options.flag("pushdown", False)
        ids = options.choice("unsignedIds", ("bigint", "decimal"), "bigint")
        self.unsigned_ids = ids == "decimal"
        self.aim = Aim(
            options.number("splits", 1),
            options.number("splitBytes", 1) or SPLIT_BYTES,
            options.number("parallelism", 1) or os.cpu_count() or 1,
        )

    def open(self) -> tuple[Tree, View]:
        """The tree and the state asked for; nothing is created. `NamespaceNotFound`, or
        `PastRetention` for a state that is gone."""
        try:
            tree = self.bucket.tree(self.namespace, create=False)
            return tree, self._view(tree)
        except (BucketNotFound, NamespaceNotFound) as error:
            if isinstance(error, BucketNotFound) and "://" in self.bucket.url:
                raise
            if isinstance(error, NamespaceDropped):
                raise
            raise no_namespace(self.namespace, self.bucket.url) from None

    def _view(self, tree: Tree) -> View:
        if self.generation is not None:
            return view_at_generation(tree, self.generation)
        if self.lsn is not None:
            return view_at_lsn(tree, self.lsn)
        if self.time is not None:
            return view_at_time(tree, self.time)
        tree.recover()
        return tree.view

    def spark_schema(self, schema: Schema) -> StructType:
        """The columns asked for, or all."""
        return spark_schema(schema, self.columns, unsigned_ids=self.unsigned_ids)


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            "the option timestampAsOf is a time such as 2026-01-31 17:30:00 or"
            f" 2026-01-31T17:30:00+01:00, not {text!r}"
        ) from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _columns(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names: Any = None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = [None]
    else:
        names = [name.strip() for name in text.split(",")]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"the option columns is a list of names, not {text!r}")
    if len(set(names)) < len(names):
        raise InvalidInput(f"the option columns names a column twice: {text!r}")
    return list(names)


class ReefPartition(InputPartition):
    """A range of ids of one state."""

    def __init__(self, moment: Moment, held: Hold, within: Range) -> None:
        super().__init__((moment, within))
        self.moment = moment
        self.held = held
        self.within = within


class ReefReader(DataSourceReader):
    """Reads the columns of a Spark schema. Made on the driver, and sent to tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._asked = Asked(options)
        self._struct = schema
        self._schema: pa.Schema = arrow_schema(schema)
        self._pushed: Expression | None = None
        self._opened: tuple[Tree, View] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None}

    def _open(self) -> tuple[Tree, View]:
        if self._opened is None:
            tree, view = self._asked.open()
            check_columns(self._struct, view.schema)
            columns = self._asked.columns
            if columns is not None and columns != self._struct.names:
                raise InvalidInput("the option columns and the schema given name different columns")
            self._opened = tree, view
        return self._opened

    def _filter(self, schema: Schema) -> Expression | None:
        own = parsed_filter(self._asked.filter, schema)
        both = [each for each in (own, self._pushed) if each is not None]
        return And(tuple(both)) if len(both) > 1 else both[0] if both else None

    def partitions(self) -> Sequence[ReefPartition]:
        """Fix the state, and cut it into ranges."""
        tree, view = self._open()
        filter = self._filter(view.schema)
        try:
            ranges = plan_ranges(view, filter, self._asked.aim, tree.store.concurrently)
        except ObjectNotFound as gone:
            raise _past_retention(gone) from None
        if not ranges:
            return []
        moment, held = moment_of(view), hold(tree, view)
        return [ReefPartition(moment, held, within) for within in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in the order of their ids."""
        if not isinstance(partition, ReefPartition):
            return  # Spark makes a partition of its own where there are none.
        asked = self._asked
        tree, view = _state(asked.bucket, asked.namespace, partition.moment)
        rows = view.scan(
            start=partition.within.start,
            stop=partition.within.stop,
            columns=[name for name in self._struct.names if name != ID],
            filter=self._filter(view.schema),
        )
        try:
            held = kept(rows, tree, view, partition.held)
            yield from sized(to_spark(batch, self._schema) for batch in held)
        except ObjectNotFound as gone:
            raise _past_retention(gone) from None


class PushingReader(ReefReader):
    """Reads what Spark's conditions leave possible. For one query of a frame, and one mention of
    it there: see the option `pushdown`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what can be said of Spark's filters in Reef's way. All of them are returned: Spark
        looks again at the rows that are left, and has the last word."""
        _, view = self._open()
        self._pushed = pushed(filters, view.schema)
        return filters


def reader_of(options: Mapping[str, str], schema: StructType) -> ReefReader:
    """The reader that the options ask for."""
    reader = PushingReader if Asked(options).pushdown else ReefReader
    return reader(options, schema)


def _past_retention(gone: ObjectNotFound) -> PastRetention:
    return PastRetention(f"the state being read is no longer retained: {gone}")


@lru_cache(maxsize=2)
def _state(bucket: Bucket, namespace: str, moment: Moment) -> tuple[Tree, View]:
    """Kept for the next task of the same read: the log is replayed once a process."""
    tree = bucket.tree(namespace, create=False)
    return tree, view_of(tree, moment)


def sized(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a size that suits Spark: small ones joined, large ones cut."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        nbytes = batch.nbytes
        if nbytes > _SLICE_BYTES and batch.num_rows > 1:
            yield from _joined(held)
            held, rows, size = [], 0, 0
            step = max(1, batch.num_rows * _SLICE_BYTES // nbytes)
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)
            continue
        held.append(batch)
        rows += batch.num_rows
        size += nbytes
        if rows >= _GATHER_ROWS or size >= _GATHER_BYTES:
            yield from _joined(held)
            held, rows, size = [], 0, 0
    yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return [pa.concat_batches(batches)] if len(batches) > 1 else batches


def read(
    bucket: str | os.PathLike[str],
    namespace: str,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    version: int | None = None,
    lsn: int | None = None,
    timestamp: datetime | str | None = None,
    session: SparkSession | None = None,
    splits: int | None = None,
    storage: Mapping[str, str] | None = None,
) -> DataFrame:
    """A namespace as a DataFrame: its newest state whenever the frame is evaluated, or that of a
    manifest generation (`version`), a log slot (`lsn`) or a time.

    Only `columns` are read, and only rows that `filter` keeps, which is text in Reef's own
    language. `splits` is how many tasks read it, at most. `storage` are options of the bucket
    beyond its address. Raises what is wrong with them before anything runs.
    """
    from reef.spark.session import session as default_session

    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise InvalidInput("timestamp must have a time zone")
        timestamp = timestamp.isoformat()
    given = {
        "bucket": os.fspath(bucket),
        "namespace": namespace,
        "columns": None if columns is None else json.dumps(list(columns)),
        "filter": filter,
        "versionAsOf": version,
        "lsnAsOf": lsn,
        "timestampAsOf": timestamp,
        "splits": splits,
        **{f"storage.{name}": value for name, value in (storage or {}).items()},
    }
    options = {name: str(value) for name, value in given.items() if value is not None}
    asked = Asked(options)
    _, view = asked.open()
    parsed_filter(asked.filter, view.schema)
    struct = asked.spark_schema(view.schema)
    options["bucket"] = asked.bucket.url
    spark = session or default_session()
    return spark.read.format("reef").options(**options).schema(struct).load()

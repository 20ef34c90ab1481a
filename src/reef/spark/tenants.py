"""One DataFrame into many namespaces, by a column that names them.

Rows are divided and sorted by tenant and id, so a task has some tenants whole, and of at most two
only a part. It cuts its rows where the tenant changes and uploads each tenant's as segments of that
tenant's namespace, which it makes if it is not there. Then each tenant is committed on its own,
under the load's idempotency key. What is wrong with one tenant's rows stops that tenant only.

A load that stopped half-way is done again with the same key: tenants that were committed are
left out before any of their rows is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.ids import check_namespace_name
from reef.data.schema import Schema
from reef.documents.batches import check_idempotency_key
from reef.environment import SYSTEM
from reef.errors import (
    ConditionFailed,
    InvalidInput,
    InvalidName,
    NamespaceNotFound,
    ReefError,
    StoreError,
)
from reef.lsm.tree import Tree
from reef.lsm.write.ingest import recalled
from reef.spark.arranging import by_bytes, drop, partition_count, positions, settled_columns
from reef.spark.bucket import Bucket
from reef.spark.executor import parallelism, watched
from reef.spark.failures import Failure, spark_errors
from reef.spark.incoming import column_named, plan_incoming
from reef.spark.job import Job, Written, write_sorted
from reef.spark.loading import (
    LoadReport,
    Request,
    checked_segments,
    commit,
    create_namespace,
    known_schema,
    replayed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Item = TypeVar("Item")

_AT_ONCE = 64
_ANSWER = "tenant string, answer binary"
_ANSWER_SCHEMA = pa.schema([("tenant", pa.string()), ("answer", pa.binary())])


@dataclass(frozen=True)
class TenantsReport:
    """What became of each tenant, by name: its report, or the error that stopped it."""

    loaded: dict[str, LoadReport]
    failed: dict[str, ReefError]

    @property
    def rows(self) -> int:
        """How many rows were written, over all tenants."""
        return sum(each.rows for each in self.loaded.values() if not each.replayed)


class TenantsFailed(ReefError):
    """Some tenants of a load could not be loaded; `report` says which, and what became of the
    others, which are."""

    def __init__(self, message: str, report: TenantsReport) -> None:
        super().__init__(message)
        self.report = report


class _Outcome(msgspec.Struct, frozen=True):
    """What a commit came to, on its way to the driver."""

    report: dict[str, object] | None = None
    failure: Failure | None = None


class _Written(msgspec.Struct, frozen=True):
    """What a task uploaded for one tenant, and the schema and the slot that it went by."""

    written: Written
    schema: dict[str, object] = {}
    since: int = 0


@dataclass(frozen=True)
class _Work:
    """What every task of a load into many namespaces is told."""

    job: Job
    struct: StructType
    declared: Schema
    dimensions: dict[str, int | None]
    id_column: str
    key: str
    overwrite: bool

    def opened(self, tenant: str) -> tuple[Job, Tree]:
        """The tenant's namespace, made if it is not there, and what to do with its rows."""
        bucket = self.job.bucket
        tree = bucket.tree(tenant)
        known = known_schema(tree)
        if known is None:
            create_namespace(bucket, tenant)
            tree.refresh()
            known = tree.view.schema
        incoming = plan_incoming(
            self.struct,
            known,
            id_column=self.id_column,
            declared=self.declared,
            dimensions=self.dimensions,
            kind=self.job.incoming.kind,
        )
        return self.job.for_namespace(tenant, incoming, tree.head.manifest.generation), tree


def load_tenants(
    request: Request, bucket: Bucket, tenant_column: str, keep_tenant: bool
) -> TenantsReport:
    """Load each row into the namespace that `tenant_column` names, which is left out of the
    documents unless `keep_tenant`. See `reef.spark.load` for everything else.

    Names are checked before anything is written. If tenants failed, `TenantsFailed` is raised when
    all the others are loaded.
    """
    from pyspark.sql.types import StringType

    df = request.df
    column_named("tenant", tenant_column, df.columns)
    if tenant_column == request.id_column:
        raise InvalidInput(f"column {tenant_column!r} cannot be both the tenant and the id")
    if not isinstance(df.schema[tenant_column].dataType, StringType):
        raise InvalidInput(f"the tenant column {tenant_column!r} must be of strings")
    df, dimensions = settled_columns(
        df, Schema(), request.declared, request.id_column, request.kind, [tenant_column]
    )
    rows = df if keep_tenant else drop(df, [tenant_column])
    # Against an empty schema first: what no namespace could take is found before any task starts.
    incoming = plan_incoming(
        rows.schema,
        Schema(),
        id_column=request.id_column,
        declared=request.declared,
        dimensions=dimensions,
        kind=request.kind,
    )
    key = check_idempotency_key(request.key or f"load-{SYSTEM.unique_id()}")
    work = _Work(
        Job(bucket, "", incoming, 0, request.unique, request.absent, request.task_memory),
        rows.schema,
        request.declared,
        dimensions,
        request.id_column,
        key,
        request.mode == "overwrite",
    )
    tenants = _distinct(df, tenant_column)
    loaded: dict[str, LoadReport] = {}
    if request.key is not None:
        done = _answers(_spread(df, tenants).mapInArrow(partial(_look_up, bucket, key), _ANSWER))
        loaded = {tenant: _reported(outcome) for tenant, outcome in done.items()}
    failed: dict[str, ReefError] = {}
    rest = len(tenants) - len(loaded)
    if rest:
        # Opening a tenant takes its time, however few its rows.
        count = request.partitions or max(
            partition_count(df), min(rest, 2 * parallelism(df.sparkSession))
        )
        frame = _arranged(request, df, tenant_column, rows.columns, loaded, count)
        written = frame.mapInArrow(partial(_write, work), _ANSWER)
        cores = min(rest, parallelism(df.sparkSession))
        committed = written.repartition(cores, "tenant").sortWithinPartitions("tenant")
        with watched(df.sparkSession, "loading tenants", cores, request.progress):
            outcomes = _answers(committed.mapInArrow(partial(_commit, work), _ANSWER))
        for tenant, outcome in outcomes.items():
            if outcome.failure is not None:
                failed[tenant] = outcome.failure.error()
            else:
                loaded[tenant] = _reported(outcome)
    report = TenantsReport(dict(sorted(loaded.items())), dict(sorted(failed.items())))
    if failed:
        first, error = next(iter(report.failed.items()))
        raise TenantsFailed(
            f"{len(failed)} of {len(tenants)} tenants were not loaded; the first is {first!r}:"
            f" {error}",
            report,
        )
    return report


def _reported(outcome: _Outcome) -> LoadReport:
    return msgspec.convert(outcome.report, LoadReport)


def _distinct(df: DataFrame, tenant_column: str) -> list[str]:
    """The names of all tenants, or `InvalidName` for the first that no namespace can have."""
    frame, column = positions(df)
    with spark_errors():
        names = [
            row[0] for row in frame.select(by_bytes(df, column, tenant_column)).distinct().collect()
        ]
    if None in names:
        raise InvalidName(f"the tenant column {tenant_column!r} is null in some rows")
    for name in sorted(names):
        check_namespace_name(name)
    return names


def _spread(df: DataFrame, tenants: Sequence[str]) -> DataFrame:
    names = df.sparkSession.createDataFrame([(name,) for name in tenants], "tenant string")
    return names.repartition(min(len(tenants) or 1, parallelism(df.sparkSession)))


def _arranged(
    request: Request,
    df: DataFrame,
    tenant_column: str,
    kept: Sequence[str],
    done: Iterable[str],
    count: int,
) -> DataFrame:
    """The tenant, and then the columns that go in, by tenant, id and order; those that are done
    left out."""
    from pyspark.sql import functions as f

    frame, column = positions(df)
    tenant = by_bytes(df, column, tenant_column)
    id = by_bytes(df, column, request.id_column)
    names = list(done)
    if names:
        gone = df.sparkSession.createDataFrame([(name,) for name in names], "done string")
        frame = frame.join(f.broadcast(gone), tenant == gone["done"], "left_anti")
    order = [column[name] for name in request.order_by if name in column]
    frame = frame.repartitionByRange(count, tenant, id).sortWithinPartitions(tenant, id, *order)
    return frame.select(tenant.alias("tenant"), *(column[name] for name in kept))


def _answers(frame: DataFrame) -> dict[str, _Outcome]:
    with spark_errors():
        rows = frame.collect()
    return {row[0]: msgspec.json.decode(bytes(row[1]), type=_Outcome) for row in rows}


def _answer(answers: Iterable[tuple[str, msgspec.Struct]]) -> pa.RecordBatch:
    pairs = list(answers)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([tenant for tenant, _ in pairs], pa.string()),
            pa.array([msgspec.json.encode(answer) for _, answer in pairs], pa.binary()),
        ],
        schema=_ANSWER_SCHEMA,
    )


def _look_up(
    bucket: Bucket, key: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The tenants whose part of the load was committed before, with what it came to."""

    def look(tenant: str) -> tuple[str, _Outcome] | None:
        tree = bucket.tree(tenant)
        try:
            tree.refresh()
        except NamespaceNotFound:
            return None
        first = recalled(tree, tree.view, key)
        if first is None:
            return None
        return tenant, _Outcome(msgspec.to_builtins(replayed(tenant, first)))

    for batch in batches:
        names: list[str] = batch.column(0).to_pylist()
        for some in _chunks(names):
            found = _together(bucket, [partial(look, name) for name in some])
            yield _answer(each for each in found if each is not None)


def _write(work: _Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Upload the rows of each tenant as segments of its namespace."""
    for tenant, stretches in groupby(_stretches(batches), itemgetter(0)):
        yield _answer([(tenant, _write_tenant(work, tenant, map(itemgetter(1), stretches)))])


def _write_tenant(work: _Work, tenant: str, rows: Iterator[pa.RecordBatch]) -> _Written:
    try:
        job, tree = work.opened(tenant)
        since = tree.view.unfolded.next_lsn - 1
        written = write_sorted(job, tree, rows)
    except StoreError:
        raise
    except ReefError as error:
        return _Written(Written(failure=Failure.of(error)))
    return _Written(written, job.incoming.schema.to_dict(), since)


def _stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows cut where the tenant changes, each stretch with its tenant's name and without that
    column."""
    for batch in batches:
        if not batch.num_rows:
            continue
        tenants = batch.column(0)
        rows = batch.select(list(range(1, batch.num_columns)))
        changes = np.flatnonzero(
            pc.not_equal(tenants[1:], tenants[:-1]).to_numpy(zero_copy_only=False)
        )
        bounds = [0, *(changes + 1).tolist(), batch.num_rows]
        names = tenants.take(pa.array(bounds[:-1])).to_pylist()
        for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
            yield name, rows.slice(start, stop - start)


def _commit(work: _Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Commit each tenant of which all descriptions lie together."""
    tenants = (
        (tenant, [part for _, part in parts])
        for tenant, parts in groupby(_described(batches), itemgetter(0))
    )
    for some in _chunks(tenants):
        calls = [partial(_commit_tenant, work, tenant, parts) for tenant, parts in some]
        yield _answer(_together(work.job.bucket, calls))


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """A bounded number of items at a time."""
    source = iter(items)
    while some := list(islice(source, _AT_ONCE)):
        yield some


def _together(bucket: Bucket, calls: Sequence[Callable[[], Item]]) -> list[Item]:
    """Do independent work for several tenants at once, where the store makes one wait."""
    return bucket.database().store.concurrently(calls)


def _described(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, _Written]]:
    for batch in batches:
        for tenant, answer in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield tenant, msgspec.json.decode(answer, type=_Written)


def _commit_tenant(work: _Work, tenant: str, parts: Sequence[_Written]) -> tuple[str, _Outcome]:
    try:
        segments = checked_segments([part.written for part in parts])
        report = commit(
            work.job.bucket.tree(tenant),
            tenant,
            segments,
            Schema.from_dict(parts[0].schema),
            key=work.key,
            truncate=work.overwrite,
            absent_since=min(part.since for part in parts) if work.job.absent else None,
            skipped=sum(part.written.skipped for part in parts),
        )
    except StoreError:
        raise
    except ConditionFailed as error:
        if work.job.absent == "skip":
            message = "ids were written by others meanwhile; load this tenant again"
            return tenant, _Outcome(failure=Failure("ConcurrentPublication", message))
        return tenant, _Outcome(failure=Failure.of(error))
    except ReefError as error:
        return tenant, _Outcome(failure=Failure.of(error))
    return tenant, _Outcome(msgspec.to_builtins(report))

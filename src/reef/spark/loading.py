"""Loading a DataFrame: tasks write finished segments, and the driver commits them all at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

import msgspec

from reef.data.rows import DELETE, ID, UPSERT
from reef.data.schema import Schema
from reef.documents.batches import check_idempotency_key
from reef.documents.database import SchemaLike, declared_schema
from reef.errors import (
    ConcurrentPublication,
    ConditionFailed,
    InvalidInput,
    NamespaceExists,
    NamespaceNotFound,
)
from reef.lsm.tree import Tree
from reef.lsm.write.batch import Receipt
from reef.lsm.write.ingest import in_few_runs, ingest, recalled
from reef.segment import SegmentInfo
from reef.spark.arranging import by_bytes, partition_count, positions, settled_columns
from reef.spark.bucket import Bucket, bucket_at
from reef.spark.executor import Progress, watched
from reef.spark.failures import spark_errors
from reef.spark.incoming import column_named, plan_incoming
from reef.spark.job import REPLY, TASK_MEMORY, Job, Written, write_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reef.spark.tenants import TenantsReport

Mode = Literal["upsert", "insert", "delete", "overwrite"]

_MODES = ("upsert", "insert", "delete", "overwrite")
_ATTEMPTS = 3
_LEAST_MEMORY = 1024 * 1024


@dataclass(frozen=True)
class LoadReport:
    """What became of a load into one namespace.

    `lsn` is the slot of its ingest record: the load is what `at(lsn=…)` shows there and not one
    slot earlier. `rows` were written, `deleted` are tombstones, `skipped` were there already. A
    load whose key was used before is `replayed`: it wrote nothing, and `receipt` is the first one.
    """

    namespace: str
    lsn: int
    rows: int
    deleted: int
    skipped: int
    segments: int
    bytes: int
    replayed: bool
    receipt: Receipt


@overload
def load(
    df: DataFrame,
    bucket: str | os.PathLike[str] | Bucket,
    namespace: str,
    *,
    mode: Mode = ...,
    on_conflict: Literal["refuse", "skip"] = ...,
    id_column: str = ...,
    order_by: str | Sequence[str] | None = ...,
    duplicates: Literal["error", "last"] | None = ...,
    schema: SchemaLike | None = ...,
    key: str | None = ...,
    partitions: int | None = ...,
    storage: dict[str, str] | None = ...,
    task_memory: int = ...,
    progress: Progress | None = ...,
) -> LoadReport: ...


@overload
def load(
    df: DataFrame,
    bucket: str | os.PathLike[str] | Bucket,
    *,
    tenant_column: str,
    keep_tenant: bool = ...,
    mode: Mode = ...,
    on_conflict: Literal["refuse", "skip"] = ...,
    id_column: str = ...,
    order_by: str | Sequence[str] | None = ...,
    duplicates: Literal["error", "last"] | None = ...,
    schema: SchemaLike | None = ...,
    key: str | None = ...,
    partitions: int | None = ...,
    storage: dict[str, str] | None = ...,
    task_memory: int = ...,
    progress: Progress | None = ...,
) -> TenantsReport: ...


def load(
    df: DataFrame,
    bucket: str | os.PathLike[str] | Bucket,
    namespace: str | None = None,
    *,
    mode: Mode = "upsert",
    on_conflict: Literal["refuse", "skip"] = "refuse",
    id_column: str = ID,
    order_by: str | Sequence[str] | None = None,
    duplicates: Literal["error", "last"] | None = None,
    schema: SchemaLike | None = None,
    key: str | None = None,
    tenant_column: str | None = None,
    keep_tenant: bool = False,
    partitions: int | None = None,
    storage: dict[str, str] | None = None,
    task_memory: int = TASK_MEMORY,
    progress: Progress | None = None,
) -> LoadReport | TenantsReport:
    """Load a DataFrame into a namespace as one atomic write, whatever its size.

    Columns are checked against the namespace's schema (and `schema`, which adds to it) before any
    task starts; a namespace that is not there is made. Rows are range-partitioned and sorted by
    id by Spark, tasks write them as segments straight to the bucket, and one log record makes them
    all visible. A live writer goes on undisturbed; a load that fails leaves nothing visible.

    `mode`: "upsert" replaces documents that are there; "insert" refuses the load with
    `ConditionFailed` if one is, or leaves such rows out with `on_conflict="skip"`; "delete" deletes
    the ids, and looks at no other column; "overwrite" replaces everything that is there, and time
    travel still shows what was.

    Several rows of one id are an error; with `order_by` the last by those columns is kept (nulls
    first), unless `duplicates` says "error".

    With `key`, the load happens once however often it is called: called again with the same key
    it does nothing and returns the first receipt.

    Types are those of `reef.spark.incoming`. An array<float> that neither schema knows becomes a
    vector, of the dimension that the first one found has; if all are null the column is left out.

    With `tenant_column` each row goes into the namespace that this column names: see
    `reef.spark.tenants`. The column itself is left out unless `keep_tenant`.

    A task holds about `task_memory` bytes however large its partition is. `partitions` says how
    many tasks there are; otherwise their number follows the size that Spark estimates.
    `progress` is told what is being done, and how many parts of how many are done.
    """
    request = Request.checked(
        df,
        mode=mode,
        on_conflict=on_conflict,
        id_column=id_column,
        order_by=order_by,
        duplicates=duplicates,
        schema=schema,
        key=key,
        partitions=partitions,
        task_memory=task_memory,
        progress=progress,
    )
    where = bucket if isinstance(bucket, Bucket) else bucket_at(bucket, storage)
    if tenant_column is not None:
        if namespace is not None:
            raise InvalidInput("a load has a namespace or a tenant column, not both")
        from reef.spark.tenants import load_tenants

        return load_tenants(request, where, tenant_column, keep_tenant)
    if namespace is None:
        raise InvalidInput("no namespace was given, and no tenant column that names it")
    return _load(request, where, namespace)


@dataclass(frozen=True)
class Request:
    """What was asked for, checked as far as it can be without the bucket."""

    df: DataFrame
    mode: str
    on_conflict: str
    id_column: str
    order_by: tuple[str, ...]
    unique: bool
    declared: Schema
    key: str | None
    partitions: int | None
    task_memory: int
    progress: Progress | None

    @staticmethod
    def checked(
        df: DataFrame,
        *,
        mode: str,
        on_conflict: str,
        id_column: str,
        order_by: str | Sequence[str] | None,
        duplicates: str | None,
        schema: SchemaLike | None,
        key: str | None,
        partitions: int | None,
        task_memory: int,
        progress: Progress | None,
    ) -> Request:
        """The request, or `InvalidInput`."""
        _check_word("mode", mode, _MODES)
        _check_word("on_conflict", on_conflict, ("refuse", "skip"))
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        if duplicates is None:
            duplicates = "last" if columns else "error"
        _check_word("duplicates", duplicates, ("error", "last"))
        if duplicates == "last" and not columns:
            raise InvalidInput(
                'duplicates="last" needs order_by: rows of a DataFrame are in no order of their own'
            )
        if on_conflict == "skip" and mode != "insert":
            raise InvalidInput('on_conflict="skip" goes with mode="insert" only')
        if df.isStreaming:
            raise InvalidInput('a stream is loaded with writeStream.format("reef")')
        if partitions is not None and partitions < 1:
            raise InvalidInput(f"a load has at least 1 partition, not {partitions}")
        for column in columns:
            column_named("order", column, df.columns)
        return Request(
            df,
            mode,
            on_conflict,
            id_column,
            columns,
            duplicates == "error",
            declared_schema(schema),
            None if key is None else check_idempotency_key(key),
            partitions,
            check_task_memory(task_memory),
            progress,
        )

    @property
    def kind(self) -> int:
        """The kind of rows that are written."""
        return DELETE if self.mode == "delete" else UPSERT

    @property
    def absent(self) -> str | None:
        """What to do with ids that are there, if none may be."""
        return self.on_conflict if self.mode == "insert" else None


def check_task_memory(size: int) -> int:
    """The size, or `InvalidInput`."""
    if size < _LEAST_MEMORY:
        raise InvalidInput(f"the memory of a task is at least {_LEAST_MEMORY} bytes, not {size}")
    return size


def _check_word(name: str, word: str, allowed: Sequence[str]) -> None:
    if word not in allowed:
        raise InvalidInput(f"{name} is one of {', '.join(allowed)}, not {word!r}")


def _load(request: Request, bucket: Bucket, namespace: str) -> LoadReport:
    tree = bucket.tree(namespace)
    known = known_schema(tree)
    if known is not None and request.key is not None:
        first = recalled(tree, tree.view, request.key)
        if first is not None:
            return replayed(namespace, first)
    df, dimensions = settled_columns(
        request.df, known or Schema(), request.declared, request.id_column, request.kind
    )
    incoming = plan_incoming(
        df.schema,
        known or Schema(),
        id_column=request.id_column,
        declared=request.declared,
        dimensions=dimensions,
        kind=request.kind,
    )
    if known is None:
        create_namespace(bucket, namespace)
        tree.refresh()
    count = request.partitions or partition_count(df)
    frame = _arranged(request, df, count)
    for attempt in range(1, _ATTEMPTS + 1):
        if attempt > 1:
            tree.refresh()
        since = tree.view.unfolded.next_lsn - 1
        job = Job(
            bucket,
            namespace,
            incoming,
            tree.head.manifest.generation,
            request.unique,
            request.absent,
            request.task_memory,
        )
        what = f"load into {namespace}"
        with spark_errors(), watched(frame.sparkSession, what, count, request.progress):
            replies = frame.mapInArrow(partial(write_partition, job), REPLY).collect()
        written = [msgspec.json.decode(bytes(row[0]), type=Written) for row in replies]
        segments = checked_segments(written)
        try:
            return commit(
                tree,
                namespace,
                segments,
                incoming.schema,
                key=request.key,
                truncate=request.mode == "overwrite",
                absent_since=since if request.absent is not None else None,
                skipped=sum(part.skipped for part in written),
            )
        except ConditionFailed:
            if request.absent != "skip":
                raise
    raise ConcurrentPublication(
        f"ids of the load were written to {namespace!r} by others in each of {_ATTEMPTS} attempts;"
        " nothing was loaded"
    )


def known_schema(tree: Tree) -> Schema | None:
    """The schema of a namespace as it is now, None if there is no such namespace."""
    try:
        tree.refresh()
    except NamespaceNotFound:
        return None
    return tree.view.schema


def create_namespace(bucket: Bucket, namespace: str) -> None:
    """Make an empty namespace, if nobody else did meanwhile."""
    with suppress(NamespaceExists):
        bucket.database().create(namespace)


def checked_segments(written: Sequence[Written]) -> list[SegmentInfo]:
    """The segments of all tasks as one run, or the first error that a task reports."""
    failures = [part.failure for part in written if part.failure is not None]
    if failures:
        conflicts = [failure for failure in failures if failure.kind == "ConditionFailed"]
        raise (failures if len(conflicts) < len(failures) else conflicts)[0].error()
    segments = in_few_runs(info for part in written for info in part.segments)
    if len({info.run for info in segments}) > 1:
        raise InvalidInput(
            "the DataFrame gave other rows when a part of it was computed again; write it to"
            " files, or checkpoint it, and load that"
        )
    return segments


def commit(
    tree: Tree,
    namespace: str,
    segments: Sequence[SegmentInfo],
    schema: Schema,
    *,
    key: str | None,
    truncate: bool,
    absent_since: int | None = None,
    skipped: int = 0,
) -> LoadReport:
    """Make uploaded segments visible with one log record. Without any there is nothing to write,
    unless they are to replace what is there."""
    if not segments and not truncate:
        tree.refresh()
        receipt = Receipt(tree.view.unfolded.next_lsn - 1)
        return LoadReport(namespace, receipt.lsn, 0, 0, skipped, 0, 0, False, receipt)
    try:
        receipt = ingest(
            tree, segments, schema, key=key, truncate=truncate, absent_since=absent_since
        )
    except ConcurrentPublication:
        raise ConcurrentPublication(
            f"the load into {namespace!r} took so long that its segments were collected as orphans;"
            " nothing of it is visible: run it again, or give the namespace a longer grace period"
        ) from None
    deleted = sum(info.tombstones for info in segments)
    rows = sum(info.rows for info in segments) - deleted
    if key is not None and not _is_in(tree, receipt.lsn, segments):
        return replayed(namespace, receipt)
    size = sum(info.size for info in segments)
    return LoadReport(
        namespace, receipt.lsn, rows, deleted, skipped, len(segments), size, False, receipt
    )


def _is_in(tree: Tree, lsn: int, segments: Sequence[SegmentInfo]) -> bool:
    """Whether that slot names these very segments: a key may have been used in the meantime."""
    unfolded = tree.view.unfolded
    if not segments:
        return unfolded.truncated_at == lsn
    named = {info.id for info in unfolded.named if info.lsn == lsn}
    return segments[0].id in named


def replayed(namespace: str, first: Receipt) -> LoadReport:
    """The report of a load whose key was used before."""
    return LoadReport(namespace, first.lsn, first.upserted, first.deleted, 0, 0, 0, True, first)


def _arranged(request: Request, df: DataFrame, count: int) -> DataFrame:
    """The columns that go in, range-partitioned by id, and sorted by id and then by order."""
    frame, column = positions(df)
    id = by_bytes(df, column, request.id_column)
    order = [column[name] for name in request.order_by if name in column]
    return frame.repartitionByRange(count, id).sortWithinPartitions(id, *order)

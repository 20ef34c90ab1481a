"""Writing through `df.write.format("reef")` and `df.writeStream.format("reef")`.

Spark hands a data source its rows as they lie, in no order and not divided by id. So each task
sorts its own, in bounded memory, and uploads them as a run; the commit sees to it that no id is
in two of them, reading nothing but ids where runs overlap. `reef.spark.load` has Spark divide and
sort the rows, which leaves one run and nothing to check: it is the way for large loads.

Options besides `bucket`, `namespace` and `storage.*`:

    operation        upsert (the default), insert or delete
    onConflict       of an insert: refuse (the default) or skip ids that are there
    idColumn         which column holds ids, if not id
    orderBy          of several rows of an id, the one that is last by this column of integers or
                     timestamps is kept
    duplicates       error or last; error unless there is an orderBy
    schema           attribute types to add, as in "embedding vector<float32, 32>, meta json"
    txnAppId, txnVersion    together name a write that happens once, however often it is done;
                     a stream needs neither, and txnAppId names one that goes on under another
                     checkpoint
    taskMemory       bytes that a task may hold, about

A write that fails, is aborted, or whose answer is lost deletes nothing: the commit may have
happened, or may yet, and a segment that is not named by the log is an orphan that GC removes once
it can tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from reef.data.rows import DELETE, ID, LSN_FIELD, UPSERT, with_lsn
from reef.data.schema import Schema
from reef.documents.batches import check_idempotency_key
from reef.documents.database import declared_schema
from reef.errors import ConcurrentPublication, ConditionFailed, InvalidInput
from reef.lsm.read.merge import merge
from reef.lsm.read.view import Run, runs_of
from reef.lsm.tree import Tree
from reef.lsm.write.duplicates import duplicate_ids
from reef.lsm.write.ingest import in_few_runs, recalled
from reef.lsm.write.sorting import Sorter, ids_of_run, refuse_duplicates
from reef.lsm.write.upload import upload_segments
from reef.segment import SegmentInfo
from reef.spark.distinct import OnlyNew
from reef.spark.failures import Failure
from reef.spark.incoming import column_named, plan_incoming
from reef.spark.job import TASK_MEMORY, Job, Written, segment_bytes
from reef.spark.loading import LoadReport, check_task_memory, commit, create_namespace, known_schema
from reef.spark.options import SourceOptions

KNOWN = (
    "operation",
    "onConflict",
    "idColumn",
    "orderBy",
    "duplicates",
    "schema",
    "txnAppId",
    "txnVersion",
    "taskMemory",
    "tenantColumn",
)
_ORDERS = ("int64", "timestamp")
# Rows in hand, the same rows in one piece, and what is being made of them.
_COPIES = 4
_ATTRIBUTE = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s+([^,<]+(?:<[^>]*>)?)\s*(?:,|$)")


class Message(WriterCommitMessage):
    """What a task tells the commit."""

    def __init__(self, written: Written, query: str | None = None) -> None:
        self._encoded = msgspec.json.encode(written)
        self.query = query

    @property
    def written(self) -> Written:
        """What the task uploaded, or what is wrong with its rows."""
        return msgspec.json.decode(self._encoded, type=Written)


@dataclass(frozen=True)
class Writing:
    """What the options ask for, checked against the namespace. Sent to tasks."""

    job: Job
    order: str | None
    overwrite: bool
    app: str | None
    version: str | None
    since: int | None
    done: bool

    def write(self, batches: Iterable[pa.RecordBatch], *, born_now: bool = False) -> Written:
        """The work of one task: sort its rows, and upload them as one run.

        All tasks of a write share the birth that was planned: as long as one of them uploads, a
        collector leaves them all alone. A stream is planned once and goes on for good: its
        segments are `born_now`.
        """
        if self.done:
            return Written()
        job, incoming = self.job, self.job.incoming
        tree = job.bucket.tree(job.namespace)
        tree.refresh()
        unique = job.unique and incoming.kind != DELETE
        only_new: OnlyNew | None = None
        try:
            with Sorter(
                tree.environment, stretch_bytes=job.task_memory // _COPIES, unique=unique
            ) as sorter:
                for batch in incoming.rows(batches):
                    order = order_of(batch, self.order) if self.order is not None else 0
                    sorter.add(order, batch, incoming.schema)
                rows = sorter.rows(incoming.schema)
                if job.absent is not None:
                    only_new = OnlyNew(tree.view, skip=job.absent == "skip")
                    rows = only_new(rows)
                birth = tree.head.manifest.generation if born_now else job.birth
                segments = upload(tree, rows, incoming.schema, job.task_memory, birth)
        except (InvalidInput, ConditionFailed) as error:
            return Written(failure=Failure.of(error))
        return Written(tuple(segments), only_new.skipped if only_new is not None else 0)

    def commit(self, parts: Sequence[Written], key: str | None) -> LoadReport | None:
        """Make what the tasks uploaded visible, all at once; None if it was done before."""
        if self.done:
            return None
        failure = next((part.failure for part in parts if part.failure is not None), None)
        if failure is not None:
            raise failure.error()
        job = self.job
        tree = job.bucket.tree(job.namespace)
        tree.refresh()
        if key is not None and recalled(tree, tree.view, key) is not None:
            return None
        segments = self._settled(tree, [info for part in parts for info in part.segments])
        skipped = sum(part.skipped for part in parts)
        try:
            return commit(
                tree,
                job.namespace,
                segments,
                job.incoming.schema,
                key=key,
                truncate=self.overwrite,
                absent_since=self.since,
                skipped=skipped,
            )
        except ConditionFailed:
            if job.absent != "skip":
                raise
            raise ConcurrentPublication(
                f"ids of this write were written to {job.namespace!r} by others meanwhile; nothing"
                " was written, so do it again"
            ) from None

    def _settled(self, tree: Tree, uploaded: Sequence[SegmentInfo]) -> list[SegmentInfo]:
        """The segments of all tasks so that every id is in them once."""
        job = self.job
        segments = in_few_runs(uploaded)
        runs = runs_of(segments, tree.reader_of)
        if len(runs) < 2:
            return segments
        again = duplicate_ids([ids_of_run(run) for run in runs])
        if not again:
            return segments
        if job.unique and job.incoming.kind != DELETE:
            refuse_duplicates(again)
        merged = merge([self._ordered(run) for run in runs], keep_tombstones=True)
        rows = (with_lsn(batch, 0) for batch in merged)
        birth = tree.head.manifest.generation
        return upload(tree, rows, job.incoming.schema, job.task_memory, birth)

    def _ordered(self, run: Run) -> Iterator[pa.RecordBatch]:
        """Rows of a run, as new as their order says."""
        for batch in run.rows():
            if self.order is None:
                yield batch
            else:
                place = batch.schema.get_field_index(LSN_FIELD.name)
                order = pa.array(order_of(batch, self.order))
                yield batch.set_column(place, LSN_FIELD, order)


def order_of(rows: pa.RecordBatch, column: str) -> np.ndarray:
    """A column of integers or timestamps as unsigned integers in the same order, nulls first."""
    place = rows.schema.get_field_index(column)
    if place < 0:
        return np.zeros(rows.num_rows, np.uint64)
    signed = rows.column(place).cast(pa.int64()).fill_null(-(2**63))
    return np.asarray(signed).view(np.uint64) ^ np.uint64(1 << 63)


def upload(
    tree: Tree, rows: Iterable[pa.RecordBatch], schema: Schema, task_memory: int, birth: int
) -> list[SegmentInfo]:
    """Write sorted rows as a run."""
    return upload_segments(
        rows,
        schema,
        store=tree.store,
        environment=tree.environment,
        birth=birth,
        level=0,
        target_bytes=segment_bytes(task_memory, tree),
    )


def plan_writing(given: Mapping[str, str], struct: StructType, overwrite: bool) -> Writing:
    """Check the options, and the columns against the namespace, which is made if it is not there.

    Raises `InvalidInput` or one of its children; nothing has been written then.
    """
    options = SourceOptions(given, KNOWN)
    if "tenantColumn" in options:
        raise InvalidInput(
            "a write goes to one namespace; reef.spark.load(df, bucket, tenant_column=…) fans a"
            " DataFrame out to many"
        )
    bucket, namespace = options.bucket, options.namespace
    operation = options.choice("operation", ("upsert", "insert", "delete"), "upsert")
    conflict = options.choice("onConflict", ("refuse", "skip"), "refuse")
    if overwrite and operation != "upsert":
        raise InvalidInput(f'the operation {operation} goes with mode("append"), not "overwrite"')
    if conflict == "skip" and operation != "insert":
        raise InvalidInput("the option onConflict goes with the operation insert only")
    order = options.text("orderBy")
    duplicates = options.choice("duplicates", ("error", "last"), "last" if order else "error")
    if duplicates == "last" and order is None:
        raise InvalidInput(
            "duplicates=last needs orderBy: rows of a DataFrame are in no order of their own"
        )
    app, version = options.text("txnAppId"), options.text("txnVersion")
    task_memory = check_task_memory(options.number("taskMemory") or TASK_MEMORY)
    id_column = options.text("idColumn") or ID
    tree = bucket.tree(namespace)
    known = known_schema(tree)
    incoming = plan_incoming(
        struct,
        known or Schema(),
        id_column=id_column,
        declared=declared_schema(parse_schema(options.text("schema") or "")),
        kind=DELETE if operation == "delete" else UPSERT,
    )
    if order is not None and operation != "delete":
        column_named("order", order, struct.names)
        kind = incoming.schema.attributes.get(order)
        if kind is None or str(kind) not in _ORDERS:
            raise InvalidInput(
                f"the option orderBy names a column of integers or timestamps, and {order!r} is"
                f" {kind or 'the id'}; reef.spark.load orders by any"
            )
    if known is None:
        create_namespace(bucket, namespace)
        tree.refresh()
    job = Job(
        bucket,
        namespace,
        incoming,
        tree.head.manifest.generation,
        duplicates == "error",
        conflict if operation == "insert" else None,
        task_memory,
    )
    return Writing(
        job,
        order if operation != "delete" and duplicates == "last" else None,
        overwrite,
        app,
        version,
        tree.view.unfolded.next_lsn - 1 if operation == "insert" else None,
        False,
    )


def parse_schema(text: str) -> dict[str, str]:
    """Attribute types from text such as "embedding vector<float32, 32>, meta json"."""
    found: dict[str, str] = {}
    place = 0
    while place < len(text.rstrip()):
        match = _ATTRIBUTE.match(text, place)
        if match is None:
            raise InvalidInput(
                "the option schema is names and types, as in"
                f' "embedding vector<float32, 32>, meta json", not {text!r}'
            )
        found[match[1] or match[2]] = match[3].strip()
        place = match.end()
    return found


class ReefWriter(DataSourceArrowWriter):
    """One write as one commit. Made on the driver, and sent to tasks and to the commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        writing = plan_writing(options, schema, overwrite)
        if (writing.app is None) != (writing.version is None):
            raise InvalidInput("txnAppId and txnVersion go together, and one of them is missing")
        self._key: str | None = None
        if writing.app is not None:
            self._key = check_idempotency_key(f"{writing.app}:{writing.version}")
            tree = writing.job.bucket.tree(writing.job.namespace)
            tree.refresh()
            done = recalled(tree, tree.view, self._key) is not None
            writing = replace(writing, done=done)
        self._writing = writing

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """What a task does with its rows."""
        return Message(self._writing.write(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make it all visible with one log record."""
        self._writing.commit(_written(messages), self._key)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what is not committed is invisible, and what may be must not be deleted."""


class ReefStreamWriter(DataSourceStreamArrowWriter):
    """Each batch of a stream as one commit, once, however often it is replayed.

    Exactly once rests on the idempotency window of the namespace, a day by default: a query that
    was stopped in the middle of a commit is to be started again within it.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._writing = plan_writing(options, schema, overwrite)
        if self._writing.version is not None:
            raise InvalidInput("a stream numbers its batches itself: give txnAppId alone, or none")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """What a task does with its rows of a batch."""
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        return Message(self._writing.write(iterator, born_now=True), query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the batch visible with one log record. An empty one costs nothing."""
        stream = self._writing.app or next(
            (each.query for each in messages if isinstance(each, Message) and each.query), None
        )
        if stream is None:
            raise InvalidInput("the query has no id to tell its batches by: set txnAppId")
        key = check_idempotency_key(f"{stream}:{batchId}")
        self._writing.commit(_written(messages), key)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what is not committed is invisible, and what may be must not be deleted."""


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [message.written for message in messages if isinstance(message, Message)]

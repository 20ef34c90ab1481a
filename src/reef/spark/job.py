"""A load as its tasks see it: what they are told, what they do, and what they hand back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from reef.data.rows import DELETE, with_lsn
from reef.errors import ConditionFailed, InvalidInput
from reef.lsm.tree import Tree
from reef.lsm.write.upload import upload_segments
from reef.segment import SegmentInfo
from reef.spark.bucket import Bucket
from reef.spark.distinct import OnlyNew, last_of_each_id
from reef.spark.failures import Failure
from reef.spark.incoming import Incoming

TASK_MEMORY = 128 * 1024 * 1024
# A segment being encoded, one on its way to the bucket, and one waiting for that.
_SEGMENTS_AT_ONCE = 3

REPLY = "reply binary"
"""The one column of what tasks hand back."""

_REPLY_SCHEMA = pa.schema([("reply", pa.binary())])


@dataclass(frozen=True)
class Job:
    """What every task of a load is told.

    `birth` is the manifest generation that its segments are born in. With `unique` a second row
    of an id is an error, otherwise the last one counts. `absent` is "refuse" or "skip" if no id may
    be there already.
    """

    bucket: Bucket
    namespace: str
    incoming: Incoming
    birth: int
    unique: bool
    absent: str | None = None
    task_memory: int = TASK_MEMORY

    def for_namespace(self, namespace: str, incoming: Incoming, birth: int) -> Job:
        """The same for another namespace."""
        return replace(self, namespace=namespace, incoming=incoming, birth=birth)


class Written(msgspec.Struct, frozen=True):
    """What a task hands back: descriptions of what it uploaded, or what is wrong with its rows."""

    segments: tuple[SegmentInfo, ...] = ()
    skipped: int = 0
    failure: Failure | None = None


def write_partition(job: Job, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of one task: rows that come sorted by id and order, as segments in the bucket."""
    tree = job.bucket.tree(job.namespace)
    yield as_reply(write_sorted(job, tree, batches))


def write_sorted(job: Job, tree: Tree, batches: Iterable[pa.RecordBatch]) -> Written:
    """Convert, check and upload sorted rows, a bounded stretch of them in memory at a time.

    What is wrong with the rows comes back as a value; other errors are raised.
    """
    rows = last_of_each_id(
        job.incoming.rows(batches), unique=job.unique and job.incoming.kind != DELETE
    )
    only_new: OnlyNew | None = None
    try:
        if job.absent is not None:
            tree.refresh()
            only_new = OnlyNew(tree.view, skip=job.absent == "skip")
            rows = only_new(rows)
        segments = upload_segments(
            (with_lsn(batch, 0) for batch in rows),
            job.incoming.schema,
            store=tree.store,
            environment=tree.environment,
            birth=job.birth,
            level=0,
            target_bytes=segment_bytes(job.task_memory, tree),
        )
    except (InvalidInput, ConditionFailed) as error:
        return Written(failure=Failure.of(error))
    return Written(tuple(segments), only_new.skipped if only_new is not None else 0)


def segment_bytes(task_memory: int, tree: Tree) -> int:
    """How large segments may get for a task to stay within its memory."""
    return min(tree.options.segment_bytes, max(1, task_memory // _SEGMENTS_AT_ONCE))


def as_reply(written: msgspec.Struct) -> pa.RecordBatch:
    """What a task hands back, as a batch of one row."""
    reply = pa.array([msgspec.json.encode(written)], pa.binary())
    return pa.RecordBatch.from_arrays([reply], schema=_REPLY_SCHEMA)

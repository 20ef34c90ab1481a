"""An executor of Spark tasks: each does one part of a job and returns what it wrote."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from reef.environment import SYSTEM
from reef.errors import ReefError, StoreUnavailable
from reef.lsm.options import Options
from reef.lsm.tree import Tree
from reef.spark.bucket import Bucket
from reef.spark.failures import Failure, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = TypeVar("Part")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""LogSummary what is being done, how many parts of how many are done."""

_LOOK_EVERY = 0.5


class SparkExecutor:
    """Tasks of a Spark session at work on one namespace."""

    def __init__(
        self,
        session: SparkSession,
        bucket: Bucket,
        namespace: str,
        *,
        options: Options | None = None,
        progress: Progress | None = None,
        size: int | None = None,
    ) -> None:
        self._session = session
        self._bucket = bucket
        self._namespace = namespace
        self._options = options or Options()
        self._progress = progress
        self.size = size or parallelism(session)

    def __call__(
        self,
        work: Callable[[Tree, Part], Result],
        parts: Sequence[Part],
        what: str,
    ) -> list[Result]:
        """Send each part to a task of its own, and wait for all of them.

        What is wrong with the data is found once and raised here; a bucket that does not answer is
        for Spark to try again.
        """
        if not parts:
            return []
        task = _Task(self._bucket, self._namespace, self._options, pickle.dumps(work))
        sent = pa.table(
            {
                "number": pa.array(range(len(parts)), pa.int32()),
                "part": pa.array([pickle.dumps(part) for part in parts], pa.binary()),
            }
        )
        frame = self._session.createDataFrame(sent)
        frame = frame.repartitionById(len(parts), "number")
        with spark_errors(), watched(self._session, what, len(parts), self._progress):
            done = frame.mapInArrow(task, "number int, result binary").toArrow()
        results: list[Result] = [None] * len(parts)  # type: ignore[list-item]
        for number, data in zip(
            done.column("number").to_pylist(), done.column("result").to_pylist(), strict=True
        ):
            result = pickle.loads(data)
            if isinstance(result, Failure):
                raise result.error()
            results[number] = result
        return results


@contextmanager
def watched(session: SparkSession, what: str, parts: int, tell: Progress | None) -> Iterator[None]:
    """Tell how many tasks of the job that is run meanwhile are done."""
    from pyspark.sql.utils import is_remote

    if tell is None:
        yield
        return
    tell(what, 0, parts)
    if is_remote():
        yield
        tell(what, parts, parts)
        return
    tag = f"reef-{SYSTEM.nonce()}"
    ended = Event()

    def watch() -> None:
        seen = 0
        while not ended.wait(_LOOK_EVERY):
            done = min(parts, _tasks_done(session, tag))
            if done > seen:
                seen = done
                tell(what, done, parts)

    watcher = Thread(target=watch, name=tag, daemon=True)
    session.sparkContext.addJobTag(tag)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        session.sparkContext.removeJobTag(tag)
    tell(what, parts, parts)


class _Task:
    """What a task does with the parts that it is sent. Sent along with them."""

    def __init__(self, bucket: Bucket, namespace: str, options: Options, work: bytes) -> None:
        self._bucket = bucket
        self._namespace = namespace
        self._options = options
        self._work = work

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work = pickle.loads(self._work)
        for batch in batches:
            for number, data in zip(
                batch.column("number").to_pylist(), batch.column("part").to_pylist(), strict=True
            ):
                tree = self._bucket.tree(self._namespace, self._options, create=False)
                result: object
                try:
                    result = work(tree, pickle.loads(data))
                except StoreUnavailable:
                    raise
                except ReefError as error:
                    result = Failure.of(error)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number], pa.int32()),
                        pa.array([pickle.dumps(result)], pa.binary()),
                    ],
                    names=["number", "result"],
                )


def parallelism(session: SparkSession) -> int:
    """How many tasks of a session run at a time."""
    from pyspark.sql.utils import is_remote

    if is_remote():
        return int(session.conf.get("spark.default.parallelism", "8") or 8)
    return max(1, session.sparkContext.defaultParallelism)


def _tasks_done(session: SparkSession, tag: str) -> int:
    """How many tasks of the jobs with that tag have ended, as far as the driver can tell."""
    context = session.sparkContext
    tracker = context.statusTracker()
    done = 0
    for job in context._jsc.sc().statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        stages = [tracker.getStageInfo(stage) for stage in info.stageIds] if info else []
        # The last stage does the work; those before it hand out the parts.
        done += max((stage.numCompletedTasks for stage in stages[-1:] if stage), default=0)
    return done

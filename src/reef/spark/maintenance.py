"""Upkeep on a cluster: folding, compaction, rebuilding and verification.

Each is the plan that the local command makes, with its parts done by tasks. The driver plans from
the manifest and publishes once; only descriptions of parts and of what they wrote pass through it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reef.errors import BucketNotFound, no_namespace
from reef.lsm.options import Options
from reef.lsm.repair.rebuild import Rebuilt
from reef.lsm.repair.rebuild import rebuild as rebuild_tree
from reef.lsm.repair.verify import Report
from reef.lsm.repair.verify import verify as verify_tree
from reef.lsm.retention.collect import list_objects
from reef.lsm.tree import Tree
from reef.lsm.upkeep.compact import Compacted
from reef.lsm.upkeep.compact import compact as compact_tree
from reef.lsm.upkeep.fold import Folded, fold_from_log
from reef.spark.bucket import bucket_at
from reef.spark.executor import Progress, SparkExecutor
from reef.spark.session import session as start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Address = str | os.PathLike[str]
Storage = Mapping[str, str]


def fold(
    bucket: Address,
    namespace: str,
    *,
    everything: bool = True,
    session: SparkSession | None = None,
    storage: Storage | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> list[Folded]:
    """Fold the log into segments, a stretch at a time until what was there at the start is folded
    (one stretch, if not `everything`). Returns what each pass did. The live writer goes on."""
    with at_work(bucket, namespace, session, storage, options, progress) as (tree, executor):
        tree.refresh()
        until = tree.view.unfolded.next_lsn - 1
        passes: list[Folded] = []
        while (folded := fold_from_log(tree, executor=executor)) is not None:
            passes.append(folded)
            if not everything or folded.last >= until:
                break
        return passes


def compact(
    bucket: Address,
    namespace: str,
    *,
    full: bool = False,
    everything: bool = False,
    session: SparkSession | None = None,
    storage: Storage | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> list[Compacted]:
    """Merge runs: one pass that is worth doing, all of them if `everything`, all runs into one if
    `full`. `ConcurrentPublication` if another compactor took over meanwhile; what was written is
    an orphan then."""
    with at_work(bucket, namespace, session, storage, options, progress) as (tree, executor):
        passes: list[Compacted] = []
        while (done := compact_tree(tree, full=full, executor=executor)) is not None:
            passes.append(done)
            if full or not everything:
                break
        return passes


def rebuild(
    bucket: Address,
    namespace: str,
    *,
    session: SparkSession | None = None,
    storage: Storage | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Rebuilt:
    """Make all segments anew from what the bucket holds."""
    with at_work(bucket, namespace, session, storage, options, progress) as (tree, executor):
        return rebuild_tree(tree, name=namespace, progress=progress, executor=executor)


def verify(
    bucket: Address,
    namespace: str,
    *,
    deep: bool = True,
    session: SparkSession | None = None,
    storage: Storage | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check everything that the namespace relies on; with `deep` every block of every segment."""
    with at_work(bucket, namespace, session, storage, options, progress) as (tree, executor):
        return verify_tree(tree, deep=deep, progress=progress, executor=executor)


@contextmanager
def at_work(
    bucket: Address,
    namespace: str,
    session: SparkSession | None,
    storage: Storage | None,
    options: Options | None,
    progress: Progress | None,
) -> Iterator[tuple[Tree, SparkExecutor]]:
    """The namespace's tree on the driver, and an executor for it. A damaged namespace is fine, one
    that is not there is `NamespaceNotFound`."""
    there = bucket_at(bucket, dict(storage or {}))
    try:
        tree = there.tree(namespace, options, create=False)
        is_there = bool(list_objects(tree))
    except BucketNotFound:
        is_there = False
    if not is_there:
        raise no_namespace(namespace, there.url)
    executor = SparkExecutor(
        session or start_session(), there, namespace, options=options, progress=progress
    )
    yield tree, executor

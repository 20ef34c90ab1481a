"""Rewriting: segments merged into fresh ones of a single run, a range of ids at a time.

Compaction and rebuilding are this. The ranges are disjoint, so they can be done anywhere and in any
order, and what they write is one run all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from reef.data.schema import Schema
from reef.errors import Closed
from reef.lsm.read.merge import merge
from reef.lsm.read.ranges import WHOLE, Range, split_ranges, weigh
from reef.lsm.read.view import runs_of
from reef.lsm.tree import Tree
from reef.lsm.upkeep.executor import Executor
from reef.lsm.upkeep.tombstones import tombstone_filter
from reef.lsm.write.upload import upload_segments
from reef.segment import SegmentInfo

_SMALLEST_PART = 4 * 1024 * 1024
_LARGEST_PART = 512 * 1024 * 1024


@dataclass(frozen=True)
class Rewrite:
    """A part of the work: the rows of `inputs` with ids `within` a range, as segments of `run`.

    `older` are segments that may hold older versions: tombstones of ids in them stay. All of them
    go where it is None, for there is nothing below.
    """

    inputs: tuple[SegmentInfo, ...]
    older: tuple[SegmentInfo, ...] | None
    schema: Schema
    birth: int
    level: int
    run: str
    within: Range


def rewrite(
    tree: Tree,
    executor: Executor,
    inputs: Sequence[SegmentInfo],
    older: Sequence[SegmentInfo] | None,
    *,
    schema: Schema,
    birth: int,
    level: int,
    what: str,
) -> list[SegmentInfo]:
    """Merge the inputs into one fresh run, which nothing refers to yet."""
    run = tree.environment.unique_id()
    parts = [
        Rewrite(
            tuple(info for info in inputs if within.touches(info)),
            None if older is None else tuple(info for info in older if within.touches(info)),
            schema,
            birth,
            level,
            run,
            within,
        )
        for within in _ranges(tree, inputs, executor.size)
    ]
    return [info for written in executor(do_part, parts, what) for info in written]


def _ranges(tree: Tree, inputs: Sequence[SegmentInfo], size: int) -> list[Range]:
    """One range if parts are done one by one; otherwise as many as keep all busy, none of them tiny
    and none so large that the others wait for it."""
    total = sum(info.size for info in inputs)
    if size <= 1:
        return [WHOLE]
    count = max(size, -(-total // _LARGEST_PART))
    count = max(1, min(count, total // _SMALLEST_PART))
    return split_ranges(weigh(inputs, count, tree.reader_of), count)


def do_part(tree: Tree, part: Rewrite) -> list[SegmentInfo]:
    """Write one range."""
    return upload_segments(
        _rows(tree, part),
        part.schema,
        store=tree.store,
        environment=tree.environment,
        birth=part.birth,
        level=part.level,
        target_bytes=tree.options.segment_bytes,
        run=part.run,
    )


def _rows(tree: Tree, part: Rewrite) -> Iterator[pa.RecordBatch]:
    runs = runs_of(part.inputs, tree.reader_of)
    sources = [run.rows(part.within) for run in runs]
    filters = (tombstone_filter(part.older),) if part.older is not None else ()
    for batch in merge(sources, keep_tombstones=part.older is not None, filters=filters):
        if tree.closing:
            raise Closed("the work was given up because the namespace is being closed")
        yield batch

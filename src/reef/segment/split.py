"""Cutting one sorted stream of rows into segments of about one size, with disjoint id ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from reef.data.schema import Schema
from reef.segment.info import SegmentInfo
from reef.segment.writer import GROUP_BYTES, SegmentWriter, Start
from reef.store.contract import Buffer

SEGMENT_BYTES = 64 * 1024 * 1024
_GROUPS_AT_ONCE = 4


def split_segments(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    target_bytes: int = SEGMENT_BYTES,
    *,
    make_id: Callable[[], str],
    birth: int,
    run: str,
    level: int,
    group_bytes: int = GROUP_BYTES,
    compression_level: int = 1,
    start: Start | None = None,
) -> Iterator[tuple[list[Buffer], SegmentInfo]]:
    """Yield each finished segment, at most one at a time in memory besides the batch at hand."""

    def new(after: str | int | None) -> SegmentWriter:
        return SegmentWriter(
            schema,
            group_bytes=group_bytes,
            compression_level=compression_level,
            after=after,
            start=start,
        )

    def finished(writer: SegmentWriter) -> tuple[list[Buffer], SegmentInfo]:
        return writer.finish(id=make_id(), birth=birth, run=run, level=level)

    writer = new(None)
    stride = min(_GROUPS_AT_ONCE, max(1, target_bytes // (8 * group_bytes))) * group_bytes
    for batch in batches:
        step = max(1, batch.num_rows * stride // max(1, batch.nbytes))
        for first in range(0, batch.num_rows, step):
            if writer.size >= target_bytes and writer.rows:
                yield finished(writer)
                writer = new(writer.last)
            writer.append(batch.slice(first, step))
    if writer.rows:
        yield finished(writer)

"""Writing finished segments into the bucket."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial

import pyarrow as pa

from reef.data.schema import Schema
from reef.environment import Environment
from reef.errors import ConcurrentPublication
from reef.segment import SegmentInfo, split_segments
from reef.store.contract import Pending, Store

_UPLOADS_AHEAD = 1


def upload_segments(
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    *,
    store: Store,
    environment: Environment,
    birth: int,
    level: int,
    target_bytes: int,
    run: str | None = None,
) -> list[SegmentInfo]:
    """Write sorted rows as one run: segments of about the target size with disjoint id ranges.

    Parts of a job that write disjoint ranges of one run share its name. Nothing refers to the
    segments yet. If this process dies they are orphans, and GC removes them.
    """
    infos: list[SegmentInfo] = []
    under_way: deque[Pending[str]] = deque()
    for parts, info in split_segments(
        batches,
        schema,
        target_bytes,
        make_id=environment.unique_id,
        birth=birth,
        run=run or environment.unique_id(),
        level=level,
        start=store.start,
    ):
        # While one segment is on its way the next one is being encoded.
        under_way.append(store.start(partial(store.put, info.key, parts)))
        infos.append(info)
        if len(under_way) > _UPLOADS_AHEAD:
            under_way.popleft().result()
    for pending in under_way:
        pending.result()
    return infos


def check_not_condemned(orphan_floor: int, infos: Iterable[SegmentInfo]) -> None:
    """Refuse to make segments visible that a collector may have deleted as orphans by now."""
    for info in infos:
        if info.birth < orphan_floor:
            raise ConcurrentPublication(
                f"segment {info.key} was condemned as an orphan before it was published"
            )

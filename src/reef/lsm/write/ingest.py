"""Ingesting: finished segments become part of the tree with one append to the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush, heapreplace

import msgspec

from reef.data.schema import Schema
from reef.errors import ConditionFailed
from reef.log import BatchHeader
from reef.lsm.read.view import View
from reef.lsm.records import Ingest, encode_ingest
from reef.lsm.tree import Tree
from reef.lsm.write.absence import Absence
from reef.lsm.write.batch import Receipt
from reef.lsm.write.guest import Records, append_as_guest
from reef.lsm.write.idempotency import recall
from reef.lsm.write.upload import check_not_condemned
from reef.segment import SegmentInfo


def ingest(
    tree: Tree,
    segments: Sequence[SegmentInfo],
    schema: Schema,
    *,
    key: str | None = None,
    truncate: bool = False,
    absent_since: int | None = None,
) -> Receipt:
    """Append one ingest record that names the uploaded segments, which hold each id once.

    Atomic, ordered among all writes, and it does not fence the live writer. A key that was used
    before gets its first receipt, and the segments stay orphans. With `truncate`
    everything written before is gone from the record's slot on. With `absent_since`, a slot after
    which none of their ids was there, `ConditionFailed` if one came to be there since then.
    """
    answer: Receipt | None = None
    deleted = sum(info.tombstones for info in segments)
    counts = Receipt(0, upserted=sum(info.rows for info in segments) - deleted, deleted=deleted)
    absence = None if absent_since is None else Absence(tree, segments, absent_since)

    def decide(view: View) -> Records | None:
        nonlocal answer
        if key is not None:
            answer = recalled(tree, view, key)
            if answer is not None:
                return None
        check_not_condemned(view.unfolded.orphan_floor, segments)
        view.schema.extended(schema.attributes, schema.id_kind)
        if absence is not None:
            refuse(absence.conflicts(view))
        record = Ingest(tuple(segments), schema.to_dict(), truncate)
        header = BatchHeader(counts.upserted + deleted, key, None, counts.to_dict())
        return [header], [encode_ingest(record)]

    view = append_as_guest(tree, decide)
    if answer is not None:
        return answer
    return Receipt.from_dict(view.unfolded.next_lsn - 1, counts.to_dict())


def recalled(tree: Tree, view: View, key: str) -> Receipt | None:
    """The receipt that a key got when it was used before, if it is inside the window."""
    return recall(
        key,
        view.unfolded.keys,
        [tree.reader_of(info) for info in view.manifest.window],
        view.manifest.settings,
        tree.environment.now(),
    )


def refuse(ids: Sequence[str | int]) -> None:
    """Raise `ConditionFailed` for ids that are there and should not be, if there are any."""
    if ids:
        some = ", ".join(map(repr, ids))
        raise ConditionFailed(f"the condition (if absent) does not hold for id {some}", ids)


def in_few_runs(segments: Iterable[SegmentInfo]) -> list[SegmentInfo]:
    """The same segments in id order, named as few runs with disjoint id ranges each.

    A reader merges runs, and walks through the segments of one. Ones that were uploaded apart, by
    tasks that divided the ids among them, are one run.
    """
    ordered = sorted(segments, key=lambda info: info.min_id)
    ends: list[tuple[str | int, str]] = []
    placed: list[SegmentInfo] = []
    for info in ordered:
        if ends and ends[0][0] < info.min_id:  # type: ignore[operator]
            run = ends[0][1]
            heapreplace(ends, (info.max_id, run))
        else:
            run = info.id
            heappush(ends, (info.max_id, run))
        placed.append(msgspec.structs.replace(info, run=run))
    return placed

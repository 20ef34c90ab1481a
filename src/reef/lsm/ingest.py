"""Ingesting: finished segments become part of the tree with one append to the log."""

from __future__ import annotations

from collections.abc import Sequence

from reef.data.schema import Schema
from reef.log import BatchHeader
from reef.lsm.batch import Receipt
from reef.lsm.guest import Records, append_as_guest
from reef.lsm.records import Ingest, encode_ingest
from reef.lsm.tree import Tree
from reef.lsm.upload import check_not_condemned
from reef.lsm.view import View
from reef.lsm.window import recall
from reef.segment import SegmentInfo


def ingest(
    tree: Tree,
    segments: Sequence[SegmentInfo],
    schema: Schema,
    *,
    key: str | None = None,
    truncate: bool = False,
) -> Receipt:
    """Append one ingest record that names the uploaded segments, which hold each id once.

    Atomic, ordered among all writes, and it does not fence the live writer. A key that was used
    before gets its first receipt, and the segments stay orphans. With `truncate`
    everything written before is gone from the record's slot on.
    """
    answer: Receipt | None = None
    deleted = sum(info.tombstones for info in segments)
    counts = Receipt(0, upserted=sum(info.rows for info in segments) - deleted, deleted=deleted)

    def decide(view: View) -> Records | None:
        nonlocal answer
        if key is not None:
            answer = recall(
                key,
                view.unfolded.keys,
                [tree.reader_of(info) for info in view.manifest.window],
                view.manifest.settings,
                tree.environment.now(),
            )
            if answer is not None:
                return None
        check_not_condemned(view.unfolded.orphan_floor, segments)
        view.schema.extended(schema.attributes, schema.id_kind)
        record = Ingest(tuple(segments), schema.to_dict(), truncate)
        header = BatchHeader(counts.upserted + deleted, key, None, counts.to_dict())
        return [header], [encode_ingest(record)]

    view = append_as_guest(tree, decide)
    if answer is not None:
        return answer
    return Receipt.from_dict(view.unfolded.next_lsn - 1, counts.to_dict())

"""Admission: what a batch comes to, given what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from reef.data.convert.few import FEW
from reef.data.ids import kind_of_ids
from reef.data.plain import PlainRows, Rows, ids_of, join, tombstone_rows
from reef.data.rows import DELETE, ID, KIND_FIELD, with_lsn
from reef.errors import BatchTooLarge, ConditionFailed
from reef.lsm.read.view import View
from reef.lsm.tree import Tree
from reef.lsm.write.batch import EQUAL, Receipt, WriteBatch
from reef.lsm.write.upload import upload_segments
from reef.segment import SegmentInfo

_NAMED_IDS = 5


@dataclass(frozen=True)
class Admitted:
    """The rows that a batch puts into the log, in order, or the segments that it names there
    instead; and its receipt but for the slot."""

    rows: Rows | None
    receipt: Receipt
    segments: tuple[SegmentInfo, ...] = ()


def admit(batch: WriteBatch, view: View, tree: Tree) -> Admitted:
    """Decide the batch's conditions and which patches have a document to change.

    Raises `ConditionFailed`, naming the ids, if a condition fails and the batch does not ask to
    go on without them. What a filter deletes is uploaded as segments if it is much; together
    with other operations that is `BatchTooLarge`.
    """
    upserts, patches, deletes = batch.upserts, batch.patches, batch.deletes
    if batch.delete_where is not None:
        matching = (rows.column(ID) for rows in view.scan(columns=(), filter=batch.delete_where))
        held, rest = _as_many_as(matching, tree.options.large_batch_bytes)
        if rest is not None and batch.only_deletes_where:
            return _deleted_by_segments(chain(held, rest), batch, tree)
        if rest is not None:
            others, rest = _as_many_as(rest, tree.options.batch_bytes)
            held += others
        if rest is not None:
            raise BatchTooLarge(
                f"the filter matches ids of more than {tree.options.batch_bytes} bytes; delete by"
                " it alone, without a condition, and there is no limit"
            )
        named = [deletes] if deletes is not None else []
        if held or named:
            deletes = pa.concat_arrays(named + held).unique()
    rejected: tuple[str | int, ...] = ()
    if batch.condition is not None:
        rejected = _rejected(batch, view, upserts, patches, deletes)
        if rejected and not batch.skip_rejected:
            some = ", ".join(map(repr, rejected[:_NAMED_IDS]))
            more = f" and {len(rejected) - _NAMED_IDS} more" if len(rejected) > _NAMED_IDS else ""
            raise ConditionFailed(
                f"the condition ({batch.condition.describe()}) does not hold for id {some}{more}",
                rejected,
            )
        upserts = _without(upserts, rejected)
        patches = _without(patches, rejected)
        deletes = _ids_without(deletes, rejected)
    missing = 0
    if patches is not None:
        kept = _with_document(patches, upserts, view)
        missing = len(patches) - len(kept)
        patches = kept
    pieces: list[Rows] = [part for part in (upserts, patches) if part is not None and len(part)]
    if deletes is not None and len(deletes):
        if len(deletes) <= FEW:
            pieces.append(tombstone_rows(deletes.to_pylist(), kind_of_ids(deletes)))
        else:
            pieces.append(tombstones(deletes))
    receipt = Receipt(
        0,
        len(upserts) if upserts is not None else 0,
        len(patches) if patches is not None else 0,
        len(deletes) if deletes is not None else 0,
        missing,
        rejected,
    )
    return Admitted(join(pieces) if pieces else None, receipt)


def _as_many_as(
    ids: Iterator[pa.Array], nbytes: int
) -> tuple[list[pa.Array], Iterator[pa.Array] | None]:
    """Ids of about so many bytes, and the rest if there is one."""
    held: list[pa.Array] = []
    size = 0
    for some in ids:
        held.append(some)
        size += some.nbytes
        if size > nbytes:
            return held, ids
    return held, None


def _deleted_by_segments(ids: Iterable[pa.Array], batch: WriteBatch, tree: Tree) -> Admitted:
    """Upload tombstones of these ids, which come in order."""
    count = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for some in ids:
            count += len(some)
            yield with_lsn(tombstones(some), 0)

    segments = upload_segments(
        rows(),
        batch.schema,
        store=tree.store,
        environment=tree.environment,
        # Not what this process knows of the root: others may have condemned births since then.
        birth=tree.register.head().manifest.generation,
        level=0,
        target_bytes=tree.options.segment_bytes,
    )
    return Admitted(None, Receipt(0, deleted=count), tuple(segments))


def tombstones(ids: pa.Array) -> pa.RecordBatch:
    """Rows that delete those ids."""
    kinds = pa.array(np.full(len(ids), DELETE, dtype=np.uint8))
    return pa.RecordBatch.from_arrays(
        [ids, kinds], schema=pa.schema([pa.field(ID, ids.type, nullable=False), KIND_FIELD])
    )


def _rejected(
    batch: WriteBatch,
    view: View,
    upserts: Rows | None,
    patches: Rows | None,
    deletes: pa.Array | None,
) -> tuple[str | int, ...]:
    condition = batch.condition
    assert condition is not None
    ids: list[str | int] = []
    for part in (upserts, patches):
        if part is not None:
            ids.extend(ids_of(part))
    if deletes is not None:
        ids.extend(deletes.to_pylist())
    ids = list(dict.fromkeys(ids))
    columns = condition.columns if condition.kind == EQUAL else ()
    documents = view.get_many(ids, columns)
    return tuple(
        id for id, document in zip(ids, documents, strict=True) if not condition.holds(document)
    )


def _with_document(patches: Rows, upserts: Rows | None, view: View) -> Rows:
    """The patches whose document is there, or comes with the same batch."""
    ids = ids_of(patches)
    there = view.exist_many(ids)
    if upserts is not None and not all(there):
        fresh = set(ids_of(upserts))
        there = [found or id in fresh for found, id in zip(there, ids, strict=True)]
    return patches if all(there) else _kept(patches, there)


def _kept(rows: Rows, keep: list[bool]) -> Rows:
    return rows.filter(keep if isinstance(rows, PlainRows) else pa.array(keep, pa.bool_()))


def _without(rows: Rows | None, rejected: tuple[str | int, ...]) -> Rows | None:
    if rows is None or not rejected:
        return rows
    return _kept(rows, _outside(ids_of(rows), rejected))


def _ids_without(ids: pa.Array | None, rejected: tuple[str | int, ...]) -> pa.Array | None:
    if ids is None or not rejected:
        return ids
    return ids.filter(pa.array(_outside(ids.to_pylist(), rejected), pa.bool_()))


def _outside(ids: list[str | int], rejected: tuple[str | int, ...]) -> list[bool]:
    refused = set(rejected)
    return [id not in refused for id in ids]

"""Admission: what a batch comes to, given what is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reef.data.rows import DELETE, ID, KIND_FIELD, concat
from reef.errors import ConditionFailed
from reef.lsm.batch import EQUAL, Receipt, WriteBatch
from reef.lsm.view import View

_NAMED_IDS = 5


@dataclass(frozen=True)
class Admitted:
    """The rows that a batch puts into the log, in order, and its receipt but for the slot."""

    rows: pa.RecordBatch | None
    receipt: Receipt


def admit(batch: WriteBatch, view: View) -> Admitted:
    """Decide the batch's conditions and which patches have a document to change.

    Raises `ConditionFailed`, naming the ids, if a condition fails and the batch does not ask to
    go on without them.
    """
    upserts, patches, deletes = batch.upserts, batch.patches, batch.deletes
    if batch.delete_where is not None:
        matching = [piece.column(ID) for piece in view.scan(columns=(), filter=batch.delete_where)]
        named = [deletes] if deletes is not None else []
        if matching or named:
            deletes = pa.concat_arrays(named + matching).unique()
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
        missing = patches.num_rows - kept.num_rows
        patches = kept
    pieces = [piece for piece in (upserts, patches) if piece is not None and piece.num_rows]
    if deletes is not None and len(deletes):
        pieces.append(tombstones(deletes))
    receipt = Receipt(
        0,
        upserts.num_rows if upserts is not None else 0,
        patches.num_rows if patches is not None else 0,
        len(deletes) if deletes is not None else 0,
        missing,
        rejected,
    )
    return Admitted(concat(pieces) if pieces else None, receipt)


def tombstones(ids: pa.Array) -> pa.RecordBatch:
    """Rows that delete those ids."""
    kinds = pa.array(np.full(len(ids), DELETE, dtype=np.uint8))
    return pa.RecordBatch.from_arrays(
        [ids, kinds], schema=pa.schema([pa.field(ID, ids.type, nullable=False), KIND_FIELD])
    )


def _rejected(
    batch: WriteBatch,
    view: View,
    upserts: pa.RecordBatch | None,
    patches: pa.RecordBatch | None,
    deletes: pa.Array | None,
) -> tuple[str | int, ...]:
    condition = batch.condition
    assert condition is not None
    ids: list[str | int] = []
    for part in (upserts, patches):
        if part is not None:
            ids.extend(part.column(ID).to_pylist())
    if deletes is not None:
        ids.extend(deletes.to_pylist())
    ids = list(dict.fromkeys(ids))
    columns = condition.columns if condition.kind == EQUAL else ()
    documents = view.get_many(ids, columns)
    return tuple(
        id for id, document in zip(ids, documents, strict=True) if not condition.holds(document)
    )


def _with_document(
    patches: pa.RecordBatch, upserts: pa.RecordBatch | None, view: View
) -> pa.RecordBatch:
    """The patches whose document is there, or comes with the same batch."""
    ids = patches.column(ID).to_pylist()
    there = np.fromiter(
        (document is not None for document in view.get_many(ids, ())), dtype=bool, count=len(ids)
    )
    if upserts is not None and not there.all():
        fresh = set(upserts.column(ID).to_pylist())
        there |= np.fromiter((id in fresh for id in ids), dtype=bool, count=len(ids))
    return patches if there.all() else patches.filter(pa.array(there))


def _without(rows: pa.RecordBatch | None, rejected: tuple[str | int, ...]) -> pa.RecordBatch | None:
    if rows is None or not rejected:
        return rows
    return rows.filter(_outside(rows.column(ID), rejected))


def _ids_without(ids: pa.Array | None, rejected: tuple[str | int, ...]) -> pa.Array | None:
    return ids if ids is None or not rejected else ids.filter(_outside(ids, rejected))


def _outside(ids: pa.Array, rejected: tuple[str | int, ...]) -> pa.Array:
    refused = set(rejected)
    return pa.array([id not in refused for id in ids.to_pylist()], pa.bool_())

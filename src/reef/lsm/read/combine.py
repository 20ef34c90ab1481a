"""Combining: what the versions of an id come to when the newest alone does not say it all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from reef.data.rows import DELETE, ID, KIND, NULL_FLAG, PATCH, UPSERT, is_attribute
from reef.lsm.pieces import Pieces


@dataclass(frozen=True)
class Versions:
    """Rows of a range of ids, some of them patches.

    `order` puts them by id, the newest first; `starts` says where in it a new id begins.
    """

    rows: Pieces
    kinds: np.ndarray
    order: np.ndarray
    starts: np.ndarray


Combiner = Callable[[Versions, bool], pa.RecordBatch]
"""One row for each id that is left, in order. If asked to, it keeps tombstones as they are."""


def apply_patches(versions: Versions, keep_tombstones: bool) -> pa.RecordBatch:
    """Patches above a document change it; patches above a tombstone or nothing are lost."""
    rows, order, starts = versions.rows, versions.order, versions.starts
    number = np.cumsum(starts) - 1
    ordered_kinds = versions.kinds[order]
    count = int(number[-1]) + 1 if len(number) else 0
    places = np.arange(len(order))
    # The base of an id is its newest version that is no patch.
    solid = places[ordered_kinds != PATCH]
    base = np.full(count, len(order), dtype=np.int64)
    np.minimum.at(base, number[solid], solid)
    based = base < len(order)
    base_kinds = np.full(count, DELETE, dtype=np.uint8)
    base_kinds[based] = ordered_kinds[base[based]]
    first = places[starts]
    keep = base_kinds == UPSERT
    if keep_tombstones:
        keep = keep | (based & (base_kinds == DELETE))
    kept = np.flatnonzero(keep)
    base_rows = order[base[kept]]
    # A tombstone stands with its own LSN; a patched document takes that of its newest patch.
    newest_rows = np.where(base_kinds[kept] == DELETE, base_rows, order[first[kept]])
    live = places <= base[number]
    columns: list[pa.Array] = []
    sources: dict[str, np.ndarray] = {}
    names = rows.names
    for name in names:
        if name in (ID, KIND):
            columns.append(rows.column(name, base_rows))
        elif not is_attribute(name) and not name.startswith(NULL_FLAG):
            columns.append(rows.column(name, newest_rows))
        else:
            attribute = name.removeprefix(NULL_FLAG)
            if attribute not in sources:
                sources[attribute] = _sources(
                    rows, attribute, order, number, live, base, count, kept
                )
            columns.append(rows.column(name, sources[attribute]))
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _sources(
    rows: Pieces,
    attribute: str,
    order: np.ndarray,
    number: np.ndarray,
    live: np.ndarray,
    base: np.ndarray,
    count: int,
    kept: np.ndarray,
) -> np.ndarray:
    """For each id kept, the row that an attribute's value comes from: the newest that set it."""
    flags = rows.present(attribute)
    chosen = np.minimum(base, len(order) - 1)
    if flags is not None:
        setters = np.flatnonzero(flags[order] & live)
        newest = np.full(count, len(order), dtype=np.int64)
        np.minimum.at(newest, number[setters], setters)
        chosen = np.where(newest < len(order), newest, chosen)
    return np.asarray(order[chosen[kept]])

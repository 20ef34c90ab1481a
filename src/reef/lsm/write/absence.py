"""Which ids are there: for loads that may only add documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.rows import ID, KIND, KIND_FIELD, PATCH, UPSERT, kinds_of, lsns_of, select
from reef.lsm.gathered import Slice
from reef.lsm.read.lookup import lookup
from reef.lsm.read.merge import Source, merge, resolve
from reef.lsm.read.view import Run, View, runs_of
from reef.lsm.tree import Tree
from reef.segment import SegmentInfo

MOST_NAMED = 10
"""How many ids an error names."""


def are_there(view: View, ids: pa.Array) -> np.ndarray:
    """Per id of these sorted, distinct ones, whether a document has it."""
    if not len(ids):
        return np.zeros(0, dtype=bool)
    versions = [*_in_memory(view, ids), *lookup(view.runs, ids, ())]
    if not versions:
        return np.zeros(len(ids), dtype=bool)
    documents = resolve(versions, keep_tombstones=False)
    there: np.ndarray = pc.is_in(ids, value_set=documents.column(ID)).to_numpy(zero_copy_only=False)
    return there


def _in_memory(view: View, ids: pa.Array) -> Iterator[pa.RecordBatch]:
    """Key columns of what the unfolded log holds of these sorted ids, newest runs first."""
    for source in view.memtable.sorted().sources(start=ids[0].as_py(), columns=()):
        for batch in _batches(source):
            rows = batch.filter(pc.is_in(batch.column(ID), value_set=ids))
            if rows.num_rows:
                yield _patches_as_documents(rows)
            if batch.column(ID)[-1].as_py() > ids[-1].as_py():
                break


def _batches(source: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
    for found in source:
        yield from found if isinstance(found, list) else (found,)


class Absence:
    """That no document came to be, after a slot, with an id that uploaded segments hold.

    Asked again, it looks only at what was written since it was asked before. What it costs
    grows with what was written meanwhile, not with what is loaded.
    """

    def __init__(self, tree: Tree, segments: Sequence[SegmentInfo], since: int) -> None:
        self._loaded = runs_of(segments, tree.reader_of)
        self._since = since

    def conflicts(self, view: View) -> list[str | int]:
        """The first ids that are there after all, in order; none if it still holds."""
        found: list[str | int] = []
        for batch in _documents_after(view, self._since):
            for rows in lookup(self._loaded, batch.column(ID).unique(), ()):
                found += rows.column(ID).to_pylist()
            if len(found) >= MOST_NAMED:
                break
        if not found:
            self._since = view.unfolded.next_lsn - 1
        return sorted(found)[:MOST_NAMED]  # type: ignore[type-var]


def _documents_after(view: View, since: int) -> Iterator[pa.RecordBatch]:
    """Key columns of the documents whose newest version was written after a slot, in id order."""
    sources: list[Source] = []
    for source in view.memtable.sorted().sources(columns=()):
        sources.append(_after(_batches(source), since))
    for run in view.runs:
        if run.max_lsn > since:
            sources.append(_after(_keys(run, since), since))
    return merge(sources)


def _keys(run: Run, since: int) -> Iterator[pa.RecordBatch]:
    for reader in run.readers:
        if reader.info.max_lsn > since:
            yield from reader.read(list(reader.groups()), ())


def _after(batches: Iterable[pa.RecordBatch], since: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = select(batch, ())
        newer = lsns_of(rows) > since
        if not newer.all():
            rows = rows.filter(pa.array(newer))
        if rows.num_rows:
            yield _patches_as_documents(rows)


def _patches_as_documents(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A patch is only ever written where there is a document."""
    kinds = kinds_of(rows)
    if not (kinds == PATCH).any():
        return rows
    place = rows.schema.get_field_index(KIND)
    return rows.set_column(place, KIND_FIELD, pa.array(np.where(kinds == PATCH, UPSERT, kinds)))

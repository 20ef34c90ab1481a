"""Streams of rows that come sorted by id: each id once, and only those that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.rows import ID
from reef.lsm.read.view import View
from reef.lsm.write.absence import MOST_NAMED, are_there
from reef.lsm.write.ingest import refuse
from reef.lsm.write.sorting import refuse_duplicates


def last_of_each_id(batches: Iterable[pa.RecordBatch], *, unique: bool) -> Iterator[pa.RecordBatch]:
    """The last row of every id, wherever batches begin and end; with `unique`, an `InvalidInput`
    that names the id if there is another."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = batch.column(ID)
        if held is not None:
            if held.column(ID)[-1].as_py() == ids[0].as_py():
                if unique:
                    refuse_duplicates([ids[0].as_py()])
                held = held.slice(0, held.num_rows - 1)
            if held.num_rows:
                yield held
        held = batch
        if len(ids) > 1:
            again = _equal_to_next(ids)
            if again.any():
                if unique:
                    refuse_duplicates([ids[int(np.argmax(again))].as_py()])
                held = batch.filter(pa.array(np.append(~again, True)))
    if held is not None:
        yield held


def _equal_to_next(ids: pa.Array) -> np.ndarray:
    if pa.types.is_uint64(ids.type):
        numbers = np.asarray(ids)
        return np.asarray(numbers[1:] == numbers[:-1])
    equal: np.ndarray = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    return equal


class OnlyNew:
    """Lets rows through whose ids no document has. The others are counted in `skipped`, or
    refused together when all rows are through."""

    def __init__(self, view: View, *, skip: bool) -> None:
        self._view = view
        self._skip = skip
        self.skipped = 0

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches that are sorted by id and hold each once."""
        conflicts: list[str | int] = []
        for batch in batches:
            there = are_there(self._view, batch.column(ID))
            if there.any():
                if self._skip:
                    self.skipped += int(there.sum())
                    batch = batch.filter(pa.array(~there))
                else:
                    conflicts += batch.column(ID).filter(pa.array(there)).to_pylist()
                    if len(conflicts) >= MOST_NAMED:
                        break
            if batch.num_rows and not conflicts:
                yield batch
        refuse(conflicts[:MOST_NAMED])

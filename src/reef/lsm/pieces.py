"""Pieces: batches that are treated as one, but not put together when that would be large.

Arrow's arrays of text hold 2 GiB at most, and a copy of everything is what bounded memory forbids.
So order is decided by ids, LSNs and kinds alone, and rows are taken out of the pieces by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from reef.data.measure import chunks
from reef.data.rows import (
    ID,
    concat,
    conform,
    kinds_of,
    lsns_of,
    present,
    select,
    union_of,
)
from reef.lsm.order import is_contiguous

CHUNK_BYTES = 256 * 1024 * 1024


class Pieces:
    """Rows of several batches, numbered through."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = batches
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self.rows = int(self._starts[-1])

    @staticmethod
    def chunked(batches: Sequence[pa.RecordBatch]) -> Pieces:
        """Neighbours put together up to `CHUNK_BYTES`: taking rows out of few pieces is quick."""
        if len(batches) < 2:
            return Pieces(batches)
        return Pieces([concat(some) for some in chunks(batches, CHUNK_BYTES)])

    @property
    def ids(self) -> pa.Array:
        """All ids."""
        return _joined([batch.column(ID) for batch in self.batches])

    @property
    def kinds(self) -> np.ndarray:
        """All kinds."""
        if len(self.batches) == 1:
            return kinds_of(self.batches[0])
        return np.concatenate([kinds_of(batch) for batch in self.batches])

    @property
    def lsns(self) -> np.ndarray:
        """All LSNs, of batches that have them."""
        if len(self.batches) == 1:
            return lsns_of(self.batches[0])
        return np.concatenate([lsns_of(batch) for batch in self.batches])

    @property
    def schema(self) -> pa.Schema:
        """All columns that some piece has."""
        return union_of(self.batches)

    @property
    def names(self) -> list[str]:
        """Their names."""
        names: list[str] = self.schema.names
        return names

    def select(self, columns: Iterable[str] | None) -> Pieces:
        """The same rows with only these attributes; all of them if None."""
        if columns is None:
            return self
        wanted = tuple(columns)
        return Pieces([select(batch, wanted) for batch in self.batches])

    def take(self, rows: np.ndarray) -> pa.RecordBatch:
        """Those rows as one batch; a slice where they follow one another."""
        if len(self.batches) == 1 or not len(rows):
            return take_rows(self.batches[0], rows)
        which = np.searchsorted(self._starts, rows, "right") - 1
        order = np.argsort(which, kind="stable")
        pieces, begins = np.unique(which[order], return_index=True)
        ends = [*begins[1:].tolist(), len(rows)]
        taken = [
            take_rows(self.batches[piece], rows[order[begin:end]] - self._starts[piece])
            for piece, begin, end in zip(pieces.tolist(), begins.tolist(), ends, strict=True)
        ]
        together = concat(taken)
        if is_contiguous(order):
            return together
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return together.take(pa.array(back))

    def column(self, name: str, rows: np.ndarray) -> pa.Array:
        """One column of those rows; null where a piece lacks it."""
        if len(self.batches) == 1:
            return self.batches[0].column(name).take(pa.array(rows))
        schema = pa.schema([self.schema.field(name)])
        return Pieces([conform(batch, schema) for batch in self.batches]).take(rows).column(0)

    def present(self, attribute: str) -> np.ndarray | None:
        """Per row, whether the attribute was set, to a value or to null; None if in no row."""
        found = [present(batch, attribute) for batch in self.batches]
        if all(flags is None for flags in found):
            return None
        return np.concatenate(
            [
                np.zeros(batch.num_rows, bool)
                if flags is None
                else flags.to_numpy(zero_copy_only=False)
                for batch, flags in zip(self.batches, found, strict=True)
            ]
        )


def take_rows(batch: pa.RecordBatch, rows: np.ndarray) -> pa.RecordBatch:
    """Those rows of a batch; a slice, which copies nothing, where they follow one another."""
    if not len(rows):
        return batch.slice(0, 0)
    if is_contiguous(rows):
        return batch.slice(int(rows[0]), len(rows))
    return batch.take(pa.array(rows))


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)

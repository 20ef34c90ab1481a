"""Sorting any amount of rows in bounded memory.

Rows are gathered into stretches that fit in memory, each sorted and spilled as a run to a scratch
folder. Then the runs are merged, newest wins. One stretch alone needs no scratch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType

import numpy as np
import pyarrow as pa

from reef.data.rows import ID, with_lsn
from reef.data.schema import Schema
from reef.environment import Environment
from reef.errors import InvalidInput
from reef.lsm.gathered import Gathered
from reef.lsm.read.merge import merge
from reef.lsm.read.view import Run, runs_of
from reef.lsm.write.duplicates import duplicate_ids, repeated
from reef.lsm.write.upload import upload_segments
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store import Store, open_store

STRETCH_BYTES = 128 * 1024 * 1024
_SPILL_BYTES = 64 * 1024 * 1024
_CACHE_BYTES = 32 * 1024 * 1024


class Sorter:
    """Takes rows in any order and gives them back sorted, each id once.

    Of several rows of an id the one that was added with the highest order wins, the later one if
    that is the same; with `unique` they are an `InvalidInput` that names the id. Memory
    holds about `stretch_bytes` of rows, and the copies that sorting them takes.
    """

    def __init__(
        self, environment: Environment, *, stretch_bytes: int = STRETCH_BYTES, unique: bool = False
    ) -> None:
        self._environment = environment
        self._limit = stretch_bytes
        self._unique = unique
        self._held: list[tuple[int | np.ndarray, pa.RecordBatch]] = []
        self._size = 0
        self._spilled: list[SegmentInfo] = []
        self._ends = ExitStack()
        self._cache = BlockCache(min(_CACHE_BYTES, stretch_bytes))
        self.count = 0

    def add(self, order: int | np.ndarray, rows: pa.RecordBatch, schema: Schema) -> None:
        """Take rows without LSNs. `schema` has all their attributes, and those of rows before."""
        if not rows.num_rows:
            return
        self._held.append((order, rows))
        self._size += rows.nbytes
        self.count += rows.num_rows
        if self._size >= self._limit:
            self._spill(schema)

    def rows(self, schema: Schema) -> Iterator[pa.RecordBatch]:
        """All rows in id order with LSN 0, to be taken once."""
        if not self._spilled:
            if self._held:
                for piece in self._stretch():
                    yield with_lsn(piece, 0)
            return
        if self._held:
            self._spill(schema)
        if self._unique:
            refuse_duplicates(duplicate_ids([ids_of_run(run) for run in self._runs()]))
        for batch in merge([run.rows() for run in self._runs()], keep_tombstones=True):
            yield with_lsn(batch, 0)

    @cached_property
    def _scratch(self) -> Store:
        folder = tempfile.TemporaryDirectory(prefix="reef-sort-")
        return open_store(self._ends.enter_context(folder))

    def _spill(self, schema: Schema) -> None:
        self._spilled += upload_segments(
            self._stretch(),
            schema,
            store=self._scratch,
            environment=self._environment,
            birth=0,
            level=0,
            target_bytes=min(_SPILL_BYTES, max(1, self._limit // 2)),
        )

    def _stretch(self) -> Iterator[pa.RecordBatch]:
        """What is in hand, sorted; nothing is in hand afterwards."""
        held, self._held, self._size = self._held, [], 0
        left = sum(rows.num_rows for _, rows in held)
        # No patches: an id has one version, and a slice is one batch.
        for piece in merge([Gathered(held).slices()], keep_tombstones=True):
            left -= piece.num_rows
            yield piece
        if self._unique and left:
            refuse_duplicates(repeated(pa.concat_arrays([rows.column(ID) for _, rows in held])))

    def _runs(self) -> list[Run]:
        return runs_of(
            self._spilled, lambda info: SegmentReader(self._scratch, info.key, info, self._cache)
        )

    def __enter__(self) -> Sorter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.close()


def ids_of_run(run: Run) -> Iterator[pa.Array]:
    """The ids of a run, in order; nothing else of it is read."""
    for reader in run.readers:
        for batch in reader.read(list(reader.groups()), (), ahead=1):
            yield batch.column(ID)


def refuse_duplicates(ids: Iterable[str | int]) -> None:
    """Raise `InvalidInput` for ids that came more than once, if there are any."""
    for id in ids:
        raise InvalidInput(
            f"the id {id!r} comes more than once; to keep the last, say by which column they are"
            " in order"
        )

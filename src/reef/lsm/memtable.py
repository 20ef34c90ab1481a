"""The memtable: rows of the unfolded log, found by id.

A list of batches in log order that only grows, and an index from id to row that is brought up to
date when somebody looks. A row's position is its place in the concatenation of all batches. The
index maps an id to the position of its newest row. Where that row is a patch, it maps it to a chain
down to the first row that is none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from reef.data.plain import PlainRows, Rows, as_batch, ids_of, join
from reef.data.rows import PATCH, kinds_of
from reef.lsm.memory_runs import NO_RUNS, MemoryRuns
from reef.lsm.patches import MergedPatches, Version

_MOST_PATCHES = 8
"""So many plain patches in a row are merged."""


class _Patch(NamedTuple):
    """A patch, what the index said of its id before, and the position of the newest row of the id
    that is no patch, if that is here."""

    position: int
    below: _Node
    base: int | None


class _Merged(NamedTuple):
    """Several patches as one, and likewise."""

    version: tuple[int, MergedPatches, int]
    below: _Node
    base: int | None


_Node = int | _Patch | _Merged | None
"""What the index says of an id."""

_STRETCH_BYTES = 64 * 1024 * 1024


class Memtable:
    """Rows in log order. One thread adds at a time; any number read."""

    def __init__(self) -> None:
        self._lsns: list[int] = []
        self._batches: list[Rows] = []
        self._starts: list[int] = []
        self._index: dict[str | int, _Node] = {}
        self._indexed = 0
        self._index_lock = Lock()
        self._sorted = NO_RUNS
        self._sort_lock = Lock()
        self.rows = 0

    def add(self, lsn: int, batch: Rows) -> None:
        """Put rows on top. The LSN is not below that of any batch before."""
        self._starts.append(self.rows)
        self._lsns.append(lsn)
        self.rows += len(batch)
        self._batches.append(batch)

    def after(self, lsn: int) -> Memtable:
        """A memtable of only the batches above that LSN."""
        rest = Memtable()
        first = bisect_right(self._lsns, lsn)
        for position in range(first, len(self._batches)):
            rest.add(self._lsns[position], self._batches[position])
        rest._sorted = self._sorted.after(first)
        return rest

    def batches(self, through: int | None = None) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        """The rows up to that LSN, oldest first, as Arrow batches with the LSN of each row."""
        count = len(self._batches) if through is None else bisect_right(self._lsns, through)
        return self._between(0, count)

    def _between(self, first: int, stop: int) -> list[tuple[np.ndarray, pa.RecordBatch]]:
        entries = zip(self._lsns[first:stop], self._batches[first:stop], strict=True)
        found: list[tuple[np.ndarray, pa.RecordBatch]] = []
        # Neighbours that are plain become one batch: making many small ones takes far longer.
        for plain, run in groupby(entries, lambda entry: isinstance(entry[1], PlainRows)):
            if plain:
                for lsns, rows in _stretches(run):
                    found.append((lsns, as_batch(join(rows))))
            else:
                for lsn, batch in run:
                    found.append((np.full(len(batch), lsn, np.uint64), batch))
        return found

    def __len__(self) -> int:
        return len(self._batches)

    def find(self, id: str | int) -> list[Version]:
        """The id's versions as (LSN, batch, row), newest first, to the first that is no patch.
        Patches that follow each other may come as one."""
        if self._indexed < len(self._batches):
            self._bring_up_to_date()
        return self._versions(self._index.get(id))

    def find_many(self, ids: Sequence[str | int]) -> list[list[Version]]:
        """The versions of each of these ids, all as of one moment."""
        return list(map(self._versions, self._nodes(ids)))

    def find_bases(self, ids: Sequence[str | int]) -> list[Version | None]:
        """The newest version of each of these ids that is no patch, all as of one moment."""
        bases = map(_base_of, self._nodes(ids))
        return [None if base is None else self._version(base) for base in bases]

    def _nodes(self, ids: Sequence[str | int]) -> list[_Node]:
        self._bring_up_to_date()
        with self._index_lock:
            return list(map(self._index.get, ids))

    def _versions(self, node: _Node) -> list[Version]:
        versions: list[Version] = []
        while node is not None:
            if isinstance(node, _Merged):
                versions.append(node.version)
                node = node.below
            elif isinstance(node, _Patch):
                versions.append(self._version(node.position))
                node = node.below
            else:
                versions.append(self._version(node))
                break
        return versions

    def _version(self, position: int) -> Version:
        place = bisect_right(self._starts, position) - 1
        return self._lsns[place], self._batches[place], position - self._starts[place]

    def _bring_up_to_date(self) -> None:
        with self._index_lock:
            for place in range(self._indexed, len(self._batches)):
                self._add_to_index(self._batches[place], self._starts[place])
                self._indexed = place + 1

    def _add_to_index(self, batch: Rows, start: int) -> None:
        index = self._index
        ids = ids_of(batch)
        positions = range(start, start + len(ids))
        if isinstance(batch, PlainRows):
            if PATCH not in batch.kinds:
                index.update(zip(ids, positions, strict=True))
                return
            for id, position, kind in zip(ids, positions, batch.kinds, strict=True):
                index[id] = self._patched(position, index.get(id)) if kind == PATCH else position
            return
        patches = kinds_of(batch) == PATCH
        if not patches.any():
            index.update(zip(ids, positions, strict=True))
        elif patches.all() and len(set(ids)) == len(ids):
            below = list(map(index.get, ids))
            index.update(zip(ids, map(_Patch, positions, below, map(_base_of, below)), strict=True))
        else:
            for id, position, patch in zip(ids, positions, patches.tolist(), strict=True):
                node = index.get(id)
                index[id] = _Patch(position, node, _base_of(node)) if patch else position

    def _patched(self, position: int, below: _Node) -> _Node:
        """A plain patch on top; merged with those below if they are many."""
        base = _base_of(below)
        patch = _Patch(position, below, base)
        count = 1
        while isinstance(below, _Patch):
            count += 1
            below = below.below
        return patch if count < _MOST_PATCHES else self._merge(patch)

    def _merge(self, patch: _Patch) -> _Node:
        taken: list[Version] = []
        node: _Node = patch
        while isinstance(node, _Patch):
            version = self._version(node.position)
            if not isinstance(version[1], PlainRows):
                break
            taken.append(version)
            node = node.below
        if len(taken) < _MOST_PATCHES:
            return patch
        older = None
        if isinstance(node, _Merged):
            older, node = node.version[1], node.below
        return _Merged((taken[0][0], MergedPatches(taken, older), 0), node, patch.base)

    def sorted(self) -> MemoryRuns:
        """All rows in sorted runs. What was sorted before is kept: only the rows that were added
        since, and as many of the others again, are sorted now."""
        runs = self._sorted
        if runs.batches < len(self._batches):
            with self._sort_lock:
                runs = self._sorted
                count = len(self._batches)
                if runs.batches < count:
                    runs = runs.extended(count, self._between(runs.batches, count))
                    self._sorted = runs
        return runs


def _stretches(
    entries: Iterable[tuple[int, Rows]],
) -> Iterator[tuple[np.ndarray, list[Rows]]]:
    """Neighbours that fit into one batch, and the LSNs of their rows."""
    lsns: list[int] = []
    held: list[Rows] = []
    size = count = width = 0
    for lsn, rows in entries:
        assert isinstance(rows, PlainRows)
        size += rows.nbytes
        count += len(rows)
        width = max(width, rows.types.vector_bytes)
        if held and max(size, count * width) > _STRETCH_BYTES:
            yield _repeated(lsns, held), held
            lsns, held = [], []
            size, count, width = rows.nbytes, len(rows), rows.types.vector_bytes
        lsns.append(lsn)
        held.append(rows)
    yield _repeated(lsns, held), held


def _repeated(lsns: list[int], held: list[Rows]) -> np.ndarray:
    return np.repeat(
        np.array(lsns, np.uint64), np.fromiter((len(rows) for rows in held), np.int64, len(held))
    )


def _base_of(node: _Node) -> int | None:
    return node.base if isinstance(node, _Patch | _Merged) else node

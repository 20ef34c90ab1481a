"""A view: one consistent state of a tree, and reading from it.

A view is a set of segments, grouped into runs, and the unfolded log on top of them. Segments of
one run have disjoint id ranges; of several versions of an id the one with the highest LSN wins,
wherever it lies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import pyarrow as pa

from reef.data.documents import document_of
from reef.data.filter import Expression
from reef.data.plain import PlainRows, Rows, kind_at
from reef.data.rows import DELETE, PATCH
from reef.data.schema import Schema
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.patches import MergedPatches, Version
from reef.lsm.read.ranges import WHOLE, Range
from reef.lsm.read.scan import scan_rows
from reef.lsm.unfolded import Unfolded
from reef.manifest.model import Manifest
from reef.manifest.runs import SegmentRun, Segments
from reef.segment import BlockCache, Group, SegmentInfo, SegmentReader
from reef.store.contract import Store

Document = dict[str, Any]
Held = Mapping[Hashable, Group]
"""Groups that a read has fetched, by their keys in the cache."""

_IDS_AT_ONCE = 64
_KEPT_BYTES = 32 * 1024 * 1024


class Run:
    """Segments with disjoint id ranges, in id order. What it takes to read from them is made when
    somebody does: a view of many runs costs little."""

    def __init__(
        self, segments: SegmentRun, reader_of: Callable[[SegmentInfo], SegmentReader]
    ) -> None:
        self._segments = segments
        self._reader_of = reader_of
        self.max_lsn = segments.summary.max_lsn
        self.min_lsn = segments.summary.min_lsn

    @cached_property
    def readers(self) -> list[SegmentReader]:
        """A reader of each segment."""
        readers = map(self._reader_of, self._segments.segments)
        return sorted(readers, key=lambda reader: reader.info.min_id)

    @cached_property
    def min_ids(self) -> list[str | int]:
        """The first id of each segment."""
        return [reader.info.min_id for reader in self.readers]

    @cached_property
    def max_ids(self) -> list[str | int]:
        """The last id of each segment."""
        return [reader.info.max_id for reader in self.readers]

    def holder(self, id: str | int) -> SegmentReader | None:
        """The segment whose range the id falls into."""
        place = bisect_right(self.min_ids, id) - 1  # type: ignore[type-var]
        if place >= 0 and id <= self.max_ids[place]:  # type: ignore[operator]
            return self.readers[place]
        return None

    def touches(self, first: str | int, last: str | int) -> bool:
        """Whether ids from `first` through `last` fall into the range of a segment."""
        place = bisect_left(self.max_ids, first)  # type: ignore[type-var]
        return place < len(self.min_ids) and self.min_ids[place] <= last  # type: ignore[operator]

    def between(self, start: str | int | None, stop: str | int | None) -> list[SegmentReader]:
        """The segments that can hold ids in [start, stop)."""
        first = 0 if start is None else bisect_left(self.max_ids, start)  # type: ignore[type-var]
        last = None if stop is None else bisect_left(self.min_ids, stop)  # type: ignore[type-var]
        return self.readers[first:last]

    def rows(self, within: Range = WHOLE) -> Iterator[pa.RecordBatch]:
        """The rows of a range of ids in order, tombstones too. Reads little ahead: many runs are
        read at once."""
        start, stop = within.start, within.stop
        for reader in self.between(start, stop):
            groups = list(reader.groups(start, stop))
            yield from reader.read(groups, None, start=start, stop=stop, ahead=2)


def runs_of(
    segments: Iterable[SegmentInfo], reader_of: Callable[[SegmentInfo], SegmentReader]
) -> list[Run]:
    """Segments grouped into runs, the run with the newest rows first."""
    return newest_first(Run(run, reader_of) for run in Segments.of(segments).runs)


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Runs in the order in which a point read asks them."""
    return sorted(runs, key=lambda run: -run.max_lsn)


class Readers:
    """The readers of one tree's segments, and its runs, each made once while a view uses it."""

    def __init__(self, store: Store, cache: BlockCache) -> None:
        self._store = store
        self._cache = cache
        self._readers: WeakValueDictionary[tuple[str, int], SegmentReader] = WeakValueDictionary()
        self._runs: WeakKeyDictionary[SegmentRun, Run] = WeakKeyDictionary()

    def of(self, info: SegmentInfo) -> SegmentReader:
        """The reader of a segment; always the same one while somebody uses it."""
        reader = self._readers.get((info.id, info.lsn))
        if reader is None:
            reader = SegmentReader(self._store, info.key, info, self._cache)
            reader = self._readers.setdefault((info.id, info.lsn), reader)
        return reader

    def run_of(self, segments: SegmentRun) -> Run:
        """The run of those segments; always the same one while they are the same."""
        run = self._runs.get(segments)
        if run is None:
            run = self._runs.setdefault(segments, Run(segments, self.of))
        return run


class View:
    """Reads from one state. Cheap to make; nothing is fetched before it is needed."""

    def __init__(
        self,
        manifest: Manifest,
        unfolded: Unfolded,
        readers: Readers,
        store: Store,
    ) -> None:
        self._concurrently = store.concurrently
        self.reader_of = readers.of
        self.manifest = manifest
        self.unfolded = unfolded
        self.truncated_at = unfolded.truncated_at
        self.ingests = unfolded.ingests
        self.memtable = unfolded.memtable
        self.segments = (Segments() if self.truncated_at else manifest.segments).plus(self.ingests)
        self.runs = newest_first(map(readers.run_of, self.segments.runs))

    @property
    def schema(self) -> Schema:
        """The schema, unfolded additions included."""
        return self.unfolded.schema

    def get(
        self, id: str | int, columns: Sequence[str] | None = None, *, arrays: bool = False
    ) -> Document | None:
        """The document, or None. Attributes that it does not have are left out. With `arrays`
        vectors are NumPy arrays."""
        return self._read(id, self.memtable.find(id), columns, arrays)

    def _read(
        self,
        id: str | int,
        versions: list[Version],
        columns: Sequence[str] | None,
        arrays: bool,
        held: Held | None = None,
    ) -> Document | None:
        if versions and not self.ingests:
            _, rows, row = versions[0]
            kind = kind_at(rows, row)
            if kind != PATCH:
                return None if kind == DELETE else _document(rows, row, columns, arrays)
        found = self._find(id, held)
        if not versions:
            if found is None or found[1].kind(found[2]) == DELETE:
                return None
            return found[1].document(found[2], columns, arrays=arrays)
        return _combine(versions, found, columns, arrays)

    def _find(self, id: str | int, held: Held | None = None) -> tuple[int, Group, int] | None:
        """The newest version of an id in the segments: (LSN, group, row)."""
        best: tuple[int, Group, int] | None = None
        for run in self.runs:
            if best is not None and best[0] >= run.max_lsn:
                break
            reader = run.holder(id)
            if reader is None:
                continue
            hit = reader.find(id, held)
            if hit is not None:
                lsn = hit[0].lsn(hit[1])
                if best is None or lsn > best[0]:
                    best = (lsn, *hit)
        return best

    def get_many(
        self,
        ids: Sequence[str | int],
        columns: Sequence[str] | None = None,
        *,
        arrays: bool = False,
    ) -> list[Document | None]:
        """The documents of those ids, in their order, None for each that is not there."""
        versions = self.memtable.find_many(ids) if self.memtable.rows else None
        return self._get_all(ids, versions, columns, arrays)

    def exist_many(self, ids: Sequence[str | int]) -> list[bool]:
        """Whether there is a document of each of those ids. Patches need not be looked at."""
        bases = self.memtable.find_bases(ids)
        found = [base is not None and kind_at(base[1], base[2]) != DELETE for base in bases]
        rest = [place for place, base in enumerate(bases) if base is None or self.ingests]
        if rest:
            versions = [[base] if base is not None else [] for base in map(bases.__getitem__, rest)]
            documents = self._get_all([ids[place] for place in rest], versions, (), False)
            for place, document in zip(rest, documents, strict=True):
                found[place] = document is not None
        return found

    def _get_all(
        self,
        ids: Sequence[str | int],
        versions: list[list[Version]] | None,
        columns: Sequence[str] | None,
        arrays: bool,
    ) -> list[Document | None]:
        if versions is None and len(self.runs) == 1 and len(self.runs[0].readers) == 1:
            hits = self.runs[0].readers[0].find_many(ids, most=_IDS_AT_ONCE)
            if hits is not None:
                return _documents(hits, columns, arrays)
        if len(ids) <= _IDS_AT_ONCE:
            return self._get_some(ids, versions, columns, arrays, self._prefetch(ids))
        # In the order of ids, so that no more than a few groups are held, and each only once.
        order = sorted(range(len(ids)), key=ids.__getitem__)  # type: ignore[arg-type]
        found: list[Document | None] = [None] * len(ids)
        kept = 0
        for start in range(0, len(order), _IDS_AT_ONCE):
            places = order[start : start + _IDS_AT_ONCE]
            some = [ids[place] for place in places]
            held = self._prefetch(some, keep=kept < _KEPT_BYTES)
            kept += sum(group.nbytes for group in held.values())
            theirs = None if versions is None else [versions[place] for place in places]
            for place, document in zip(
                places, self._get_some(some, theirs, columns, arrays, held), strict=True
            ):
                found[place] = document
        return found

    def _get_some(
        self,
        ids: Sequence[str | int],
        versions: list[list[Version]] | None,
        columns: Sequence[str] | None,
        arrays: bool,
        held: Held,
    ) -> list[Document | None]:
        if versions is None and len(self.runs) == 1:
            return _from_run(self.runs[0], ids, columns, arrays, held)
        if versions is None:
            return [self._read(id, [], columns, arrays, held) for id in ids]
        return [
            self._read(id, some, columns, arrays, held)
            for id, some in zip(ids, versions, strict=True)
        ]

    def _prefetch(self, ids: Sequence[str | int], *, keep: bool = True) -> Held:
        """Fetch what those ids need, in two rounds of parallel requests, into the cache if it is
        to be kept. What was fetched is held by the caller in any case."""
        if len(ids) < 2 or not self.runs:
            return {}
        wanted: dict[SegmentReader, list[str | int]] = {}
        for run in self.runs:
            if len(run.readers) == 1:
                wanted[run.readers[0]] = list(ids)
                continue
            for id in ids:
                reader = run.holder(id)
                if reader is not None:
                    wanted.setdefault(reader, []).append(id)
        cold = [reader.tail for reader in wanted if not reader.is_open()]
        self._concurrently(cold)
        loads: dict[Hashable, Callable[[], Group]] = {}
        for reader, some in wanted.items():
            loads |= reader.loads(some, keep=keep)
        return dict(zip(loads, self._concurrently(list(loads.values())), strict=True))

    def scan(
        self,
        *,
        start: str | int | None = None,
        stop: str | int | None = None,
        columns: Sequence[str] | None = None,
        filter: Expression | None = None,
        reverse: bool = False,
        memory: MemoryRuns | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Row batches of the documents with ids in [start, stop), in id order.

        Only the attributes asked for and those that the filter looks at are fetched. `memory` is
        what `pin` gave, for the rows of that moment; otherwise the log's newest rows are shown.
        """
        return scan_rows(
            self.runs,
            self.memtable.sorted() if memory is None else memory,
            start=start,
            stop=stop,
            columns=columns,
            filter=filter,
            reverse=reverse,
        )

    def pin(self) -> MemoryRuns:
        """The rows that the unfolded log holds now, for scans that are to begin later."""
        return self.memtable.sorted()

    def count(self) -> int:
        """How many documents there are."""
        plain = not self.memtable.rows and len(self.runs) <= 1
        if plain and not any(info.tombstones for info in self.segments):
            return sum(info.rows for info in self.segments)
        return sum(batch.num_rows for batch in self.scan(columns=()))


def _from_run(
    run: Run,
    ids: Sequence[str | int],
    columns: Sequence[str] | None,
    arrays: bool,
    held: Held,
) -> list[Document | None]:
    """Documents of a state that is one run and nothing else: the first hit is the only one."""
    hits: list[tuple[Group, int] | None] = [None] * len(ids)
    places: dict[SegmentReader, list[int]] = {}
    for place, id in enumerate(ids):
        reader = run.holder(id)
        if reader is not None:
            places.setdefault(reader, []).append(place)
    for reader, some in places.items():
        found = reader.find_many([ids[place] for place in some], held)
        for place, hit in zip(some, found or (), strict=True):
            hits[place] = hit
    return _documents(hits, columns, arrays)


def _documents(
    hits: Iterable[tuple[Group, int] | None], columns: Sequence[str] | None, arrays: bool
) -> list[Document | None]:
    return [
        None
        if hit is None or hit[0].kind(hit[1]) == DELETE
        else hit[0].document(hit[1], columns, arrays=arrays)
        for hit in hits
    ]


def _document(rows: Rows, row: int, columns: Sequence[str] | None, arrays: bool) -> Document:
    if isinstance(rows, PlainRows):
        return rows.document(row, columns, arrays=arrays)
    return document_of(rows, row, columns, arrays=arrays)


def _combine(
    versions: list[Version],
    found: tuple[int, Group, int] | None,
    columns: Sequence[str] | None,
    arrays: bool,
) -> Document | None:
    """Versions of one document, from the log (newest first) and from the segments, into one."""
    patches: list[tuple[Rows, int]] = []
    document: Document | None = None
    if found is not None:
        versions = _apart(versions, found[0])
    for lsn, rows, row in versions:
        if found is not None and found[0] > lsn:
            break
        kind = kind_at(rows, row)
        if kind != PATCH:
            document = None if kind == DELETE else _document(rows, row, columns, arrays)
            found = None
            break
        patches.append((rows, row))
    if found is not None and found[1].kind(found[2]) != DELETE:
        document = found[1].document(found[2], columns, arrays=arrays)
    if document is None:
        return None
    for rows, row in reversed(patches):
        document.update(_document(rows, row, columns, arrays))
    return document


def _apart(versions: list[Version], lsn: int) -> list[Version]:
    """The versions with merged patches taken apart where a bulk load came between them."""
    apart: list[Version] = []
    for version in versions:
        rows = version[1]
        if isinstance(rows, MergedPatches) and rows.first_lsn < lsn < version[0]:
            apart += rows.versions()
        else:
            apart.append(version)
    return apart

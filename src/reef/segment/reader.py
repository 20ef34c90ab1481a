"""Reading a segment: ids found one by one or together, and groups of rows in bulk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.statistics import ColumnStatistics
from reef.errors import Corruption
from reef.segment.bloom import hash_ids
from reef.segment.cache import BlockCache
from reef.segment.fetch import SPAN_BYTES, Fetch, cut, names_of, plan
from reef.segment.group import Group
from reef.segment.info import SegmentInfo
from reef.segment.tail import Tail
from reef.segment.verify import Problem, verify_segment
from reef.store.contract import Pending, Store

SMALL_SEGMENT = 256 * 1024
_FETCHES_AHEAD = 8


class SegmentReader:
    """One segment of a store. Reads nothing until asked; safe to use from many threads."""

    def __init__(self, store: Store, key: str, info: SegmentInfo, cache: BlockCache) -> None:
        self.key = key
        self.info = info
        self._store = store
        self._cache = cache
        self._group_key = (info.id, info.lsn)
        self._tail_key = (self._group_key, "tail")
        self._lock = Lock()

    def tail(self) -> Tail:
        """Footer, index and filter, from the cache or with one request."""
        tail = self._cache.get(self._tail_key)
        if tail is None:
            with self._lock:
                tail = self._cache.get(self._tail_key)
                if tail is None:
                    tail = self._load_tail()
                    self._cache.put(self._tail_key, tail)
        return cast(Tail, tail)

    def _load_tail(self) -> Tail:
        size = self.info.size
        length = size if size <= SMALL_SEGMENT else self.info.tail
        data = self._store.get_range(self.key, size - length, length)
        if len(data) != length:
            raise Corruption(self.key, "it ends early", size - length + len(data))
        tail = Tail(self.key, data, size, self._group_key)
        tail.check_against(self.key, self.info)
        return tail

    def may_contain(self, identity: str | int) -> bool:
        """False only if the id is certainly not here."""
        info = self.info
        if not info.min_id <= identity <= info.max_id:  # type: ignore[operator]
            return False
        return self.tail().filter.may_contain(identity)

    def may_contain_many(self, ids: pa.Array) -> np.ndarray:
        """Per id, False only if it is certainly not here."""
        return self.tail().filter.may_contain_hashes(hash_ids(ids))

    def find(
        self, identity: str | int, held: Mapping[Hashable, Group] | None = None
    ) -> tuple[Group, int] | None:
        """The group and the row that hold an id. Groups in `held` need not be in the cache."""
        info = self.info
        if identity < info.min_id or identity > info.max_id:  # type: ignore[operator]
            return None
        tail = self._cache.get(self._tail_key) or self.tail()
        number = bisect_right(tail.index.first, identity) - 1
        key = tail.group_keys[number]
        group = self._cache.get(key)
        if group is None and held is not None:
            group = held.get(key)
        if group is None:
            if not tail.filter.may_contain(identity):
                return None
            group = self._load_group(tail, number)
        ids = group._ids
        if ids is None:
            place = group.row_of(identity)
            return None if place is None else (group, place)
        row = bisect_left(ids, identity)
        if row < len(ids) and ids[row] == identity:
            return group, row
        return None

    def find_many(
        self,
        ids: Sequence[str | int],
        held: Mapping[Hashable, Group] | None = None,
        *,
        most: int | None = None,
    ) -> list[tuple[Group, int] | None] | None:
        """What `find` gives for each of the ids; what must be fetched is fetched together. None,
        and nothing fetched, if that is more than `most` groups."""
        tail = self.tail()
        first, keys, get = tail.index.first, tail.group_keys, self._cache.get
        numbers = [bisect_right(first, identity) - 1 for identity in ids]
        groups: dict[int, Group | None] = {
            number: get(keys[number]) if number >= 0 else None for number in set(numbers)
        }
        if held:
            for number, group in groups.items():
                if group is None and number >= 0:
                    groups[number] = held.get(keys[number])
        missing: set[int] = set()
        if None in groups.values():
            for number, identity in zip(numbers, ids, strict=True):
                wanted = number >= 0 and groups[number] is None and number not in missing
                if wanted and tail.filter.may_contain(identity):
                    missing.add(number)
            if most is not None and len(missing) > most:
                return None
            some = sorted(missing)
            loads = [partial(self._load_group, tail, number) for number in some]
            groups.update(zip(some, self._store.concurrently(loads), strict=True))
        found: list[tuple[Group, int] | None] = []
        for number, identity in zip(numbers, ids, strict=True):
            group = groups[number]
            if group is None:
                found.append(None)
                continue
            # The look into a warm group is written out: a call would cost as much as it does.
            known = group._ids
            if known is None:
                place = group.row_of(identity)
                found.append(None if place is None else (group, place))
                continue
            row = bisect_left(known, identity)
            if row < len(known) and known[row] == identity:
                found.append((group, row))
            else:
                found.append(None)
        return found

    def is_open(self) -> bool:
        """Whether the tail is in the cache, so that looking for an id needs it no more."""
        return self._cache.get(self._tail_key) is not None

    def loads(
        self, ids: Iterable[str | int], *, keep: bool = True
    ) -> dict[Hashable, Callable[[], Group]]:
        """Calls that fetch the groups that may hold these ids, by their keys in the cache, and
        put them there if they are to be kept.

        None for what is there already, one a group otherwise. They may run in parallel.
        """
        tail = self.tail()
        first, keys = tail.index.first, tail.group_keys
        peek = self._cache.peek
        missing: set[int] = set()
        for identity in ids:
            number = bisect_right(first, identity) - 1
            if number in missing or number < 0 or peek(keys[number]) is not None:
                continue
            if tail.filter.may_contain(identity):
                missing.add(number)
        return {
            keys[number]: partial(self._load_group, tail, number, keep=keep)
            for number in sorted(missing)
        }

    def _load_group(self, tail: Tail, number: int, *, keep: bool = True) -> Group:
        start, length = tail.index.span(number)
        if tail.whole is not None:
            data = tail.whole[start : start + length]
        else:
            data = self._store.get_range(self.key, start, length)
        group = self._group(tail, number, None, [data], [(start, length)])
        if keep:
            self._cache.put(tail.group_keys[number], group)
        return group

    def _group(
        self,
        tail: Tail,
        number: int,
        columns: Sequence[str] | None,
        data: Sequence[memoryview],
        ranges: Sequence[tuple[int, int]],
    ) -> Group:
        places = tail.index.places(number)
        blocks = {
            name: cut(data, ranges, places[name].offset, places[name].length)
            for name in names_of(tail.index, number, columns)
        }
        rows = tail.index.rows[number]
        return Group(self.key, tail.schema, rows, places, blocks, self.info.lsn)

    def lookup(
        self, ids: pa.Array, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows among these sorted, distinct ids that are here, with their LSNs and kinds, in
        order. Groups are read as they are needed, a few at a time."""
        if not len(ids):
            return
        tail = self.tail()
        ids = ids.filter(pa.array(tail.filter.may_contain_hashes(hash_ids(ids))))
        wanted = _by_group(ids, tail.index.first)
        batches = self.read(list(wanted), columns)
        for some, batch in zip(wanted.values(), batches, strict=True):
            rows = _rows_of(batch.column(0), some)
            if len(rows):
                yield batch.take(pa.array(rows))

    def groups(self, start: str | int | None = None, stop: str | int | None = None) -> range:
        """The numbers of the groups that can hold ids in [start, stop)."""
        index = self.tail().index
        # Both lists hold ids of one type, which the caller's are of too.
        first = 0 if start is None else bisect_left(cast(list[str], index.last), cast(str, start))
        if stop is None:
            return range(first, index.count)
        return range(first, max(first, bisect_left(cast(list[str], index.first), cast(str, stop))))

    def group_bounds(self, group: int) -> tuple[str | int, str | int]:
        """The first and the last id of a group."""
        index = self.tail().index
        return index.first[group], index.last[group]

    def group_rows(self, group: int) -> int:
        """How many rows a group has, tombstones too."""
        return self.tail().index.rows[group]

    def group_bytes(self, group: int) -> int:
        """How many bytes of the object a group takes."""
        return self.tail().index.span(group)[1]

    def statistics(
        self, group: int, columns: Iterable[str] | None = None
    ) -> Mapping[str, ColumnStatistics]:
        """Bounds and counts of a group's columns, or of some; one not in it is in no row."""
        tail = self.tail()
        return tail.index.statistics(group, tail.schema, columns)

    def read(
        self,
        groups: Sequence[int],
        columns: Sequence[str] | None = None,
        *,
        start: str | int | None = None,
        stop: str | int | None = None,
        ahead: int = 8,
    ) -> Iterator[pa.RecordBatch]:
        """Rows with ids in [start, stop), a batch a group, in the order of `groups`.

        While a batch is at hand, about `ahead` spans of 2 MiB are being fetched, if the store is
        one that makes one wait. Nothing is put into the cache.
        """
        tail = self.tail()
        fetches = deque(self._plan(tail, groups, columns))
        started: deque[tuple[Fetch, Pending[_Fetched] | None]] = deque()
        if self._store.is_local:
            ahead = 0
        flying = 0
        while fetches or started:
            while fetches and (
                not started
                or (
                    len(started) < _FETCHES_AHEAD * ahead
                    and flying + fetches[0].nbytes <= ahead * SPAN_BYTES
                )
            ):
                fetch = fetches.popleft()
                flying += fetch.nbytes
                # Only fetched ahead, not decoded: that would have two threads wait for each
                # other's turn with the interpreter, which costs more than it gains.
                begin = ahead > 0 and fetch.ranges
                call = partial(self._data, fetch)
                started.append((fetch, self._store.start(call) if begin else None))
            fetch, pending = started.popleft()
            fetched = pending.result() if pending else self._data(fetch)
            flying -= fetch.nbytes
            yield from self._batches(tail, columns, start, stop, fetch, fetched)

    def _data(self, fetch: Fetch) -> _Fetched:
        if not fetch.ranges:
            return _Fetched([])
        return _Fetched(self._store.get_ranges(self.key, fetch.ranges))

    def _plan(
        self, tail: Tail, groups: Sequence[int], columns: Sequence[str] | None
    ) -> Iterator[Fetch]:
        """Fetches in the order of the groups; those in memory have no ranges."""
        missing: list[int] = []
        for number in groups:
            if tail.whole is None and self._cache.peek(tail.group_keys[number]) is None:
                missing.append(number)
                continue
            yield from plan(tail.index, missing, columns)
            missing = []
            yield Fetch((number,), ())
        yield from plan(tail.index, missing, columns)

    def _batches(
        self,
        tail: Tail,
        columns: Sequence[str] | None,
        start: str | int | None,
        stop: str | int | None,
        fetch: Fetch,
        fetched: _Fetched,
    ) -> Iterator[pa.RecordBatch]:
        # One group after the other: a decoded one takes several times what was fetched of it.
        for number in fetch.groups:
            if fetch.ranges:
                group = self._group(tail, number, columns, fetched, fetch.ranges)
            else:
                group = self._group_in_memory(tail, number, columns)
            batch = _trimmed(group.batch(columns), start, stop)
            del group
            if batch.num_rows:
                yield batch

    def _group_in_memory(self, tail: Tail, number: int, columns: Sequence[str] | None) -> Group:
        group = self._cache.peek(tail.group_keys[number])
        if group is None:
            # The segment is small, or the group was evicted since the plan was made.
            if tail.whole is not None:
                return self._group(tail, number, columns, [tail.whole], [(0, len(tail.whole))])
            (fetch,) = plan(tail.index, [number], columns)
            return self._group(tail, number, columns, self._data(fetch), fetch.ranges)
        return cast(Group, group)

    def verify(self, deep: bool = False) -> list[Problem]:
        """What is wrong with the object; with `deep`, every block and the checksum of it all."""
        return verify_segment(self._store, self.key, self.info, deep=deep)


class _Fetched(list[memoryview]):
    """The bytes of a fetch, one buffer a range."""


def _by_group(ids: pa.Array, first: list[str | int]) -> dict[int, pa.Array]:
    """The ids that each group may hold."""
    found: dict[int, pa.Array] = {}
    if not len(ids):
        return found
    values = ids.to_numpy(zero_copy_only=False).tolist()
    start = bisect_left(values, first[0])
    number = bisect_right(first, values[start]) - 1 if start < len(values) else len(first)
    while start < len(values):
        stop = len(values)
        if number + 1 < len(first):
            stop = bisect_left(values, first[number + 1], start)
        found[number] = ids[start:stop]
        start = stop
        if start < len(values):
            number = bisect_right(first, values[start], number + 1) - 1
    return found


def _rows_of(held: pa.Array, ids: pa.Array) -> np.ndarray:
    """The rows of sorted ids that hold these sorted ones, those that there are."""
    if pa.types.is_uint64(ids.type):
        numbers, wanted = np.asarray(held), np.asarray(ids)
        at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        return np.asarray(at[numbers[at] == wanted])
    found: np.ndarray = np.asarray(pc.index_in(ids, value_set=held).drop_null())
    return found


def _trimmed(
    batch: pa.RecordBatch, start: str | int | None, stop: str | int | None
) -> pa.RecordBatch:
    ids = batch.column(0)
    low = _position(ids, start) if start is not None else 0
    high = _position(ids, stop) if stop is not None else batch.num_rows
    if low == 0 and high == batch.num_rows:
        return batch
    return batch.slice(low, max(0, high - low))


def _position(ids: pa.Array, bound: str | int) -> int:
    """How many ids come before a bound."""
    if not ids[0].as_py() < bound:
        return 0
    if ids[-1].as_py() < bound:
        return len(ids)
    if pa.types.is_uint64(ids.type):
        return int(np.searchsorted(np.asarray(ids), np.uint64(bound)))
    return int(pc.sum(pc.less(ids, bound)).as_py())

"""Finding damage: everything a segment says, held against itself and against its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from reef.data.rows import DELETE
from reef.errors import Corruption, ObjectNotFound, UnsupportedFormat
from reef.segment.bloom import hash_ids
from reef.segment.bounds import bounds_of, python_bound
from reef.segment.fetch import SPAN_BYTES
from reef.segment.group import Group
from reef.segment.info import SegmentInfo
from reef.segment.layout import HEAD, TRAILER, check_head, decode_footer, footer_length
from reef.segment.tail import Tail
from reef.store.contract import Store

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with an object, at a byte of it."""

    key: str
    offset: int
    meaning: str

    def __str__(self) -> str:
        return f"{self.key} at byte {self.offset}: {self.meaning}"


def verify_segment(store: Store, key: str, info: SegmentInfo, *, deep: bool) -> list[Problem]:
    """What is wrong with a segment; never from a cache.

    Damage is believed after several looks: it may have been done on the way, and a repair sets
    aside whatever is damaged.
    """
    problems: list[Problem] = []
    for _ in range(_LOOKS):
        problems = _look(store, key, info, deep)
        if not problems:
            break
    return problems


def _look(store: Store, key: str, info: SegmentInfo, deep: bool) -> list[Problem]:
    try:
        size = store.head(key).size
        if size != info.size:
            meaning = f"it has {size} bytes where its manifest says {info.size}"
            return [Problem(key, min(size, info.size), meaning)]
        data = store.get_range(key, info.size - info.tail, info.tail)
        tail = Tail(key, data, info.size)
        tail.check_against(key, info)
        problems = list(_check_index(key, tail))
        if deep:
            problems += _check_data(store, key, info, tail, data)
    except ObjectNotFound:
        return [Problem(key, 0, "it is missing")]
    except (Corruption, UnsupportedFormat) as error:
        return [_problem(key, error)]
    return problems


def describe(store: Store, key: str) -> SegmentInfo:
    """The `SegmentInfo` of a segment from the object alone, reading all of it once.

    Raises `Corruption` when its tail is damaged; blocks are not decoded.
    """
    size = store.head(key).size
    data = store.get_range(key, max(0, size - TRAILER.size), TRAILER.size)
    length = footer_length(key, data, size)
    footer, _ = decode_footer(key, store.get_range(key, max(0, size - length), length), size)
    checksum = 0
    for start in range(0, size, SPAN_BYTES):
        checksum = crc32c(store.get_range(key, start, SPAN_BYTES), checksum)
    return footer.describe(size, checksum)


def _problem(key: str, error: Corruption | UnsupportedFormat) -> Problem:
    if isinstance(error, Corruption):
        return Problem(key, error.offset, error.reason)
    return Problem(key, 0, str(error))


def _check_index(key: str, tail: Tail) -> Iterator[Problem]:
    index, footer = tail.index, tail.footer
    at = footer.index.offset
    edges = [edge for pair in zip(index.first, index.last, strict=True) for edge in pair]
    # Within a group first and last may be one id; between groups ids must ascend.
    pairs = enumerate(pairwise(edges))
    if any(low > high or (low == high and i % 2) for i, (low, high) in pairs):  # type: ignore[operator]
        yield Problem(key, at, "the groups in its index are not in id order")
    stated = (footer.rows, footer.tombstones, footer.min_id, footer.max_id)
    if stated != (sum(index.rows), sum(index.tombstones), index.first[0], index.last[-1]):
        yield Problem(key, at, "its index and its footer disagree about its rows")
    if (footer.min_lsn, footer.max_lsn) != (min(index.min_lsn), max(index.max_lsn)):
        yield Problem(key, at, "its index and its footer disagree about its LSNs")


def _check_data(
    store: Store, key: str, info: SegmentInfo, tail: Tail, tail_data: memoryview
) -> Iterator[Problem]:
    index, data_end = tail.index, tail.footer.data_end
    head = store.get_range(key, 0, HEAD.size)
    try:
        check_head(key, head)
    except (Corruption, UnsupportedFormat) as error:
        yield _problem(key, error)
    checksum = crc32c(head)
    starts = [index.span(number)[0] for number in range(index.count)] + [data_end]
    number = 0
    while number < index.count:
        begin, stop = starts[number], number + 1
        while stop < index.count and starts[stop + 1] - begin <= SPAN_BYTES:
            stop += 1
        data = store.get_range(key, begin, starts[stop] - begin)
        checksum = crc32c(data, checksum)
        for group in range(number, stop):
            yield from _check_group(key, tail, group, data, begin)
        number = stop
    if crc32c(tail_data, checksum) != info.checksum:
        yield Problem(key, 0, "the checksum of the whole object is not what its manifest says")


def _check_group(
    key: str, tail: Tail, number: int, data: memoryview, begin: int
) -> Iterator[Problem]:
    index = tail.index
    places = index.places(number)
    blocks = {
        name: data[place.offset - begin : place.offset - begin + place.length]
        for name, place in places.items()
    }
    at = places[None].offset
    try:
        group = Group(key, tail.schema, index.rows[number], places, blocks, 0)
    except Corruption as error:
        yield _problem(key, error)
        return
    ids = group.ids
    if (ids[0].as_py(), ids[-1].as_py()) != (index.first[number], index.last[number]):
        yield Problem(key, at, "a group has other ids than the index says")
    if len(ids) > 1 and not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
        yield Problem(key, at, "the ids of a group do not ascend")
    if int(np.count_nonzero(group.kinds == DELETE)) != index.tombstones[number]:
        yield Problem(key, at, "a group has another number of tombstones than the index says")
    lsns = (int(group.lsns.min()), int(group.lsns.max()))
    if lsns != (index.min_lsn[number], index.max_lsn[number]):
        yield Problem(key, at, "a group has other LSNs than the index says")
    if not bool(tail.filter.may_contain_hashes(hash_ids(ids)).all()):
        yield Problem(key, tail.footer.filter.offset, "its filter lacks an id that it holds")
    try:
        statistics = index.statistics(number, tail.schema)
    except Corruption as error:
        yield _problem(key, error)
        return
    for name, said in statistics.items():
        offset = places[name].offset if name in places else at
        try:
            column = group.column(name)
        except Corruption as error:
            yield _problem(key, error)
            continue
        kind = tail.schema.attributes[name]
        values = column.values if column else pa.nulls(group.rows, kind.arrow)
        nulls = int(pc.sum(column.nulls).as_py()) if column and column.nulls is not None else 0
        if (said.valid, said.nulls) != (len(values) - values.null_count, nulls):
            yield Problem(key, offset, f"the statistics of {name!r} count other values than it has")
        low, high = (python_bound(bound, kind) for bound in bounds_of(values, kind))
        if not (_within(said.minimum, low) and _within(high, said.maximum)):
            yield Problem(key, offset, f"the statistics of {name!r} do not bound its values")


def _within(low: object, high: object) -> bool:
    return low is None or high is None or bool(low <= high)  # type: ignore[operator]

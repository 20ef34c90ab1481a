"""Planning requests: which byte ranges to ask for, and which of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reef.segment.index import Index

Range = tuple[int, int]

GAP = 16 * 1024
"""Two ranges no further apart than this are fetched as one."""

SPAN_BYTES = 2 * 1024 * 1024
SPAN_GROUPS = 32
SPAN_RANGES = 4


@dataclass(frozen=True, slots=True)
class Fetch:
    """Groups, in the order wanted, whose blocks lie in these (start, length) ranges."""

    groups: tuple[int, ...]
    ranges: tuple[Range, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it asks for."""
        return sum(length for _, length in self.ranges)


def names_of(index: Index, group: int, columns: Sequence[str] | None) -> list[str | None]:
    """The blocks to read of a group, its key block (None) first."""
    places = index.places(group)
    if columns is None:
        return list(places)
    return [None, *(name for name in columns if name in places)]


def ranges_of(index: Index, group: int, columns: Sequence[str] | None) -> list[Range]:
    """The ranges of a group's blocks, joined where they are near."""
    if columns is None:
        return [index.span(group)]
    places = index.places(group)
    wanted = [places[name] for name in names_of(index, group, columns)]
    return join([(place.offset, place.length) for place in wanted])


def join(ranges: Sequence[Range]) -> list[Range]:
    """Sorted ranges, those with small gaps made one."""
    joined: list[Range] = []
    for start, length in sorted(ranges):
        if joined:
            before, size = joined[-1]
            if start - before - size <= GAP:
                joined[-1] = before, max(size, start + length - before)
                continue
        joined.append((start, length))
    return joined


def plan(index: Index, groups: Sequence[int], columns: Sequence[str] | None) -> list[Fetch]:
    """Fetches for the groups in their order, each bounded in bytes, groups and requests."""
    fetches: list[Fetch] = []
    members: list[int] = []
    ranges: list[Range] = []
    for group in groups:
        own = ranges_of(index, group, columns)
        both = join([*ranges, *own])
        if members and (
            len(members) >= SPAN_GROUPS
            or len(both) > SPAN_RANGES
            or sum(length for _, length in both) > SPAN_BYTES
        ):
            fetches.append(Fetch(tuple(members), tuple(ranges)))
            members, both = [], own
        members.append(group)
        ranges = both
    if members:
        fetches.append(Fetch(tuple(members), tuple(ranges)))
    return fetches


def cut(data: Sequence[memoryview], ranges: Sequence[Range], start: int, length: int) -> memoryview:
    """The bytes of one block out of what was fetched; short if the object was."""
    for buffer, (at, size) in zip(data, ranges, strict=True):
        if at <= start < at + size:
            return buffer[start - at : start - at + length]
    return memoryview(b"")

"""What the segments of a tree say of themselves, added up per attribute without reading rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reef.lsm.tree import Tree
from reef.segment import SegmentReader


@dataclass(frozen=True)
class About:
    """One attribute over all stored rows. Bounds may be looser than the data; None: not known."""

    name: str
    type: str
    values: int = 0
    nulls: int = 0
    absent: int = 0
    bytes: int = 0
    minimum: Any = None
    maximum: Any = None

    def and_group(self, statistics: Any, size: int) -> About:
        """With one more row group."""
        return replace(
            self,
            values=self.values + statistics.valid,
            nulls=self.nulls + statistics.nulls,
            absent=self.absent + statistics.absent,
            bytes=self.bytes + size,
            minimum=_least(self.minimum, statistics.minimum, min),
            maximum=_least(self.maximum, statistics.maximum, max),
        )


@dataclass(frozen=True)
class Statistics:
    """All of it. `rows` counts stored versions without tombstones, `unfolded` those in the log."""

    rows: int
    bytes: int
    segments: int
    unfolded: int
    id_kind: str | None
    attributes: tuple[About, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        from reef.cli.output import plain

        return dict(plain(self))


def _least(one: Any, other: Any, choose: Any) -> Any:
    return other if one is None else one if other is None else choose(one, other)


def gather(tree: Tree) -> Statistics:
    """The statistics of a tree that was recovered: one request a segment."""
    view = tree.view
    segments = (*view.manifest.segments, *view.ingests)
    readers = [tree.reader_of(info) for info in segments]
    tree.store.concurrently([reader.tail for reader in readers])
    found = {name: About(name, str(kind)) for name, kind in view.schema.attributes.items()}
    for reader in readers:
        _add(found, reader)
    return Statistics(
        rows=sum(info.rows - info.tombstones for info in segments),
        bytes=sum(info.size for info in segments),
        segments=len(segments),
        unfolded=view.unfolded.memtable.rows,
        id_kind=view.schema.id_kind,
        attributes=tuple(found.values()),
    )


def _add(found: dict[str, About], reader: SegmentReader) -> None:
    index = reader.tail().index
    for group in range(index.count):
        statistics = reader.statistics(group)
        places = index.places(group)
        rows = reader.group_rows(group)
        for name, about in found.items():
            known = statistics.get(name)
            if known is None:
                found[name] = replace(about, absent=about.absent + rows)
            else:
                place = places.get(name)
                found[name] = about.and_group(known, 0 if place is None else place.length)

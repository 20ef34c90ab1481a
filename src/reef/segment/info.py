"""What a manifest says about a segment: enough to plan reads without touching it."""

from __future__ import annotations

import msgspec

PREFIX = "segments/"


class SegmentInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A segment as its writer described it, and as its manifest or ingest record names it.

    `birth` is the manifest generation that its maker started from: see `orphan_floor`.
    `run` is shared by the segments that one job wrote, whose id ranges are disjoint.
    `lsn` is nonzero when all rows take the LSN of the ingest record that brought them.
    `tail` is the length of everything behind the last row group (filter, index, footer):
    one ranged GET of the last `tail` bytes is enough to plan every read.
    """

    id: str
    birth: int
    run: str
    level: int
    rows: int
    tombstones: int
    min_id: str | int
    max_id: str | int
    min_lsn: int
    max_lsn: int
    size: int
    tail: int
    checksum: int
    lsn: int = 0

    @property
    def key(self) -> str:
        """Where it lies below the namespace's prefix."""
        return f"{PREFIX}{self.birth:020d}-{self.id}.seg"


def birth_of(key: str) -> int | None:
    """The birth generation that a segment's key names, or None if it is no segment's key."""
    name = key.rpartition("/")[2]
    number = name[:20]
    return (
        int(number) if name.endswith(".seg") and number.isdigit() and name[20:21] == "-" else None
    )

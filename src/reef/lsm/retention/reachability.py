"""What is needed of a bucket: one answer, for collection, verification and tests.

A root needs what it names, and what its lists say that a retained generation did: objects that a
generation stopped naming, and log slots that one moved below the floor. A pinned state needs what
its own generation names, and its part of the log. Whatever the lists of a root forget, by
publication, is needed no more, unless a pin needs it: then it is not forgotten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reef.manifest import LogSpan, Manifest, Settings, Superseded
from reef.manifest.retired import Retired
from reef.segment import SegmentInfo


class Retaining(Protocol):
    """What retention asks of a root of any kind."""

    @property
    def settings(self) -> Settings:
        """How long superseded state is retained, and anything unneeded kept."""

    @property
    def patience(self) -> float:
        """For how many seconds what was superseded is kept."""

    @property
    def ended(self) -> bool:
        """Whether it says that what it was the root of is no more."""

    @property
    def first_lsn(self) -> int:
        """The first slot of its log: what lies below was of another one of that name."""

    @property
    def generation(self) -> int:
        """Its number."""

    @property
    def oldest_generation(self) -> int:
        """The oldest generation that is retained; 0 if none was ever collected."""

    @property
    def wal_floor(self) -> int:
        """The first slot of the log that is not folded."""

    @property
    def orphan_floor(self) -> int:
        """The birth below which nothing can be named any more that is not named yet."""

    @property
    def superseded(self) -> Retired:
        """Objects that a retained generation names, and this one does not."""

    @property
    def folded(self) -> tuple[LogSpan, ...]:
        """Slots below the floor that retained generations may replay."""


@dataclass(frozen=True)
class Needs:
    """What a state needs: its generation, objects by key, and log slots `first` through `last`.

    If `keys` is None nobody can tell: then it needs whatever later generations retired.
    """

    generation: int
    keys: frozenset[str] | None
    first: int = 1
    last: int = 0

    def has(self, gone: Superseded) -> bool:
        """Whether it needs an object that a generation stopped naming."""
        if self.keys is None:
            return gone.generation > self.generation
        return gone.key in self.keys

    def part(self, span: LogSpan) -> LogSpan | None:
        """The slots that it needs of a span that a generation moved below the floor."""
        if span.generation <= self.generation:
            return None
        if self.keys is None:
            return span
        first, last = max(span.first, self.first), min(span.last, self.last)
        return LogSpan(first, last, span.generation) if first <= last else None


def kept_objects(root: Retaining, through: int, pinned: Sequence[Needs]) -> Retired:
    """What is left of a root's superseded objects when those that generations up to `through`
    stopped naming are forgotten, except what a pinned state needs."""
    named = frozenset[str]().union(*(needs.keys for needs in pinned if needs.keys is not None))
    unknown = [needs for needs in pinned if needs.keys is None]

    def is_kept(gone: Superseded) -> bool:
        return (
            gone.generation > through
            or gone.key in named
            or any(needs.has(gone) for needs in unknown)
        )

    return root.superseded.where(is_kept)


def kept_slots(root: Retaining, through: int, pinned: Sequence[Needs]) -> tuple[LogSpan, ...]:
    """The same of its folded slots. A span of which parts are pinned falls into those."""
    kept: list[LogSpan] = []
    for span in root.folded:
        if span.generation > through:
            kept.append(span)
        else:
            parts = (part for needs in pinned if (part := needs.part(span)) is not None)
            kept += _joined(parts)
    return tuple(kept)


def _joined(spans: Iterable[LogSpan]) -> list[LogSpan]:
    joined: list[LogSpan] = []
    for span in sorted(spans, key=lambda span: span.first):
        if joined and span.first <= joined[-1].last + 1:
            before = joined.pop()
            span = LogSpan(before.first, max(before.last, span.last), before.generation)
        joined.append(span)
    return joined


def reachable_segments(manifest: Manifest, ingests: Iterable[SegmentInfo]) -> set[str]:
    """Keys of the segments that the manifest or an unfolded ingest record names, or that a
    state still retained did; and of the lists that name them."""
    keys = {info.key for info in (*manifest.segments, *manifest.window, *ingests)}
    keys |= {info.key for info in manifest.lists}
    keys |= {retired.list.key for retired in manifest.retired}
    return keys | {gone.key for gone in manifest.superseded}


def first_retained_slot(root: Retaining) -> int:
    """The slot from which on the whole log is retained. What lies below was forgotten, and an
    object found there may be one that a sleeping writer put into a slot collected before; or it
    is of a namespace of the same name that was dropped."""
    first = root.wal_floor
    for span in sorted(root.folded, reverse=True, key=lambda span: span.first):
        if span.last + 1 != first or span.last < root.first_lsn:
            break
        first = span.first
    return first


def is_retained_slot(root: Retaining, lsn: int) -> bool:
    """Whether a log slot is unfolded, or folded but still retained."""
    return lsn >= root.wal_floor or any(span.first <= lsn <= span.last for span in root.folded)


def are_retained_slots(root: Retaining, first: int, last: int) -> bool:
    """Whether every slot of a range is unfolded, or folded but still retained."""
    wanted = first
    for span in sorted(root.folded, key=lambda span: span.first):
        if span.first <= wanted <= span.last:
            wanted = span.last + 1
    return wanted > last or wanted >= root.wal_floor


def retained_slots(root: Retaining) -> list[range]:
    """The folded log slots that retained or pinned generations may replay, oldest first. Those of a
    namespace that was dropped are only waiting to be collected."""
    spans = [span for span in root.folded if span.last >= root.first_lsn]
    return [range(span.first, span.last + 1) for span in sorted(spans, key=_first)]


def span_of(spans: Sequence[LogSpan], lsn: int) -> LogSpan | None:
    """The span, of several in the order of their slots, that holds a slot."""
    place = bisect_left(spans, lsn + 1, key=_first) - 1
    return spans[place] if place >= 0 and lsn <= spans[place].last else None


def _first(span: LogSpan) -> int:
    return span.first

"""What a namespace needs of its bucket: one answer, for collection, verification and tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reef.manifest import Manifest, Pin
from reef.segment import SegmentInfo


def reachable_segments(manifest: Manifest, ingests: Iterable[SegmentInfo]) -> set[str]:
    """Keys of the segments that the manifest or an unfolded ingest record names, or that a
    generation still retained did; and of the lists that name them."""
    keys = {info.key for info in (*manifest.segments, *manifest.window, *ingests)}
    keys |= {info.key for info in manifest.lists}
    keys |= {retired.list.key for retired in manifest.retired}
    return keys | {gone.key for gone in manifest.superseded}


def first_retained_slot(manifest: Manifest) -> int:
    """The slot from which on the whole log is retained. What lies below was forgotten, and an
    object found there may be one that a sleeping writer put into a slot collected before."""
    first = manifest.wal_floor
    for span in sorted(manifest.folded, reverse=True, key=lambda span: span.first):
        if span.last + 1 != first:
            break
        first = span.first
    return first


def is_retained_slot(manifest: Manifest, lsn: int) -> bool:
    """Whether a log slot is unfolded, or folded but still retained."""
    return lsn >= manifest.wal_floor or any(
        span.first <= lsn <= span.last for span in manifest.folded
    )


def retained_slots(manifest: Manifest) -> list[tuple[int, int]]:
    """Ranges of folded log slots that generations still retained may replay, oldest first."""
    return [(span.first, span.last) for span in manifest.folded]


def oldest_pinned(pins: Mapping[str, Pin]) -> int | None:
    """The oldest generation that is pinned: what later ones stopped naming must stay."""
    return min((held.generation for held in pins.values()), default=None)

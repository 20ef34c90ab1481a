"""Inputs that vanish: background work that others have overtaken, and its objects collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reef.errors import ConcurrentPublication, Corruption, ObjectNotFound
from reef.lsm.retention.reachability import reachable_segments
from reef.lsm.tree import Tree
from reef.manifest import Manifest
from reef.segment import SegmentInfo


@contextmanager
def overtaken(
    tree: Tree, manifest: Manifest, ingests: Sequence[SegmentInfo] = ()
) -> Iterator[None]:
    """Work on the segments of a manifest, and on ingests of the log above it, while others may
    fold or compact them away and collect them.

    An object that is gone and that nothing names any more is a `ConcurrentPublication`: the work
    makes no sense. One that is still named was lost: `Corruption`.
    """
    try:
        yield
    except ObjectNotFound as gone:
        newest = tree.register.head().manifest
        unfolded = ingests if newest.wal_floor == manifest.wal_floor else ()
        if any(gone.key.endswith(key) for key in reachable_segments(newest, unfolded)):
            raise lost(gone) from gone
        raise ConcurrentPublication(
            f"{gone.key} was superseded and collected in the middle of the work on it"
        ) from gone


def lost(gone: ObjectNotFound) -> Corruption:
    """An object that should be there is not."""
    return Corruption(gone.key, "it is missing, and what is retained needs it")

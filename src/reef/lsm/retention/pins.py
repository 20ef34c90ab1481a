"""Pins: a state that somebody reads is kept from collection for as long as they say so.

A pin is an entry of the manifest, made, renewed and taken away by publication. One that is not
renewed lapses, by the bucket's own clock. What a collector forgets it forgets by publication, so
it sees the pins that were there before. Only manifests themselves are deleted without one. For
them, a collector takes the bucket's time before it reads the root, and a state can only be pinned
well before its manifest is due: whoever finds that it is due, finds the pin.
"""

from __future__ import annotations

import msgspec

from reef.errors import ObjectNotFound, PastRetention
from reef.lsm.read.history import moment_of
from reef.lsm.read.view import View
from reef.lsm.retention.reachability import first_retained_slot, reachable_segments
from reef.lsm.tree import Tree
from reef.manifest import Manifest, Pin

OLDEST = 0.75
"""The part of its retention through which a state can be pinned."""


def pin(tree: Tree, view: View, name: str, seconds: float) -> None:
    """Keep what a view needs, from now on for that many seconds, under a name of the caller's
    making. Pinning it again renews it. `PastRetention` if some of it was forgotten already, or
    will be soon."""
    moment = moment_of(view)
    fresh = False

    def edit(newest: Manifest) -> Manifest:
        nonlocal fresh
        before = newest.snapshots.get(name)
        # A pin on an older state keeps what this one needs too; one on a newer does not.
        fresh = before is None or before.generation > moment.generation
        if fresh:
            _check_kept(newest, view)
        held = Pin(moment.generation, moment.lsn, newest.generation, seconds)
        return msgspec.structs.replace(newest, snapshots={**newest.snapshots, name: held})

    head = tree.register.publish(edit)
    if fresh and not _is_young(tree, moment.generation, head.manifest):
        unpin(tree, name)
        raise _too_old(view)


def unpin(tree: Tree, name: str) -> None:
    """Let go of a pinned state. Nothing if the pin has lapsed."""

    def edit(newest: Manifest) -> Manifest | None:
        if name not in newest.snapshots:
            return None
        rest = {other: held for other, held in newest.snapshots.items() if other != name}
        return msgspec.structs.replace(newest, snapshots=rest)

    tree.register.publish(edit)


def _check_kept(newest: Manifest, view: View) -> None:
    unfolded = view.unfolded
    needed = {info.key for info in view.manifest.segments}
    needed |= {info.key for info in unfolded.named if info.lsn < newest.wal_floor}
    replayed = unfolded.next_lsn > view.manifest.wal_floor
    if not needed <= reachable_segments(newest, ()) or (
        replayed and view.manifest.wal_floor < first_retained_slot(newest)
    ):
        raise _too_old(view)


def _is_young(tree: Tree, generation: int, pinned: Manifest) -> bool:
    """Whether a generation was far from being due, by the bucket's times, when it was pinned."""
    if generation + 1 >= pinned.generation:
        return True
    settings = pinned.settings
    key = tree.register.key
    try:
        superseded = tree.store.head(key(generation + 1)).modified
        now = tree.store.head(key(pinned.generation)).modified
    except ObjectNotFound:
        return False
    return now - superseded < OLDEST * max(settings.retention, settings.grace)


def _too_old(view: View) -> PastRetention:
    return PastRetention(
        f"generation {view.manifest.generation} is hardly retained any more, and cannot be pinned"
    )

"""Collecting a tree: what its manifests, its log and its pinned states name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from reef.errors import ConcurrentPublication
from reef.log import WAL
from reef.log.tail import MissingSlot
from reef.lsm.records import Condemn, encode_condemn
from reef.lsm.retention import collector
from reef.lsm.retention.collection import Naming, Pinned, Plan
from reef.lsm.retention.collector import Collected, Face, Replan
from reef.lsm.retention.pinboard import PinnedState
from reef.lsm.retention.pins import needs_of
from reef.lsm.retention.reachability import Needs, kept_objects, kept_slots, reachable_segments
from reef.lsm.tree import Tree, replayed
from reef.lsm.write.guest import append_as_guest
from reef.manifest import MANIFESTS, Manifest, Pin
from reef.manifest.lists import PREFIX as LIST_PREFIX
from reef.manifest.lists import birth_of_list
from reef.manifest.manifests import PREFIX as MANIFEST_PREFIX
from reef.segment.info import PREFIX as SEGMENT_PREFIX
from reef.segment.info import birth_of
from reef.store.contract import ObjectInfo

FOLDERS = (MANIFEST_PREFIX, WAL.prefix, SEGMENT_PREFIX, LIST_PREFIX)


def _birth(key: str) -> int | None:
    """When the maker of a segment or a list began."""
    birth = birth_of(key)
    return birth_of_list(key) if birth is None else birth


NAMING = Naming(WAL.lsn_of, MANIFESTS.generation_of, _birth)


def collect(tree: Tree, *, apply: bool) -> Collected:
    """Find what nothing needs any more and, with `apply`, delete what is due."""
    return collector.collect(_TreeFace(tree), apply=apply)


class _TreeFace(Face[Manifest]):
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.store = tree.store
        self.environment = tree.environment
        self.register = tree.register
        self.board = tree.board
        self.naming = NAMING
        self.folders = FOLDERS
        self._known: dict[str, Pin] = {}
        self._lapsed: set[str] = set()

    def named(self, root: Manifest, objects: Sequence[ObjectInfo]) -> Collection[str]:
        named = reachable_segments(root, ())
        if all(info.key in named or not info.key.startswith(SEGMENT_PREFIX) for info in objects):
            return named
        try:
            unfolded = replayed(self.tree, root)
        except MissingSlot as gap:
            self.tree.past(gap)
            raise ConcurrentPublication("another collector was at work meanwhile") from None
        return named | {info.key for info in unfolded.named}

    def still_named(self, published: Manifest) -> Collection[str]:
        named = reachable_segments(published, ())
        if published.dropped:
            return named
        self.tree.refresh()
        view = self.tree.view
        return named | reachable_segments(view.manifest, view.unfolded.named)

    def needs(self, state: PinnedState) -> Needs:
        return needs_of(self.tree, state)

    def forget(self, newest: Manifest, plan: Plan, pinned: Sequence[Needs]) -> Manifest | None:
        superseded, folded = newest.superseded, newest.folded
        if plan.forgets:
            superseded = kept_objects(newest, plan.through, pinned)
            folded = kept_slots(newest, plan.through, pinned)
        changed = {
            "superseded": superseded,
            "folded": folded,
            "oldest_generation": max(newest.oldest_generation, plan.oldest_generation),
            "orphan_floor": max(newest.orphan_floor, plan.orphan_floor),
            "snapshots": self._snapshots_left(newest),
        }
        if all(getattr(newest, name) == value for name, value in changed.items()):
            return None
        return msgspec.structs.replace(newest, **changed)

    def condemn(self, floor: int) -> None:
        append_as_guest(self.tree, lambda view: ([], [encode_condemn(Condemn(floor))]))

    # Pins of former versions are in the manifest, and last since the generation that renewed them.

    def other_pins(self, root: Manifest, objects: Sequence[ObjectInfo], now: float) -> list[Pinned]:
        self._known = dict(root.snapshots)
        times = {MANIFESTS.generation_of(info.key): info.modified for info in objects}
        found = []
        for name, pin in sorted(root.snapshots.items()):
            until = times.get(pin.renewed, float("-inf")) + pin.seconds
            if until <= now:
                self._lapsed.add(name)
            else:
                needs = self.needs(PinnedState(pin.generation, pin.lsn, "", True))
                found.append(Pinned(name, needs, until))
        return found

    def _snapshots_left(self, newest: Manifest) -> dict[str, Pin]:
        for name, pin in newest.snapshots.items():
            before = self._known.get(name)
            if before is None or before.generation != pin.generation:
                raise Replan
            if name in self._lapsed and before != pin:
                raise Replan
        return {name: pin for name, pin in newest.snapshots.items() if name not in self._lapsed}


def list_objects(tree: Tree) -> list[ObjectInfo]:
    """Everything in the namespace's folders of manifests, log objects, segments and lists."""
    return collector.list_objects(tree.store, FOLDERS)

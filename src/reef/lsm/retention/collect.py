"""Collecting: forget by publication first, delete afterwards.

The order that makes it safe, whoever else is at work and whoever dies where:

1. A publication drops what is due from the manifest's lists and raises the orphan floor. From
   here on no indexer or compactor can publish a segment born below the floor.
2. If there are orphans, a log record carries the floor into the log. From its slot on no bulk load
   can ingest such a segment either, and what was ingested before it has been seen.
3. Only then objects are deleted, and of them only what the published manifest and the log leave
   unneeded: a repair may have named again what the plan took for due. From the publication on it
   cannot any more, since nothing protects what was forgotten. Dying in between leaves objects that
   the next pass finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from reef.errors import ConcurrentPublication
from reef.log import WAL
from reef.log.tail import MissingSlot
from reef.lsm.records import Condemn, encode_condemn
from reef.lsm.retention.collection import Collection, Doomed, plan_collection
from reef.lsm.retention.reachability import is_retained_slot, reachable_segments
from reef.lsm.tree import Tree, replayed
from reef.lsm.write.guest import append_as_guest
from reef.manifest import Manifest
from reef.manifest.lists import PREFIX as LIST_PREFIX
from reef.manifest.manifests import PREFIX as MANIFEST_PREFIX
from reef.segment import SegmentInfo
from reef.segment.info import PREFIX as SEGMENT_PREFIX
from reef.store.contract import ObjectInfo, Store

_CLOCK = "clock"


@dataclass(frozen=True)
class Collected:
    """What a pass found and, when applied, deleted."""

    plan: Collection
    applied: bool
    deleted: int
    bytes: int


class _Pinned(Exception):
    """A state was pinned since the plan was made."""


def collect(tree: Tree, *, apply: bool) -> Collected:
    """Find what nothing needs any more and, with `apply`, delete what is due."""
    while True:
        with suppress(_Pinned):
            return _collect(tree, apply)


def _collect(tree: Tree, apply: bool) -> Collected:
    # The time comes first: whatever was pinned by then, the root that is read afterwards tells.
    now = bucket_time(tree) if apply else tree.environment.now()
    head = tree.register.head()
    objects = list_objects(tree)
    plan = plan_collection(head.manifest, objects, _ingested(tree, head.manifest, objects), now)
    if not apply:
        return Collected(plan, False, 0, 0)

    planned = {name: held.generation for name, held in head.manifest.snapshots.items()}

    def forget(newest: Manifest) -> Manifest | None:
        for name, held in newest.snapshots.items():
            if planned.get(name) != held.generation or plan.lapsed.get(name, held) != held:
                raise _Pinned
        pins = {name: held for name, held in newest.snapshots.items() if name not in plan.lapsed}
        superseded = newest.superseded.where(lambda gone: gone.generation > plan.forgotten)
        folded = tuple(span for span in newest.folded if span.generation > plan.forgotten)
        floor = max(newest.orphan_floor, plan.orphan_floor)
        edited = msgspec.structs.replace(
            newest, superseded=superseded, folded=folded, orphan_floor=floor, snapshots=pins
        )
        unchanged = (newest.superseded, newest.folded, newest.orphan_floor, newest.snapshots)
        return None if (superseded, folded, floor, pins) == unchanged else edited

    head = tree.register.publish(forget, head)
    if plan.orphans:
        floor = head.manifest.orphan_floor
        append_as_guest(tree, lambda view: ([], [encode_condemn(Condemn(floor))]))
    victims = _unneeded(tree, head.manifest, (*plan.due, *plan.orphans))
    # In order: whoever finds a slot or a generation gone knows that those before it went first.
    tree.store.delete_many(sorted(victim.key for victim in victims))
    return Collected(plan, True, len(victims), sum(victim.size for victim in victims))


def _unneeded(tree: Tree, published: Manifest, doomed: Sequence[Doomed]) -> list[Doomed]:
    """Those of the planned objects that neither the manifest just published nor the log names."""
    if not any(item.key.startswith((SEGMENT_PREFIX, LIST_PREFIX)) for item in doomed):
        named: set[str] = set()
    else:
        tree.refresh()
        view = tree.view
        named = reachable_segments(published, ())
        named |= reachable_segments(view.manifest, view.unfolded.named)
    return [item for item in doomed if item.key not in named and not _is_kept(published, item.key)]


def _is_kept(published: Manifest, key: str) -> bool:
    lsn = WAL.lsn_of(key)
    return lsn is not None and is_retained_slot(published, lsn)


def _ingested(
    tree: Tree, manifest: Manifest, objects: Sequence[ObjectInfo]
) -> tuple[SegmentInfo, ...]:
    """The segments that unfolded ingest records name. The log is read only if some segment is
    not named by the manifest already."""
    named = reachable_segments(manifest, ())
    if all(info.key in named or not info.key.startswith(SEGMENT_PREFIX) for info in objects):
        return ()
    try:
        unfolded = replayed(tree, manifest)
    except MissingSlot as gap:
        tree.past(gap)
        raise ConcurrentPublication("another collector was at work meanwhile") from None
    return unfolded.named


def list_objects(tree: Tree) -> list[ObjectInfo]:
    """Everything in the namespace's folders of manifests, log objects, segments and lists."""
    listings = tree.store.concurrently(
        [
            partial(_listed, tree.store, prefix)
            for prefix in (MANIFEST_PREFIX, WAL.prefix, SEGMENT_PREFIX, LIST_PREFIX)
        ]
    )
    return [info for listing in listings for info in listing]


def _listed(store: Store, prefix: str) -> list[ObjectInfo]:
    return list(store.list(prefix))


def bucket_time(tree: Tree) -> float:
    """What the bucket's own clock says now."""
    tree.store.put(_CLOCK, b"")
    return tree.store.head(_CLOCK).modified

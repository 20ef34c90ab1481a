"""Dropping a namespace, and creating one in its place.

A drop takes the namespace over as a writer does. The entry that fences the log's end says that the
namespace ended with it: that PUT is the drop. Then a publication says the same in the root,
supersedes everything and moves the floor past the entry. Dying between the two leaves a root that
says `dropping`; whoever would create the namespace, drop it or collect it reads the log then, and
publishes what it says.

The register stays. A namespace created in its place goes on with higher generations, slots and
epochs, and condemns every segment born before it. So nobody of the former life can win anything.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reef.data.schema import Schema
from reef.errors import Fenced, NamespaceDropped, NamespaceExists
from reef.log.tail import MissingSlot
from reef.lsm.tree import Tree, replayed
from reef.lsm.write.writer import Writer
from reef.manifest import Head, Life, LogSpan, Manifest, Segments, Settings, Superseded
from reef.segment import SegmentInfo

_ATTEMPTS = 8


def drop(tree: Tree) -> Head[Manifest] | None:
    """End the namespace; the root that says so, None if another one was created since.

    `NamespaceNotFound` if it is not there any more: a drop that somebody else began is finished
    then. `Fenced` when others kept taking it over."""
    for attempt in range(_ATTEMPTS):
        try:
            Writer(tree, dropping=True).open()
            break
        except NamespaceDropped:
            finish_drop(tree)
            raise
        except Fenced:
            if attempt == _ATTEMPTS - 1:
                raise
    return finish_drop(tree)


def finish_drop(tree: Tree) -> Head[Manifest] | None:
    """Say in the root what the log says: the root of a dropped namespace. None if there is a
    namespace, `NamespaceNotFound` if there never was one."""
    while True:
        head = tree.register.head(ended=True)
        if head.manifest.dropped:
            return head
        try:
            unfolded = replayed(tree, head.manifest)
        except MissingSlot as gap:
            if tree.register.head(ended=True).manifest.wal_floor <= gap.lsn:
                raise
            continue
        if not unfolded.dropped_at:
            return None
        edit = _ending(head.manifest.life, unfolded.dropped_at, unfolded.epoch, unfolded.named)
        head = tree.register.publish(edit, head, ended=True)
        return head if head.manifest.dropped else None


def _ending(
    life: Life, last: int, epoch: int, named: tuple[SegmentInfo, ...]
) -> Callable[[Manifest], Manifest | None]:
    """The publication of a drop with slot `last`; `named` are the segments that the log names."""

    def edit(newest: Manifest) -> Manifest | None:
        # A floor past the slot without a drop: the entry came too late, into a collected slot.
        if newest.dropped or newest.life != life or newest.wal_floor > last:
            return None
        gone = [info.key for info in (*newest.segments, *newest.window)]
        gone += [info.key for info in named if info.lsn >= newest.wal_floor]
        return ended(newest, last, epoch, gone)

    return edit


def ended(newest: Manifest, last: int, epoch: int, gone: list[str]) -> Manifest:
    """The manifest of a namespace that ended with slot `last` and had the segments `gone`."""
    number = newest.generation
    span = LogSpan(newest.wal_floor, last, number)
    return msgspec.structs.replace(
        newest.with_schema(Schema()),
        dropping=False,
        dropped=True,
        segments=Segments(),
        window=(),
        wal_floor=last + 1,
        last_applied_lsn=last,
        writer_epoch=max(newest.writer_epoch, epoch),
        compactor_epoch=newest.compactor_epoch + 1,
        orphan_floor=number,
        superseded=newest.superseded.plus(Superseded(key, number) for key in dict.fromkeys(gone)),
        folded=(*newest.folded, span),
    )


def create_again(
    tree: Tree, schema: Schema, settings: Settings, before: Callable[[int], None]
) -> Head[Manifest]:
    """Create a namespace where one was dropped, or `NamespaceExists`. `before` is called with the
    generation that it is about to be published as."""

    def edit(newest: Manifest) -> Manifest:
        if not newest.dropped:
            raise NamespaceExists(f"there is a namespace {tree.name!r} already")
        before(newest.generation)
        number = newest.generation
        grace = max(newest.settings.grace, newest.life.grace)
        return msgspec.structs.replace(
            newest.with_schema(schema),
            dropped=False,
            settings=settings,
            compactor_epoch=newest.compactor_epoch + 1,
            orphan_floor=number,
            life=Life(number, newest.wal_floor, grace),
        )

    return tree.register.publish(edit, ended=True)

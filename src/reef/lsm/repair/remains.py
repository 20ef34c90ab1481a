"""Dropping what is left of a namespace that cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from reef.errors import AlreadyExists, Corruption, Fenced, NamespaceDropped, NamespaceNotFound
from reef.log import WAL, LogHeader
from reef.log.tail import read_slots
from reef.lsm.records import Drop, encode_drop, is_drop
from reef.lsm.retention.collect import list_objects
from reef.lsm.tree import Tree
from reef.lsm.write.drop import ended
from reef.manifest import MANIFESTS, Head, Manifest, take_over
from reef.segment.info import birth_of

_ATTEMPTS = 8


def drop_remains(tree: Tree) -> Head[Manifest]:
    """End a namespace that cannot be read: its manifests or its log are lost or damaged.

    The same as a drop, by what can be seen of it: its objects and their names.
    """
    for attempt in range(_ATTEMPTS):
        objects = list_objects(tree)
        if not objects and tree.register.read_hint() is None:
            raise tree.register.layout.absent()
        slots = sorted(lsn for info in objects if (lsn := WAL.lsn_of(info.key)) is not None)
        segments = [info.key for info in objects if birth_of(info.key) is not None]
        epoch, last = _end_of_log(tree, slots)
        base = _readable(tree)
        if base is not None:
            last = max(last, base.manifest.wal_floor - 1)
            epoch, base = take_over(
                tree.register, "writer_epoch", base, above=epoch, also=_about_to_drop
            )
        else:
            epoch += 1
        numbers = [MANIFESTS.generation_of(info.key) or birth_of(info.key) or 0 for info in objects]
        hint = tree.register.read_hint()
        number = max([*numbers, hint.generation if hint else 0]) + 1
        ending = _append_drop(tree, last + 1, epoch, number)
        if ending is None:
            continue
        if base is not None:
            edit = _ending(base.manifest, ending, epoch, segments)
            return tree.register.publish(edit, ended=True)
        environment = tree.environment
        lost = Manifest(number, tree.name, environment.now(), tree.identity, environment.nonce())
        lost = msgspec.structs.replace(lost, wal_floor=min([*slots, ending]))
        root = ended(lost, ending, epoch, segments)
        try:
            return tree.register.create(msgspec.structs.replace(root, format=root.least_format))
        except AlreadyExists:
            if attempt == _ATTEMPTS - 1:
                raise
    raise Fenced(f"namespace {tree.name!r} is being written to by others")


def _ending(
    seen: Manifest, last: int, epoch: int, segments: list[str]
) -> Callable[[Manifest], Manifest | None]:
    def edit(newest: Manifest) -> Manifest | None:
        if newest.dropped or newest.life != seen.life or newest.wal_floor > last:
            return None
        listed = {gone.key for gone in newest.superseded}
        return ended(newest, last, epoch, [key for key in segments if key not in listed])

    return edit


def _about_to_drop(newest: Manifest) -> Manifest:
    return msgspec.structs.replace(newest, dropping=True)


def _readable(tree: Tree) -> Head[Manifest] | None:
    """The newest root, if any can be read."""
    try:
        return tree.register.head()
    except NamespaceDropped:
        raise
    except (Corruption, NamespaceNotFound):
        return None


def _end_of_log(tree: Tree, slots: list[int]) -> tuple[int, int]:
    """The highest epoch that can be read in these slots, and the last of them."""
    epoch = 0
    for _, outcome in read_slots(tree.log, slots):
        if not isinstance(outcome, Corruption):
            epoch = max(epoch, outcome.header.epoch)
    return epoch, slots[-1] if slots else 0


def _append_drop(tree: Tree, lsn: int, epoch: int, orphan_floor: int) -> int | None:
    """The slot that the entry took. None when there are writers with higher epochs."""
    while True:
        header = LogHeader(
            lsn=lsn,
            writer=tree.identity,
            epoch=epoch,
            nonce=tree.environment.nonce(),
            created_at=tree.environment.now(),
        )
        try:
            holder = tree.log.append(header, [encode_drop(Drop(orphan_floor))])
        except Corruption:
            lsn += 1
            continue
        if holder is None or is_drop(holder):
            return lsn
        if holder.header.epoch > epoch:
            return None
        lsn += 1

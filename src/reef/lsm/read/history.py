"""Time travel: the state as of a generation, a log slot, or a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from reef.errors import Corruption, InvalidInput, ObjectNotFound, PastRetention
from reef.log import LogEntry
from reef.log.tail import MissingSlot
from reef.lsm.read.view import View
from reef.lsm.retention.reachability import are_retained_slots, first_retained_slot
from reef.lsm.tree import Tree, replayed, unfolded_above
from reef.manifest import Manifest

# Moments are given to the microsecond, and recorded a little finer.
_MICROSECOND = 1e-6


@dataclass(frozen=True)
class Moment:
    """A state, told by what it is read through: the segments of the generation with that nonce,
    and the log above them through slot `lsn`. Means the same wherever and whenever it is read."""

    generation: int
    lsn: int
    nonce: str


def moment_of(view: View) -> Moment:
    """What a view can be told by."""
    manifest = view.manifest
    return Moment(manifest.generation, view.unfolded.next_lsn - 1, manifest.nonce)


def view_of(tree: Tree, moment: Moment) -> View:
    """The state of a moment, or `PastRetention`."""
    gone = f"generation {moment.generation} with the log through {moment.lsn} is no longer retained"
    try:
        manifest = tree.register.read_generation(moment.generation)
        if manifest.nonce != moment.nonce:
            # Its number was collected, and won again by somebody who slept.
            raise PastRetention(gone)
        unfolded = unfolded_above(manifest)
        if moment.lsn >= unfolded.next_lsn:
            unfolded = replayed(tree, manifest, moment.lsn)
            tree.check_state(unfolded)
            # Slots that are retained after they were read were not collected before.
            newest = tree.register.head().root
            if not are_retained_slots(newest, manifest.wal_floor, moment.lsn):
                raise PastRetention(gone)
            unfolded.next_lsn = moment.lsn + 1
    except (ObjectNotFound, MissingSlot):
        raise PastRetention(gone) from None
    return View(manifest, unfolded, tree.readers, tree.store)


def view_at(
    tree: Tree,
    *,
    generation: int | None = None,
    lsn: int | None = None,
    time: datetime | None = None,
) -> View:
    """The state of a generation, after a log slot, or at a moment; of now if none is given."""
    given = [value for value in (generation, lsn, time) if value is not None]
    if len(given) > 1:
        raise InvalidInput("a state is told by one of generation, lsn and time")
    if generation is not None:
        return view_at_generation(tree, generation)
    if lsn is not None:
        return view_at_lsn(tree, lsn)
    if time is not None:
        if time.tzinfo is None:
            raise InvalidInput("time must have a time zone")
        return view_at_time(tree, time.timestamp())
    tree.refresh()
    return tree.view


def view_at_generation(tree: Tree, generation: int) -> View:
    """What that generation's segments hold: every slot through its `last_applied_lsn`."""
    try:
        found = tree.register.read_generation(generation) if generation > 0 else None
    except ObjectNotFound:
        found = None
    # The root is read afterwards: a generation that it retains was not collected before.
    newest = tree.register.head().root
    tree.check_root(newest)
    if generation > newest.generation or generation < 1:
        raise InvalidInput(
            f"there is no generation {generation}; the newest is {newest.generation}"
        )
    _check_life(newest, generation, f"generation {generation}")
    if found is None or not _is_genuine(tree, found, newest):
        raise PastRetention(f"generation {generation} is no longer retained")
    return View(found, unfolded_above(found), tree.readers, tree.store)


def _is_genuine(tree: Tree, manifest: Manifest, newest: Manifest) -> bool:
    """Whether an object is the generation that was published under its number, and not one that a
    sleeper put there once that was gone: the one after it was made from it, or a pin says so."""
    if manifest.generation >= newest.oldest_generation:
        # It was never collected. It may have been damaged, though, and moved away by a repair.
        following = manifest.generation + 1
        if following > newest.generation:
            return manifest.nonce == newest.nonce
        try:
            after = (
                newest
                if following == newest.generation
                else tree.register.read_generation(following)
            )
        except (ObjectNotFound, Corruption):
            return True
        return after.previous in ("", manifest.nonce)
    pins = tree.board.read().pins.values()
    return any((pin.generation, pin.nonce) == (manifest.generation, manifest.nonce) for pin in pins)


def view_at_lsn(tree: Tree, lsn: int) -> View:
    """The state after slot `lsn`, and nothing later."""
    if lsn < 0:
        raise InvalidInput(f"there is no LSN {lsn}")
    view = _replayed(
        tree,
        lambda manifest: manifest.last_applied_lsn <= lsn,
        lambda entry: entry.lsn <= lsn,
        f"LSN {lsn}",
        lsn,
    )
    if view.unfolded.next_lsn <= lsn:
        raise InvalidInput(
            f"LSN {lsn} is not written yet; the newest is {view.unfolded.next_lsn - 1}"
        )
    return view


def view_at_time(tree: Tree, moment: float) -> View:
    """The state at a moment, by the clocks that writers recorded."""
    return _replayed(
        tree,
        lambda manifest: manifest.created_at < moment + _MICROSECOND,
        lambda entry: entry.header.created_at < moment + _MICROSECOND,
        "that moment",
        None,
    )


def _replayed(
    tree: Tree,
    early_enough: Callable[[Manifest], bool],
    included: Callable[[LogEntry], bool],
    name: str,
    last: int | None,
) -> View:
    newest = tree.register.head()
    head = newest.manifest
    tree.check_root(head)
    manifest = head if early_enough(head) else _newest(tree, head, early_enough)
    if manifest is None:
        raise PastRetention(f"{name} is before anything that is still retained")
    _check_life(head, manifest.generation, name)
    if manifest.wal_floor < first_retained_slot(head):
        raise PastRetention(f"the log up to {name} is no longer retained")
    try:
        unfolded = replayed(tree, manifest, last, included)
        tree.check_state(unfolded)
    except MissingSlot:
        raise PastRetention(f"the log up to {name} is no longer retained") from None
    confirmed = tree.confirmed(newest, manifest.wal_floor)
    if confirmed is None or manifest.generation < confirmed.root.oldest_generation:
        raise PastRetention(f"the log up to {name} is no longer retained")
    return View(manifest, unfolded, tree.readers, tree.store)


def _check_life(newest: Manifest, generation: int, name: str) -> None:
    """What a namespace of the same name held that was dropped is no history of this one."""
    if generation < newest.life.generation:
        raise PastRetention(f"{name} is before the namespace was created")


def _newest(
    tree: Tree, head: Manifest, early_enough: Callable[[Manifest], bool]
) -> Manifest | None:
    """The newest retained generation that is early enough, by bisection."""
    listed = tree.register.generations(after=max(0, head.oldest_generation - 1))
    generations = [generation for generation, _ in listed if generation < head.generation]
    best: Manifest | None = None
    low, high = 0, len(generations)
    while low < high:
        middle = (low + high) // 2
        try:
            manifest = tree.register.read_generation(generations[middle])
        except ObjectNotFound:
            low = middle + 1
            continue
        if early_enough(manifest):
            best = manifest
            low = middle + 1
        else:
            high = middle
    return best

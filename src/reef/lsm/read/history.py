"""Time travel: the state as of a generation, a log slot, or a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from reef.errors import InvalidInput, ObjectNotFound, PastRetention
from reef.log import LogEntry
from reef.log.tail import MissingSlot
from reef.lsm.read.view import View
from reef.lsm.retention.reachability import first_retained_slot
from reef.lsm.tree import Tree, replayed, unfolded_above
from reef.manifest import Manifest

# Moments are given to the microsecond, and recorded a little finer.
_MICROSECOND = 1e-6


@dataclass(frozen=True)
class Moment:
    """A state, told by what it is read through: a generation's segments, and the log above them
    through slot `lsn`. Means the same wherever and whenever it is read."""

    generation: int
    lsn: int


def moment_of(view: View) -> Moment:
    """What a view can be told by."""
    return Moment(view.manifest.generation, view.unfolded.next_lsn - 1)


def view_of(tree: Tree, moment: Moment) -> View:
    """The state of a moment, or `PastRetention`."""
    gone = f"generation {moment.generation} with the log through {moment.lsn} is no longer retained"
    try:
        manifest = tree.register.read_generation(moment.generation)
        unfolded = unfolded_above(manifest)
        if moment.lsn >= unfolded.next_lsn:
            newest = tree.register.head()
            unfolded = replayed(tree, manifest, moment.lsn)
            if first_retained_slot(newest.manifest) > manifest.wal_floor or (
                tree.confirmed(newest, manifest.wal_floor) is None
            ):
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
    newest = tree.register.head().manifest
    if generation > newest.generation or generation < 1:
        raise InvalidInput(
            f"there is no generation {generation}; the newest is {newest.generation}"
        )
    try:
        manifest = tree.register.read_generation(generation)
    except ObjectNotFound:
        raise PastRetention(f"generation {generation} is no longer retained") from None
    return View(manifest, unfolded_above(manifest), tree.readers, tree.store)


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
    manifest = head if early_enough(head) else _newest(tree, early_enough)
    if manifest is None:
        raise PastRetention(f"{name} is before anything that is still retained")
    if manifest.wal_floor < first_retained_slot(head):
        raise PastRetention(f"the log up to {name} is no longer retained")
    try:
        unfolded = replayed(tree, manifest, last, included)
    except MissingSlot:
        raise PastRetention(f"the log up to {name} is no longer retained") from None
    if tree.confirmed(newest, manifest.wal_floor) is None:
        raise PastRetention(f"the log up to {name} is no longer retained")
    return View(manifest, unfolded, tree.readers, tree.store)


def _newest(tree: Tree, early_enough: Callable[[Manifest], bool]) -> Manifest | None:
    """The newest retained generation that is early enough, by bisection."""
    generations = [generation for generation, _ in tree.register.generations()]
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

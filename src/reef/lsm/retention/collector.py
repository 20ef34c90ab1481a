"""The collector: forget by publication first, delete afterwards. Over any root, log and face.

The order that makes it safe, whoever else is at work and whoever dies where:

1. The pin board's floor is raised past what is to be forgotten. From here on no state that needs
   any of it can be pinned, and whatever was pinned before is known.
2. A publication drops from the root's lists what is due and no pin needs, and raises the oldest
   generation and the orphan floor. From here on nothing can be published that names an object born
   below that floor, and nothing that was forgotten can be named again.
3. If there are orphans, a log record carries the floor into the log. From its slot on no guest can
   bring such an object either, and what was brought before it has been seen.
4. Only then objects are deleted, and of them only what the published root, the log and the pins
   leave unneeded: a repair may have named again what the plan took for due. Dying in between
   leaves objects that the next pass finds.

Of what was dropped everything goes but the newest generation and its hint. Nothing can be brought
there by anybody, and whoever creates another in its place condemns all that was born before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from reef.environment import Environment
from reef.lsm.retention.collection import Doomed, Naming, Pinned, Plan, plan_collection
from reef.lsm.retention.pinboard import PinBoard, PinnedState, Pins
from reef.lsm.retention.reachability import Needs, Retaining, is_retained_slot
from reef.manifest import Register
from reef.store.contract import ObjectInfo, Store

_CLOCK = "clock"
_MOST_KEYS = 200_000
R = TypeVar("R", bound=Retaining)


class Replan(Exception):
    """What the plan was made from is not true any more."""


@dataclass(frozen=True)
class Collected:
    """What a pass found and, when applied, deleted. `lapsed` are pins that were not renewed."""

    plan: Plan
    applied: bool
    deleted: int
    bytes: int
    lapsed: tuple[str, ...] = ()


class Face(ABC, Generic[R]):
    """What the collector asks of a data model: what its roots, log and states name.

    `folders` are the prefixes of all objects that a namespace of it consists of.
    """

    store: Store
    environment: Environment
    register: Register[Any]
    board: PinBoard
    naming: Naming
    folders: Sequence[str]

    @abstractmethod
    def named(self, root: R, objects: Sequence[ObjectInfo]) -> Collection[str]:
        """The keys that a root, its lists and the log above it name, if any of these objects is
        not named by the root itself; the log need not be read otherwise."""

    @abstractmethod
    def still_named(self, published: R) -> Collection[str]:
        """The keys that the root just published or a newer one, and the log up to now, name."""

    @abstractmethod
    def needs(self, state: PinnedState) -> Needs:
        """What a pinned state needs; if that cannot be read, `Needs(generation, None)`."""

    @abstractmethod
    def forget(self, newest: R, plan: Plan, pinned: Sequence[Needs]) -> R | None:
        """The root without what the plan forgets. None if that is nothing."""

    @abstractmethod
    def condemn(self, floor: int) -> None:
        """Carry the orphan floor into the log."""

    def other_pins(self, root: R, objects: Sequence[ObjectInfo], now: float) -> list[Pinned]:
        """States that are kept in another way than by the board."""
        return []


def collect(face: Face[R], *, apply: bool) -> Collected:
    """Find what nothing needs any more and, with `apply`, delete what is due."""
    while True:
        with suppress(Replan):
            return _collect(face, apply)


def _collect(face: Face[R], apply: bool) -> Collected:
    now = bucket_time(face.store) if apply else face.environment.now()
    head = face.register.head(ended=True)
    objects = list_objects(face.store, face.folders)
    named = face.named(head.root, objects)
    plan = plan_collection(head.root, objects, named, now, face.naming)
    board, lapses, lapsed = _board(face, now)
    if apply and (plan.forgets or lapsed):
        board = face.board.raise_floor(plan.through if plan.forgets else 0, lapsed)
    kept = {name: pin for name, pin in board.pins.items() if lapsed.get(name) != pin}
    # A pin that came since then is on a state that lacks nothing of what is forgotten.
    below = {name: pin for name, pin in kept.items() if pin.generation < plan.through}
    pinned = [
        Pinned(name, needs, lapses.get(name))
        for (name, _), needs in zip(below.items(), _needs(face, below.values()), strict=True)
    ]
    pinned += face.other_pins(head.root, objects, now)
    if pinned:
        plan = plan_collection(head.root, objects, named, now, face.naming, pinned)
    if not apply:
        return Collected(plan, False, 0, 0, tuple(sorted(lapsed)))
    needs = [pin.needs for pin in pinned]
    published = face.register.publish(
        lambda newest: face.forget(newest, plan, needs), head, ended=True
    ).root
    if plan.orphans and not published.ended:
        face.condemn(published.orphan_floor)
    victims = _unneeded(face, published, (*plan.due, *plan.orphans), needs)
    # In order: whoever finds a slot or a generation gone knows that those before it went first.
    face.store.delete_many(sorted(victim.key for victim in victims))
    if board.generation:
        face.board.tidy(board, now - head.root.settings.grace)
    size = sum(victim.size for victim in victims)
    return Collected(plan, True, len(victims), size, tuple(sorted(lapsed)))


def _board(
    face: Face[R], now: float
) -> tuple[Pins, dict[str, float | None], dict[str, PinnedState]]:
    """The pins, when each of them lapses, and those that have by now."""
    board = face.board.read()
    if not board.pins:
        return board, {}, {}
    lapses = face.board.lapses(board)
    return board, dict(lapses.due), lapses.by(now)


def _needs(face: Face[R], pins: Iterable[PinnedState]) -> list[Needs]:
    """What each of the states needs, read together. What a state needs never changes, so that of
    those that are still pinned is remembered, as far as there is room."""
    states = [msgspec.structs.replace(pin, entered=0, seconds=None) for pin in pins]
    known = face.board.known
    unknown = [state for state in dict.fromkeys(states) if state not in known]
    read = face.store.concurrently([partial(face.needs, state) for state in unknown])
    found = {state: known[state] for state in states if state in known}
    found |= zip(unknown, read, strict=True)
    known.clear()
    room = _MOST_KEYS
    for state, needs in found.items():
        if needs.keys is not None and len(needs.keys) < room:
            known[state] = needs
            room -= len(needs.keys) + 1
    return [found[state] for state in states]


def _unneeded(
    face: Face[R], published: R, doomed: Sequence[Doomed], pinned: Iterable[Needs]
) -> list[Doomed]:
    """Those of the planned objects that neither the root just published, nor the log, nor a pin
    needs."""
    naming = face.naming
    named: Collection[str] = ()
    if any(naming.birth_of(item.key) is not None for item in doomed):
        named = face.still_named(published)
    keys = frozenset[str]().union(*(needs.keys for needs in pinned if needs.keys is not None))

    def is_kept(key: str) -> bool:
        lsn = naming.slot_of(key)
        return key in named or key in keys or (lsn is not None and is_retained_slot(published, lsn))

    return [item for item in doomed if not is_kept(item.key)]


def list_objects(store: Store, folders: Sequence[str]) -> list[ObjectInfo]:
    """Everything in some folders."""
    listings = store.concurrently([partial(_listed, store, prefix) for prefix in folders])
    return [info for listing in listings for info in listing]


def _listed(store: Store, prefix: str) -> list[ObjectInfo]:
    return list(store.list(prefix))


def bucket_time(store: Store) -> float:
    """What the bucket's own clock says now."""
    store.put(_CLOCK, b"")
    return store.head(_CLOCK).modified

"""What to delete: a pure plan over a root, its pins and a listing of the bucket.

Time here is the bucket's own: the modification times that it stamps on objects, and `now` taken
from the same clock. A generation's moment is when its object appeared; what it retired stays
until the retention and the grace period have both passed since then, and longer while a pinned
state needs it. Nothing is unsafe to delete because of a time: what may go was forgotten first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from reef.lsm.retention.reachability import (
    Needs,
    Retaining,
    kept_objects,
    kept_slots,
    span_of,
)
from reef.manifest import LogSpan
from reef.store.contract import ObjectInfo

Number = Callable[[str], int | None]


@dataclass(frozen=True)
class Naming:
    """What a key says: the slot of a log object, the generation of a root, or the birth of an
    object that roots and log entries name; None for any other key."""

    slot_of: Number
    generation_of: Number
    birth_of: Number


@dataclass(frozen=True)
class Pinned:
    """A state that is pinned: by which name, what it needs, and until when, if it is known."""

    name: str
    needs: Needs
    until: float | None = None


@dataclass(frozen=True)
class Doomed:
    """An object that only the past needs, or nobody, why, and from when on it may be deleted; None
    as long as a pin without end needs it."""

    key: str
    size: int
    reason: str
    due: float | None


@dataclass(frozen=True)
class Plan:
    """`due` may go now, `waiting` later; `orphans` need the floor raised first.

    What generations through `through` retired is forgotten, except what pins need, and
    `oldest_generation` is then the oldest that is retained. `orphan_floor` is the birth below which
    unnamed objects are condemned. `forgets` says whether there is anything for a root to forget.
    """

    due: tuple[Doomed, ...]
    waiting: tuple[Doomed, ...]
    orphans: tuple[Doomed, ...]
    through: int
    oldest_generation: int
    orphan_floor: int
    forgets: bool

    @property
    def bytes(self) -> int:
        """How much room the objects that may go now take."""
        return sum(doomed.size for doomed in (*self.due, *self.orphans))


def plan_collection(
    root: Retaining,
    objects: Sequence[ObjectInfo],
    named: Collection[str],
    now: float,
    naming: Naming,
    pinned: Sequence[Pinned] = (),
) -> Plan:
    """Sort every object that is not needed for good into those due, those waiting, and orphans.
    `named` are the keys that the root, its lists and the unfolded log name."""
    return _Planner(root, objects, now, naming, pinned).plan(named)


class _Planner:
    def __init__(
        self,
        root: Retaining,
        objects: Sequence[ObjectInfo],
        now: float,
        naming: Naming,
        pinned: Sequence[Pinned],
    ) -> None:
        self.root = root
        self.objects = objects
        self.now = now
        self.naming = naming
        self.pinned = pinned
        self.patience = root.patience
        self.moment = _moments(root, objects, naming, now)
        latest = min(self.moment.latest_before(now - self.patience), root.generation)
        self.through = max(latest, root.oldest_generation)
        self.due: list[Doomed] = []
        self.waiting: list[Doomed] = []

    def plan(self, named: Collection[str]) -> Plan:
        root, needs = self.root, [pin.needs for pin in self.pinned]
        self._superseded()
        self._slots()
        forgets = (
            kept_objects(root, self.through, needs) != root.superseded
            or kept_slots(root, self.through, needs) != root.folded
        )
        oldest = self._generations(forgets)
        orphans, young, floor = self._orphans(named)
        return Plan(
            tuple(self.due),
            (*self.waiting, *young),
            orphans,
            self.through,
            oldest,
            floor,
            forgets or oldest != root.oldest_generation,
        )

    def _superseded(self) -> None:
        listed = {info.key: info for info in self.objects}
        retired = {gone.key for gone in self.root.superseded}
        holding: dict[str, list[Pinned]] = {}
        unknown: list[Pinned] = []
        for pin in self.pinned:
            if pin.needs.keys is None:
                unknown.append(pin)
                continue
            for key in retired & pin.needs.keys:
                holding.setdefault(key, []).append(pin)
        for gone in self.root.superseded:
            if (info := listed.get(gone.key)) is not None:
                holders = [*holding.get(gone.key, ()), *(p for p in unknown if p.needs.has(gone))]
                reason = f"superseded by generation {gone.generation}"
                self._retired(info, reason, gone.generation, holders)

    def _retired(
        self, info: ObjectInfo, reason: str, generation: int, holders: Sequence[Pinned]
    ) -> None:
        """Something that a generation stopped naming, or moved below the floor."""
        due = self.moment(generation) + self.patience
        if holders:
            self._pinned(info, reason, due, holders)
        elif generation <= self.through:
            self.due.append(Doomed(info.key, info.size, reason, min(due, self.now)))
        else:
            self.waiting.append(Doomed(info.key, info.size, reason, due))

    def _pinned(self, info: ObjectInfo, reason: str, due: float, holders: Sequence[Pinned]) -> None:
        last = max(holders, key=lambda pin: float("inf") if pin.until is None else pin.until)
        until = None if last.until is None else max(due, last.until)
        reason = f"{reason}, and pinned as {last.name}"
        self.waiting.append(Doomed(info.key, info.size, reason, until))

    def _slots(self) -> None:
        root = self.root
        spans = sorted(root.folded, key=lambda span: span.first)
        for info in self.objects:
            lsn = self.naming.slot_of(info.key)
            if lsn is None or lsn >= root.wal_floor:
                continue
            span = span_of(spans, lsn)
            if span is not None:
                only = LogSpan(lsn, lsn, span.generation)
                holders = [pin for pin in self.pinned if pin.needs.part(only) is not None]
                reason = f"folded by generation {span.generation}"
                self._retired(info, reason, span.generation, holders)
                continue
            # Forgotten already, or put there by a writer that slept: nobody reads it.
            due = info.modified + self.patience
            doomed = Doomed(info.key, info.size, "a log slot below the floor", due)
            (self.due if due <= self.now else self.waiting).append(doomed)

    def _generations(self, forgets: bool) -> int:
        """Old generations; the oldest that is retained from now on."""
        root = self.root
        aged: list[Doomed] = []
        holding: dict[int, list[Pinned]] = {}
        for pin in self.pinned:
            holding.setdefault(pin.needs.generation, []).append(pin)
        for info in self.objects:
            generation = self.naming.generation_of(info.key)
            if generation is None or generation >= root.generation:
                continue
            holders = holding.get(generation)
            due = self.moment(generation + 1) + self.patience
            if holders:
                self._pinned(info, "an old generation", due, holders)
            elif generation < root.oldest_generation:
                reason = "a generation that is not retained"
                self.due.append(Doomed(info.key, info.size, reason, self.now))
            elif generation < self.through:
                aged.append(Doomed(info.key, info.size, "an old generation", due))
            else:
                self.waiting.append(Doomed(info.key, info.size, "an old generation", due))
        if forgets or len(aged) > 1:
            self.due += aged
            return max(root.oldest_generation, self.through)
        # To forget it is a publication, and makes the next old generation: not for one alone.
        self.waiting += aged
        return root.oldest_generation

    def _orphans(
        self, named: Collection[str]
    ) -> tuple[tuple[Doomed, ...], tuple[Doomed, ...], int]:
        """Unnamed objects: those to condemn, those still too young, and the floor that condemns.

        The floor stays at or below the birth of every young one: a job that is still uploading
        is left alone, however long it takes.
        """
        unnamed: list[tuple[int, Doomed, bool]] = []
        for info in self.objects:
            birth = self.naming.birth_of(info.key)
            if birth is not None and info.key not in named:
                due = info.modified + self.root.settings.grace
                doomed = Doomed(info.key, info.size, "an orphan", due)
                unnamed.append((birth, doomed, due <= self.now))
        young = [birth for birth, _, ripe in unnamed if not ripe]
        eligible = [birth for birth, _, ripe in unnamed if ripe]
        floor = self.root.orphan_floor
        if eligible:
            floor = max(floor, min([max(eligible) + 1, *young]))
        condemned = tuple(d for birth, d, ripe in unnamed if birth < floor and ripe)
        waiting = tuple(d for birth, d, ripe in unnamed if not (birth < floor and ripe))
        return condemned, waiting, floor


def _moments(
    root: Retaining, objects: Sequence[ObjectInfo], naming: Naming, now: float
) -> _Moments:
    times: dict[int, float] = {}
    for info in objects:
        generation = naming.generation_of(info.key)
        if generation is not None and generation >= root.oldest_generation:
            times[generation] = info.modified
    return _Moments(times, now)


class _Moments:
    """When generations appeared. One that is gone counts as the next one that is there.

    So does one that was lost and put there again, by a publisher that slept: it bears a later
    time than its successors, and none can have come after them.
    """

    def __init__(self, times: Mapping[int, float], now: float) -> None:
        self._generations = sorted(times)
        self._times: dict[int, float] = {}
        self._now = earliest = now
        for generation in reversed(self._generations):
            earliest = min(earliest, times[generation])
            self._times[generation] = earliest

    def __call__(self, generation: int) -> float:
        place = bisect_left(self._generations, generation)
        if place == len(self._generations):
            return self._now
        return self._times[self._generations[place]]

    def latest_before(self, bound: float) -> int:
        """The newest generation such that it and all before it appeared by then."""
        latest = 0
        for generation in self._generations:
            if self._times[generation] > bound:
                break
            latest = generation
        return latest

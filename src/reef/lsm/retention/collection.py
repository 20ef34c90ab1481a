"""What to delete: a pure plan over a manifest and a listing of the bucket.

Time here is the bucket's own: the modification times that it stamps on objects, and `now` taken
from the same clock. A generation's moment is when its object appeared; what it superseded stays
until the retention and the grace period have both passed since then, and longer while a pin holds a
generation that needs it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reef.log import WAL
from reef.lsm.retention.reachability import oldest_pinned, reachable_segments
from reef.manifest import MANIFESTS, Manifest, Pin
from reef.manifest.lists import birth_of_list
from reef.segment import SegmentInfo
from reef.segment.info import birth_of
from reef.store.contract import ObjectInfo


@dataclass(frozen=True)
class Doomed:
    """An object that nothing needs, why, and from when on it may be deleted."""

    key: str
    size: int
    reason: str
    due: float


@dataclass(frozen=True)
class Collection:
    """A plan. `due` may go now, `waiting` later; `orphans` need the floor raised first.

    What generations through `forgotten` superseded is due, and `orphan_floor` is the birth
    generation below which unnamed segments are condemned. `lapsed` are pins that were not renewed.
    """

    due: tuple[Doomed, ...]
    waiting: tuple[Doomed, ...]
    orphans: tuple[Doomed, ...]
    forgotten: int
    orphan_floor: int
    lapsed: Mapping[str, Pin] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """How much room the objects that may go now take."""
        return sum(doomed.size for doomed in (*self.due, *self.orphans))


def plan_collection(
    manifest: Manifest,
    objects: Sequence[ObjectInfo],
    ingests: Iterable[SegmentInfo],
    now: float,
) -> Collection:
    """Sort every object that nothing needs into those due, those waiting, and orphans."""
    settings = manifest.settings
    patience = max(settings.retention, settings.grace)
    moment = _moments(objects, now)
    listed = {info.key: info for info in objects}
    doomed: list[Doomed] = []

    lapses = {
        name: moment(held.renewed) + held.seconds for name, held in manifest.snapshots.items()
    }
    lapsed = {name: held for name, held in manifest.snapshots.items() if lapses[name] <= now}
    pins = {name: held for name, held in manifest.snapshots.items() if name not in lapsed}
    oldest = oldest_pinned(pins)

    def doom(info: ObjectInfo, reason: str, since: float, needed_until: int) -> None:
        """`needed_until` is the last generation that needs the object."""
        due = since + patience
        for name, held in pins.items():
            if held.generation <= needed_until and lapses[name] > due:
                reason, due = f"{reason}, and pinned as {name}", lapses[name]
        doomed.append(Doomed(info.key, info.size, reason, due))

    for gone in manifest.superseded:
        info = listed.get(gone.key)
        if info is not None:
            reason = f"superseded by generation {gone.generation}"
            doom(info, reason, moment(gone.generation), gone.generation - 1)
    spans = sorted(manifest.folded, key=lambda span: span.first)
    starts = [span.first for span in spans]
    for info in objects:
        lsn = WAL.lsn_of(info.key)
        generation = MANIFESTS.generation_of(info.key)
        if lsn is not None and lsn < manifest.wal_floor:
            place = bisect_left(starts, lsn + 1) - 1
            if place >= 0 and lsn <= spans[place].last:
                by = spans[place].generation
                doom(info, f"folded by generation {by}", moment(by), by - 1)
            else:
                doom(info, "a log slot below the floor", info.modified, 0)
        elif generation is not None and generation < manifest.generation:
            doom(info, "an old generation", moment(generation + 1), generation)
    orphans, young, floor = _orphans(manifest, objects, ingests, now)
    forgotten = moment.latest_before(now - patience)
    return Collection(
        tuple(item for item in doomed if item.due <= now),
        tuple(item for item in doomed if item.due > now) + young,
        orphans,
        forgotten if oldest is None else min(forgotten, oldest),
        floor,
        lapsed,
    )


def _orphans(
    manifest: Manifest, objects: Sequence[ObjectInfo], ingests: Iterable[SegmentInfo], now: float
) -> tuple[tuple[Doomed, ...], tuple[Doomed, ...], int]:
    """Unnamed segments: those to condemn, those still too young, and the floor that condemns.

    The floor stays at or below the birth of every young one: a job that is still uploading
    is left alone, however long it takes.
    """
    named = reachable_segments(manifest, ingests)
    unnamed = []
    for info in objects:
        birth = birth_of(info.key)
        if birth is None:
            birth = birth_of_list(info.key)
        if birth is not None and info.key not in named:
            due = info.modified + manifest.settings.grace
            unnamed.append((birth, Doomed(info.key, info.size, "an orphan", due)))
    young = [birth for birth, doomed in unnamed if doomed.due > now]
    eligible = [birth for birth, doomed in unnamed if doomed.due <= now]
    floor = manifest.orphan_floor
    if eligible:
        floor = max(floor, min([max(eligible) + 1, *young]))
    condemned = tuple(d for birth, d in unnamed if birth < floor and d.due <= now)
    waiting = tuple(d for birth, d in unnamed if not (birth < floor and d.due <= now))
    return condemned, waiting, floor


def _moments(objects: Sequence[ObjectInfo], now: float) -> _Moments:
    times: dict[int, float] = {}
    for info in objects:
        generation = MANIFESTS.generation_of(info.key)
        if generation is not None:
            times[generation] = info.modified
    return _Moments(times, now)


class _Moments:
    """When generations appeared. One that is gone counts as the next one that is there.

    So does one that was collected and put there again, by a publisher that slept: it bears a later
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

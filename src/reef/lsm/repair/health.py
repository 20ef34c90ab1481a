"""Examining: every object that a namespace relies on, read, checked, and told apart by its part.

Nothing is changed and nothing found is an error here: verification reports what an examination
found, and repair acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from reef.errors import (
    Corruption,
    NamespaceDropped,
    NamespaceNotFound,
    ObjectNotFound,
    UnsupportedFormat,
)
from reef.log import WAL, LogEntry
from reef.log.tail import GivenUp, MissingSlot, heeding_skips, read_slots
from reef.lsm.records import Ingest, records_of
from reef.lsm.repair.lists import BrokenLists, find_broken_lists
from reef.lsm.repair.pinned import (
    examine_board,
    is_believed,
    missing_pinned,
    pinned_generations,
)
from reef.lsm.repair.quarantine import quarantined
from reef.lsm.retention.collect import list_objects
from reef.lsm.retention.pinboard import Pins
from reef.lsm.retention.reachability import is_retained_slot, retained_slots
from reef.lsm.tree import Tree, unfolded_above
from reef.lsm.unfolded import Unfolded
from reef.lsm.upkeep.executor import Executor
from reef.manifest import MANIFESTS, Manifest
from reef.manifest.manifests import HINT
from reef.manifest.register import Head
from reef.segment import Problem, SegmentInfo
from reef.segment.verify import verify_segment
from reef.store.contract import ObjectInfo

Progress = Callable[[str, int, int], None]
"""LogSummary what is being checked, how many of how many are done."""

Found = TypeVar("Found")
_STEP = 32
_SHARES = 4
_TIMES_AGAIN = 3


@dataclass
class LogHealth:
    """The log from the oldest retained slot on. `unfolded` is what its sound entries above the
    floor amount to; `next_lsn` the first free slot.

    `damaged` are slots above the floor that no entry gives up, in order, `folded_damaged` those
    below it; `skipped` all slots that entries give up, `skipped_damaged` those of them that hold a
    damaged object and `skipped_missing` those that are free. `stop` is set when an entry that is
    whole could not be applied. `folded_ingests` are segments that slots below the floor brought.
    """

    unfolded: Unfolded
    next_lsn: int
    damaged: dict[int, Problem] = field(default_factory=dict)
    folded_damaged: dict[int, Problem] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    skipped: set[int] = field(default_factory=set)
    skipped_damaged: list[int] = field(default_factory=list)
    skipped_missing: list[int] = field(default_factory=list)
    folded_ingests: dict[int, tuple[SegmentInfo, ...]] = field(default_factory=dict)
    stop: Problem | None = None

    @property
    def last_is_damaged(self) -> bool:
        """Whether the log ends in one damaged object, which is taken as never committed."""
        return list(self.damaged) == [self.next_lsn - 1]


@dataclass
class Health:
    """What an examination found. `newer_generations` are whole, but of a format not known here,
    and `missing_generations` are gone though what they named is still retained.

    `segments` are the problems of every segment that is live or that a retained generation may
    still read, by key, none for a sound one; `left_over` those of damaged segments that only
    generations past their retention name. `infos` describes all of them.
    """

    objects: list[ObjectInfo]
    generations: dict[int, Manifest]
    damaged_generations: dict[int, Problem]
    newer_generations: dict[int, Problem]
    missing_generations: dict[int, Problem]
    hint: Problem | None
    head: Head[Manifest]
    log: LogHealth
    live: tuple[SegmentInfo, ...]
    board_damage: list[Problem]
    infos: dict[str, SegmentInfo]
    segments: dict[str, list[Problem]]
    left_over: dict[str, list[Problem]]

    @property
    def is_troubled(self) -> bool:
        """Whether anything was found wrong or missing."""
        log = self.log
        return bool(
            self.damaged_generations
            or self.missing_generations
            or self.hint
            or self.board_damage
            or log.damaged
            or log.folded_damaged
            or log.stop
            or any(self.segments.values())
            or self.left_over
        )

    @property
    def lone_head(self) -> Head[Manifest] | None:
        """The head if only the hint has it: nobody else believes it until it is published anew."""
        return None if self.head.manifest.generation in self.generations else self.head

    def is_sound(self, infos: Iterable[SegmentInfo]) -> bool:
        """Whether these segments are all there, undamaged, and kept from collection."""
        return all(self.segments.get(info.key) == [] for info in infos)


class Unreadable(Exception):
    """No manifest of the namespace can be read. `problems` says what is wrong with them."""

    def __init__(self, error: Corruption | NamespaceNotFound, problems: list[Problem]) -> None:
        super().__init__(str(error))
        self.error = error
        self.problems = problems
        self.generations = 0
        self.log_objects = 0


class ListsUnreadable(Exception):
    """Lists that the newest manifest names cannot be read, so that nobody can say what it needs."""

    def __init__(self, broken: BrokenLists) -> None:
        super().__init__(str(broken.problems[0]))
        self.broken = broken

    @property
    def error(self) -> Corruption:
        """What is wrong with the first of them."""
        problem = self.broken.problems[0]
        return Corruption(problem.key, f"{problem.meaning}; repair makes it anew", problem.offset)


def examine(
    tree: Tree,
    *,
    deep: bool,
    left_over: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Health:
    """Read and check everything; with `deep` every block of every segment, with `left_over` also
    segments that nothing needs. Raises `Unreadable` when there is no manifest to start at, and
    `ListsUnreadable` when the newest one names lists that are damaged or gone. The
    executor, if there are several in it, checks the segments.

    What is missed may have been collected since the root was read: if there is a newer one, all
    is looked at once more, a few times at most."""
    attempts = 1 + _TIMES_AGAIN
    while True:
        attempts -= 1
        try:
            health = _examine(tree, deep, left_over, progress, executor)
        except ListsUnreadable as found:
            if not attempts or _head(tree).slot == found.broken.head.slot:
                raise
            continue
        if not attempts or not health.is_troubled or _head(tree).slot == health.head.slot:
            return health


def _examine(
    tree: Tree, deep: bool, left_over: bool, progress: Progress | None, executor: Executor | None
) -> Health:
    objects = list_objects(tree)
    numbers = [n for info in objects if (n := MANIFESTS.generation_of(info.key)) is not None]
    generations: dict[int, Manifest] = {}
    damaged: dict[int, Problem] = {}
    newer: dict[int, Problem] = {}
    found = _each(tree, "manifests", numbers, partial(_generation, tree), progress)
    for number, outcome in zip(numbers, found, strict=True):
        if isinstance(outcome, Manifest):
            generations[number] = outcome
        elif isinstance(outcome, Corruption):
            damaged[number] = problem_of(outcome, MANIFESTS.key(number))
        elif outcome is not None:
            newer[number] = problem_of(outcome, MANIFESTS.key(number))
    hint = _hint(tree)
    try:
        head = _head(tree)
    except NamespaceDropped:
        raise
    except (Corruption, NamespaceNotFound) as error:
        problems = [*damaged.values(), *([hint] if hint else [])]
        unreadable = Unreadable(error, problems)
        unreadable.generations = len(numbers)
        unreadable.log_objects = sum(WAL.lsn_of(info.key) is not None for info in objects)
        raise unreadable from None
    number = head.manifest.generation
    if number not in generations and number not in damaged:
        # Published since the listing, or else there is no trace of it but the hint.
        outcome = _generation(tree, number)
        if isinstance(outcome, Manifest):
            generations[number] = outcome
        else:
            damaged[number] = Problem(
                MANIFESTS.key(number), 0, "it is missing; only the hint has it"
            )
    broken = find_broken_lists(head)
    if broken is not None:
        raise ListsUnreadable(broken)
    board, board_damage = examine_board(tree)
    pinned = pinned_generations(board, head.root)
    oldest = head.root.oldest_generation
    generations = {
        n: found for n, found in generations.items() if is_believed(found, head.root, pinned)
    }
    damaged = {n: found for n, found in damaged.items() if n >= oldest or n in pinned}
    newer = {n: found for n, found in newer.items() if n >= oldest or n in pinned}
    known = {*generations, *damaged, *newer}
    missing = _missing(tree, head.manifest, generations, known, board)
    log = heeding_skips(partial(_log, tree, head, objects, progress))
    tree.check_state(log.unfolded)
    live = (*head.manifest.segments, *head.manifest.window, *log.unfolded.ingests)
    wanted = {info.key: info for info in (*live, *log.unfolded.dropped)}
    protected = {gone.key for gone in head.manifest.superseded}
    present = {info.key for info in objects}
    others: dict[str, SegmentInfo] = {}
    for manifest in generations.values():
        for info in _still_named(manifest):
            if info.key in wanted:
                continue
            if info.key in protected or manifest.generation in pinned:
                wanted[info.key] = info
            elif left_over and info.key in present:
                others[info.key] = info
    for brought in log.folded_ingests.values():
        # The log below the floor is still read by feeds and time travel.
        wanted.update({i.key: i for i in brought if i.key in protected and i.key not in wanted})
    check = partial(_segment, tree, deep=deep)
    if executor is not None and executor.size > 1:
        checked = _shared_out(executor, list(wanted.values()), deep)
    else:
        checked = _each(tree, "segments", list(wanted.values()), check, progress)
    others = {key: info for key, info in others.items() if key not in wanted}
    unneeded = _each(tree, "left-over segments", list(others.values()), check, progress)
    return Health(
        objects,
        generations,
        damaged,
        newer,
        missing,
        hint,
        head,
        log,
        live,
        board_damage,
        {**others, **wanted},
        dict(zip(wanted, checked, strict=True)),
        {
            key: bad
            for key, bad in zip(others, unneeded, strict=True)
            if bad and not _is_gone(tree, key)
        },
    )


def _is_gone(tree: Tree, key: str) -> bool:
    try:
        tree.store.head(key)
    except ObjectNotFound:
        return True
    return False


def needs(manifest: Manifest) -> tuple[SegmentInfo, ...]:
    """The segments without which a generation cannot be read."""
    return (*manifest.segments, *manifest.window)


def _still_named(manifest: Manifest) -> tuple[SegmentInfo, ...]:
    """What a generation of the past names, or nothing if its lists were collected already."""
    try:
        return needs(manifest)
    except (Corruption, ObjectNotFound):
        return manifest.window


def _missing(
    tree: Tree, head: Manifest, generations: dict[int, Manifest], known: set[int], board: Pins
) -> dict[int, Problem]:
    """Generations that must be there and are not; one found after all is added to the others.

    What is collected is forgotten first: the oldest that is retained and all since are there, and
    so is each that is pinned. Collectors of former versions left no such number: there, as long
    as the head lists what a generation superseded or folded, the one before it and all since
    are retained. One that a repair set aside, or noted as gone, is not missed again.
    """
    listed = [gone.generation for gone in head.superseded]
    listed += [span.generation for span in head.folded]
    lost = missing_pinned(tree, head, known, board)
    missing = {n: p for p in lost if (n := MANIFESTS.generation_of(p.key)) is not None}
    first = max(1, head.oldest_generation or min(listed, default=head.generation + 1) - 1)
    for number in range(head.generation - 1, first - 1, -1):
        if number in known:
            continue
        after = head if number + 1 == head.generation else generations.get(number + 1)
        if after is not None and not after.previous:
            break  # Nothing came before it: a rebuild started there.
        outcome = _generation(tree, number)
        if isinstance(outcome, Manifest):
            generations[number] = outcome
        else:
            meaning = "it is missing though still retained; time travel to it is lost"
            missing[number] = Problem(MANIFESTS.key(number), 0, meaning)
    aside = quarantined(tree.store, map(MANIFESTS.key, missing))
    return {n: problem for n, problem in sorted(missing.items()) if problem.key not in aside}


def _log(
    tree: Tree,
    head: Head[Manifest],
    objects: Sequence[ObjectInfo],
    progress: Progress | None,
    skips: frozenset[int],
) -> LogHealth:
    manifest = head.manifest
    floor = manifest.wal_floor
    present = {lsn for info in objects if (lsn := WAL.lsn_of(info.key)) is not None}
    last = max(present, default=floor - 1)
    folded = [lsn for slots in retained_slots(manifest) for lsn in slots]
    slots = [*folded, *range(floor, last + 1)]
    health = LogHealth(unfolded_above(manifest), max(last + 1, floor), skipped=set(skips))
    troubles: dict[int, Corruption] = {}
    done = 0
    for lsn, outcome in read_slots(tree.log, slots):
        done += 1
        if progress is not None and (done % _STEP == 0 or done == len(slots)):
            progress("log", done, len(slots))
        if isinstance(outcome, Corruption):
            troubles[lsn] = outcome
            continue
        given_up = health.skipped.union(outcome.header.skips)
        if any(floor <= slot < lsn and slot not in troubles for slot in given_up - health.skipped):
            raise GivenUp(frozenset(given_up))
        health.skipped = given_up
        if floor <= lsn and lsn in skips:
            continue
        try:
            _take(health, outcome, floor)
        except Corruption as error:
            if lsn < floor:
                troubles[lsn] = error
            else:
                health.stop = health.stop or problem_of(error, error.key)
    _sort_troubles(tree, health, troubles, floor)
    return health


def _take(health: LogHealth, entry: LogEntry, floor: int) -> None:
    if entry.lsn < floor:
        records = records_of(entry)
        brought = [info for r in records if isinstance(r, Ingest) for info in r.segments]
        if brought:
            health.folded_ingests[entry.lsn] = tuple(brought)
    elif health.stop is None:
        health.unfolded.apply(entry)


def _sort_troubles(
    tree: Tree, health: LogHealth, troubles: dict[int, Corruption], floor: int
) -> None:
    if any(isinstance(trouble, MissingSlot) for trouble in troubles.values()):
        # What is gone may have been folded, and collected, since the root was read.
        newest = _head(tree).manifest
        troubles = {
            lsn: trouble for lsn, trouble in troubles.items() if is_retained_slot(newest, lsn)
        }
    for lsn, trouble in troubles.items():
        missing = isinstance(trouble, MissingSlot)
        if lsn in health.skipped:
            (health.skipped_missing if missing else health.skipped_damaged).append(lsn)
            continue
        if missing:
            health.missing.add(lsn)
        kept = health.damaged if lsn >= floor else health.folded_damaged
        kept[lsn] = problem_of(trouble, WAL.key(lsn))


def _each(
    tree: Tree,
    what: str,
    items: Sequence[object],
    check: Callable[..., Found],
    progress: Progress | None,
) -> list[Found]:
    """Check objects in parallel, a handful at a time, and tell how far it is."""
    found: list[Found] = []
    for start in range(0, len(items), _STEP):
        some = items[start : start + _STEP]
        found += tree.store.concurrently([partial(check, item) for item in some])
        if progress is not None:
            progress(what, start + len(some), len(items))
    return found


def _shared_out(
    executor: Executor, infos: Sequence[SegmentInfo], deep: bool
) -> list[list[Problem]]:
    """What is wrong with each of the segments, found by an executor in parts of about one size."""
    share = max(1, sum(info.size for info in infos) // (executor.size * _SHARES))
    parts: list[_Check] = []
    size = share
    for info in infos:
        if size >= share:
            parts.append(_Check([], deep))
            size = 0
        parts[-1].infos.append(info)
        size += info.size
    return [problems for found in executor(check_part, parts, "verifying") for problems in found]


@dataclass(frozen=True)
class _Check:
    infos: list[SegmentInfo]
    deep: bool


def check_part(tree: Tree, part: _Check) -> list[list[Problem]]:
    """What is wrong with each segment of a part."""
    return [_segment(tree, info, deep=part.deep) for info in part.infos]


def problem_of(error: Corruption | UnsupportedFormat, key: str) -> Problem:
    """What an error says about an object."""
    if isinstance(error, Corruption):
        return Problem(key, error.offset, error.reason)
    return Problem(key, 0, str(error))


def _generation(tree: Tree, number: int) -> Manifest | Corruption | UnsupportedFormat | None:
    try:
        return tree.register.read_generation(number)
    except ObjectNotFound:
        return None
    except (Corruption, UnsupportedFormat) as error:
        return error


def _head(tree: Tree) -> Head[Manifest]:
    """The root. Here also one of which only the hint is left: that is reported, and repaired."""
    return tree.register.head(lone_hint=True)


def _hint(tree: Tree) -> Problem | None:
    problem = None
    for _ in range(_TIMES_AGAIN):
        # What arrives damaged may be whole where it lies.
        try:
            tree.register.decode(HINT, tree.store.get(HINT).data)
        except ObjectNotFound:
            return None
        except (Corruption, UnsupportedFormat) as error:
            problem = problem_of(error, HINT)
        else:
            return None
    return problem


def _segment(tree: Tree, info: SegmentInfo, *, deep: bool) -> list[Problem]:
    return verify_segment(tree.store, info.key, info, deep=deep)

"""Reading the log from a slot to its end, as recovery, folding and feeds do."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from reef.errors import Corruption, ObjectNotFound
from reef.log.codec import LogEntry
from reef.log.log import Log

_WINDOW = 64
_logger = logging.getLogger("reef")

Result = TypeVar("Result")
NO_SLOTS: frozenset[int] = frozenset()


class MissingSlot(Corruption):
    """A slot is empty though a later one is not: collected meanwhile, or lost."""

    def __init__(self, key: str, lsn: int) -> None:
        super().__init__(key, "the log object is missing though later ones are there")
        self.lsn = lsn


class GivenUp(Exception):
    """An entry gives up slots that were read before it, undamaged: what was made of them does not
    count. Whoever reads begins again, and passes over all of `slots`."""

    def __init__(self, slots: frozenset[int]) -> None:
        super().__init__(f"slots {sorted(slots)} were given up")
        self.slots = slots


def heeding_skips(read: Callable[[frozenset[int]], Result]) -> Result:
    """What `read` makes of the log, which is called with the slots that it has to pass over, and
    once more with more of them after it has met an entry that gives up what it has read."""
    skips = NO_SLOTS
    while True:
        try:
            return read(skips)
        except GivenUp as given_up:
            skips = given_up.slots


@dataclass
class LogTail:
    """The entries from slot `first` through `last` (the end of the log when None), in order.

    Iterating reads ahead in parallel, `_WINDOW` objects at a time. A slot that a later entry names
    in `skips` is given up for everybody: its object is passed over, be it damaged, missing or
    sound. One that is damaged is looked for in all of the log, also after `last`. One that was read
    soundly is yielded only when the entry behind it has been looked at; an entry further on that
    gives up what was yielded raises `GivenUp`, which `heeding_skips` is for. `skips` are slots
    known to be given up, and `held` the first slot that the consumer has taken in, `first` if
    None; one that cannot take back what it was told says `takes_back=False`, and is not disturbed.

    A damaged object that is the last of the log is taken as never committed: it is left out,
    logged, and its slot put into `discarded`, for the next append to skip. Any other damaged object
    is `Corruption`, any other empty slot before an occupied one `MissingSlot`. After iteration
    `next_lsn` is the first free slot, and `skips` has what was met.
    """

    log: Log
    first: int
    last: int | None = None
    skips: frozenset[int] = NO_SLOTS
    held: int | None = None
    takes_back: bool = True
    next_lsn: int = field(init=False)
    discarded: list[int] = field(default_factory=list)
    objects: int = 0

    def __post_init__(self) -> None:
        self.next_lsn = self.first

    def __iter__(self) -> Iterator[LogEntry]:
        named = _Skips(self.log)
        final: Corruption | None = None
        pending: LogEntry | None = None
        beyond = None if self.last is None else self.last + 1
        for lsn, outcome in outcomes(self.log, self.first, beyond):
            if isinstance(outcome, LogEntry) and outcome.header.skips:
                self._heed(outcome)
            if pending is not None:
                if self._counts(pending):
                    yield pending
                pending = None
            if lsn == beyond:
                break
            self.objects += 1
            if final is not None:
                raise final
            if isinstance(outcome, LogEntry):
                pending = outcome
            elif lsn in self.skips or named.name(lsn):
                _logger.warning("%s; passed over, as a later entry says", outcome)
                self.skips |= {lsn}
                self.next_lsn = lsn + 1
            elif isinstance(outcome, MissingSlot) or self.last is not None:
                raise outcome
            else:
                final = outcome
        if pending is not None and self._counts(pending):
            yield pending
        if final is not None:
            _logger.error("%s; taken as never committed", final)
            self.discarded = [self.next_lsn]
            self.next_lsn += 1

    def _counts(self, entry: LogEntry) -> bool:
        self.next_lsn = entry.lsn + 1
        if entry.lsn not in self.skips:
            return True
        _logger.warning("%s was given up by a later entry; passed over", self.log.key(entry.lsn))
        return False

    def _heed(self, entry: LogEntry) -> None:
        fresh = frozenset(lsn for lsn in entry.header.skips if lsn < entry.lsn) - self.skips
        self.skips |= fresh
        held = self.first if self.held is None else self.held
        if self.takes_back and any(held <= lsn < self.next_lsn for lsn in fresh):
            raise GivenUp(self.skips)


class _Skips:
    """The slots that entries of the log give up, read as far as the question at hand needs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._named: set[int] = set()
        self._ahead: Iterator[tuple[int, LogEntry | Corruption]] | None = None

    def name(self, lsn: int) -> bool:
        """Whether an entry after that slot names it. Asked in ascending order."""
        if self._ahead is None:
            self._ahead = outcomes(self._log, lsn + 1)
        while lsn not in self._named:
            _, outcome = next(self._ahead, (0, None))
            if outcome is None:
                return False
            if isinstance(outcome, LogEntry):
                self._named.update(outcome.header.skips)
        return True


def outcomes(
    log: Log, first: int, last: int | None = None
) -> Iterator[tuple[int, LogEntry | Corruption]]:
    """Every slot from `first` through `last` (the last occupied one when None), and its entry or
    what is wrong with it. A long gap at the start is raised at once: it was collected."""
    for window in _windows(log, first, last):
        yield from read_slots(log, window)


def read_slots(log: Log, slots: Sequence[int]) -> Iterator[tuple[int, LogEntry | Corruption]]:
    """Those slots, read in parallel, a window at a time."""
    for start in range(0, len(slots), _WINDOW):
        window = slots[start : start + _WINDOW]
        found = log.store.concurrently([partial(_read_one, log, slot) for slot in window])
        yield from zip(window, found, strict=True)


def _windows(log: Log, first: int, last: int | None) -> Iterator[list[int]]:
    expected = first
    window: list[int] = []
    for lsn, _ in log.list(first):
        if expected == first and lsn - first > _WINDOW:
            raise MissingSlot(log.key(first), first)
        # A listing is not a snapshot: it may show a slot and not the one before it,
        # when both were written while it was being made.
        for slot in range(expected, (lsn if last is None else min(lsn, last)) + 1):
            window.append(slot)
            if len(window) >= _WINDOW:
                yield window
                window = []
        expected = lsn + 1
        if last is not None and lsn >= last:
            break
    if window:
        yield window


def _read_one(log: Log, lsn: int) -> LogEntry | Corruption:
    try:
        return log.read(lsn)
    except ObjectNotFound:
        return MissingSlot(log.key(lsn), lsn)
    except Corruption as damage:
        return damage

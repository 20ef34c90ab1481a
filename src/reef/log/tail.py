"""Reading the log from a slot to its end, as recovery, folding and feeds do."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from reef.errors import Corruption, ObjectNotFound
from reef.log.codec import LogEntry
from reef.log.log import Log

_WINDOW = 64
_logger = logging.getLogger("reef")


class MissingSlot(Corruption):
    """A slot is empty though a later one is not: collected meanwhile, or lost."""

    def __init__(self, key: str, lsn: int) -> None:
        super().__init__(key, "the log object is missing though later ones are there")
        self.lsn = lsn


@dataclass
class LogTail:
    """The entries from slot `first` through `last` (the end of the log when None), in order.

    Iterating reads ahead in parallel, `_WINDOW` objects at a time. A damaged or missing object is
    passed over if any later entry of the log, be it after `last`, names its slot in `skips`: the
    rest of the log is looked through for one only when damage is met. A damaged object that is the
    last of the log is taken as never committed: it is left out, logged, and its slot put into
    `discarded`, for the next append to skip. Any other damaged object is `Corruption`, any other
    empty slot before an occupied one `MissingSlot`. After iteration `next_lsn` is the first free
    slot.
    """

    log: Log
    first: int
    last: int | None = None
    next_lsn: int = field(init=False)
    discarded: list[int] = field(default_factory=list)
    objects: int = 0

    def __post_init__(self) -> None:
        self.next_lsn = self.first

    def __iter__(self) -> Iterator[LogEntry]:
        skips = _Skips(self.log)
        final: Corruption | None = None
        for lsn, outcome in outcomes(self.log, self.first, self.last):
            self.objects += 1
            if final is not None:
                raise final
            if isinstance(outcome, Corruption):
                if not skips.name(lsn):
                    if isinstance(outcome, MissingSlot) or self.last is not None:
                        raise outcome
                    final = outcome
                    continue
                _logger.warning("%s; passed over, as a later entry says", outcome)
                self.next_lsn = lsn + 1
                continue
            self.next_lsn = lsn + 1
            yield outcome
        if final is not None:
            _logger.error("%s; taken as never committed", final)
            self.discarded = [self.next_lsn]
            self.next_lsn += 1


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

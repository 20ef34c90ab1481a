"""Decisions: what may happen at a point of a run, what that takes of the bounds, and schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Bounds(NamedTuple):
    """How many of each a schedule may have."""

    preemptions: int = 2
    hours: int = 1
    faults: int = 1

    def less(self, option: Option) -> Bounds:
        """What is left after that."""
        return Bounds(
            self.preemptions - option.preempts,
            self.hours - option.hours,
            self.faults - option.faults,
        )

    @property
    def kept(self) -> bool:
        """Whether nothing was overdrawn."""
        return self.preemptions >= 0 and self.hours >= 0 and self.faults >= 0

    def covers(self, other: Bounds) -> bool:
        """Whether everything that the other allows is allowed here."""
        return (
            self.preemptions >= other.preemptions
            and self.hours >= other.hours
            and self.faults >= other.faults
        )


class Option(NamedTuple):
    """One thing that may happen. `turn` is whose turn it is then, -1 where it stays."""

    name: str
    turn: int = -1
    preempts: int = 0
    hours: int = 0
    faults: int = 0


GO_ON = Option("")

Choose = Callable[[Sequence[Option]], Option]
"""Decides at a point. The first option is the default."""


class Schedule(NamedTuple):
    """The decisions of a run that are not the default: at which point, and which."""

    decisions: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        return ",".join(f"{point}:{name}" for point, name in self.decisions) or "-"

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """From what `str` gives."""
        if text == "-":
            return cls()
        parts = [part.partition(":") for part in text.split(",")]
        return cls(tuple((int(point), name) for point, _, name in parts))


class Replay:
    """Decides as a schedule has it."""

    def __init__(self, schedule: Schedule) -> None:
        self._decisions = dict(schedule.decisions)
        self._points = 0

    def __call__(self, options: Sequence[Option]) -> Option:
        name = self._decisions.pop(self._points, None)
        self._points += 1
        if name is None:
            return options[0]
        for option in options:
            if option.name == name:
                return option
        raise ValueError(
            f"point {self._points - 1} has no {name!r}, only {[option.name for option in options]}"
        )

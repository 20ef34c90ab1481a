"""The agenda: which crash point a process is to die at next, and which have been met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from torture.murder.crash_points import CrashPoint

MOST_TRIES = 12


class Agenda:
    """Points to hit. Each is tried until it was, and a few times more than that is a failure."""

    def __init__(self, points: Iterable[CrashPoint]) -> None:
        self.points = tuple(points)
        self.hits: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self._armed: set[str] = set()

    @property
    def left(self) -> list[CrashPoint]:
        """Those that were never hit."""
        return [point for point in self.points if not self.hits[point.name]]

    @property
    def hopeless(self) -> list[CrashPoint]:
        """Those that were tried again and again, in vain."""
        return [point for point in self.left if self.tries[point.name] >= MOST_TRIES]

    def take(self, role: str, random: Random) -> CrashPoint | None:
        """The next point for a process of that role: one not hit yet, else any or none."""
        mine = [point for point in self.points if point.role == role]
        waiting = [
            point for point in mine if not self.hits[point.name] and point.name not in self._armed
        ]
        if waiting:
            chosen = min(waiting, key=lambda point: self.tries[point.name])
        elif mine and random.random() < 0.5:
            chosen = random.choice(mine)
        else:
            return None
        self._armed.add(chosen.name)
        return chosen

    def hit(self, name: str) -> None:
        """A process died there."""
        self.hits[name] += 1
        self._armed.discard(name)

    def missed(self, name: str, *, tried: bool) -> None:
        """A process ended some other way; `tried` if it had had time enough."""
        self.tries[name] += tried
        self._armed.discard(name)

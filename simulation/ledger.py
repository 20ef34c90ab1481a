"""Ledgers: what was won of a log, and what was published in a register, in order, since ever.

A number that is won a second time, after what was there was collected, is no part of it: it is a
ghost, put there by somebody who slept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from reef.log import LogEntry
from reef.log import decode as decode_entry
from reef.manifest.layout import Layout
from reef.manifest.root import Root
from simulation.world import Violation, World

R = TypeVar("R", bound=Root)


class LogLedger:
    """The slots of a log. `fingerprint` is a hash of all of them and of their times."""

    def __init__(self, world: World) -> None:
        self.newest = 0
        self.ghosts: set[str] = set()
        self.fingerprint = 0
        self._world = world

    def copy(self, world: World) -> LogLedger:
        """The same, to go another way."""
        other = LogLedger(world)
        other.newest, other.ghosts = self.newest, set(self.ghosts)
        other.fingerprint = self.fingerprint
        return other

    def won(self, name: str, lsn: int, data: bytes) -> LogEntry | None:
        """A slot was won. None if that counts for nothing."""
        if lsn <= self.newest:
            self.ghosts.add(name)
            return None
        if lsn != self.newest + 1:
            raise Violation(f"slot {lsn} was written though slot {self.newest + 1} is free")
        self.newest = lsn
        self.fingerprint = hash((self.fingerprint, data, self._world.time))
        return decode_entry(name, memoryview(data))


class Published(NamedTuple, Generic[R]):
    """A root, and when it appeared."""

    root: R
    time: float


class RegisterLedger(Generic[R]):
    """The generations of a register."""

    def __init__(self, world: World, layout: Layout[R]) -> None:
        self.layout = layout
        self.generations: list[Published[R]] = []
        self.ghosts: set[str] = set()
        self.fingerprint = 0
        self._world = world

    def copy(self, world: World) -> RegisterLedger[R]:
        """The same, to go another way."""
        other = RegisterLedger(world, self.layout)
        other.generations, other.ghosts = list(self.generations), set(self.ghosts)
        other.fingerprint = self.fingerprint
        return other

    @property
    def newest(self) -> int:
        """The number of the newest generation."""
        return len(self.generations)

    @property
    def head(self) -> R:
        """The newest generation."""
        return self.generations[-1].root

    def published(
        self,
        name: str,
        number: int,
        data: bytes,
        decode: Callable[[str, memoryview], R] | None = None,
    ) -> R | None:
        """A generation appeared. None if that counts for nothing."""
        if number <= self.newest:
            self.ghosts.add(name)
            return None
        if number != self.newest + 1:
            raise Violation(f"{name} was published without the one before it")
        root = (decode or self.layout.codec.decode)(name, memoryview(data))
        if self.generations and root.previous != self.head.nonce:
            raise Violation(f"{name} was not made from the one before it")
        self.generations.append(Published(root, self._world.time))
        self.fingerprint = hash((self.fingerprint, data, self._world.time))
        return root

    def superseded(self, number: int) -> float:
        """When a generation ceased to be the newest; now, if it has not."""
        later = self.generations[number:]
        return later[0].time if later else self._world.time

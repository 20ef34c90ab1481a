"""The world: true time, and the processes that live in it. How it goes on is for its kinds to say:
at random (`chance.py`), or as a schedule has it (`exhaustive/turns.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from reef.environment import Environment
from reef.errors import StoreUnavailable
from reef.store.contract import Result

START = 1_700_000_000.0

MUTATING = frozenset({"put", "create", "delete"})


class Crash(BaseException):
    """The process died here. No handler of `Exception` sees it."""


class Violation(AssertionError):
    """Something that must never happen did."""


class Step(NamedTuple):
    """A line of the trace."""

    time: float
    process: str
    kind: str
    subject: str
    outcome: str


class Process:
    """One life of a program: memory, clock and identity that end with it."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.resumes = 0.0
        self.attempt: Any = None
        self.greenlets: dict[greenlet, None] = {}
        self._offset = random.choice((0.0, 0.0, -3.0, 2.0, 600.0, -7_000.0))
        self._drift = random.choice((1.0, 1.0, 0.9999, 1.001))
        self._booted = world.time - random.random() * 1_000
        self._entropy = Random(random.getrandbits(64))
        self.environment = Environment(
            self._now, self._monotonic, self._entropy.randbytes, self._sleep
        )

    def _now(self) -> float:
        return START + (self.world.time - START) * self._drift + self._offset

    def _monotonic(self) -> float:
        return self.world.time - self._booted

    def _sleep(self, seconds: float) -> None:
        if self.dead:
            raise Crash
        self.world.sleep(self, seconds)

    def jump(self, seconds: float) -> None:
        """Set the wall clock wrong by that much more."""
        self._offset += seconds

    def run(self, call: Callable[[], None]) -> None:
        """Begin to run it, soon."""
        thread = greenlet(call, parent=self.world.hub)
        self.greenlets[thread] = None
        self.world.soon(self, thread)

    def resume(self, thread: greenlet) -> None:
        """Go on with a greenlet that waits. Called by the hub."""
        thread.switch()
        if thread.dead:
            self.greenlets.pop(thread, None)

    def die(self) -> None:
        """End now, in the middle of whatever it does. Called by the hub."""
        self.dead = True
        for thread in list(self.greenlets):
            if not thread.dead:
                with suppress(Crash):
                    thread.throw(Crash)
        self.greenlets.clear()


class Branch(Future[Result]):
    """A request that a process has under way beside others."""

    def __init__(self, process: Process, call: Callable[[], Result]) -> None:
        # Not the Future's own: its lock and condition are for threads, and none is used here.
        self._process = process
        self._call = call
        self._begun = False
        self._ended = False
        self._dropped = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiter: greenlet | None = None
        process.run(self._run)

    def _run(self) -> None:
        if self._dropped:
            return
        self._begun = True
        try:
            self._value = self._call()
        except Exception as error:
            self._error = error
        self._ended = True
        waiter = self._waiter
        if waiter is not None:
            self._process.world.soon(self._process, waiter)

    def _join(self) -> None:
        if self._process.dead:
            raise Crash
        if not self._ended:
            self._waiter = getcurrent()
            self._process.world.hub.switch()

    def result(self, timeout: float | None = None) -> Result:
        """Wait for it."""
        self._join()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Keep it from beginning, or wait until it has ended."""
        if self._begun:
            self._join()
        self._dropped = True
        return True


class World(ABC):
    """True time, a trace, and processes. What they do happens by way of the hub, one at a time.
    `damages` counts the answers that arrived damaged, of objects that are whole."""

    def __init__(self) -> None:
        self.time = START
        self.hub = getcurrent()
        self.trace: list[Step] = []
        self.requests = 0
        self.damages = 0
        self.processes: list[Process] = []

    def note(self, process: str, kind: str, subject: str = "", outcome: str = "") -> None:
        """Add a line to the trace."""
        self.trace.append(Step(self.time, process, kind, subject, outcome))

    def process(self, name: str, random: Random) -> Process:
        """A new process."""
        process = Process(self, name, random)
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Everybody dies."""
        for process in self.processes:
            if not process.dead:
                process.die()

    def learned(self, process: Process, *facts: object) -> None:  # noqa: B027
        """A process looked at something that is not in an answer."""

    @abstractmethod
    def soon(self, process: Process, thread: greenlet) -> None:
        """Go on with a greenlet of a process when it is its turn."""

    @abstractmethod
    def sleep(self, process: Process, seconds: float) -> None:
        """Let the greenlet that calls sleep."""

    @abstractmethod
    def request(
        self, process: Process, kind: str, key: str, effect: Callable[[], Result]
    ) -> Result:
        """Ask something of the bucket, for the greenlet that calls, and wait for the answer."""

    @abstractmethod
    def finish(self) -> None:
        """Go on until nothing is left to happen."""

    @abstractmethod
    def pages(self) -> int:
        """How many keys a page of a listing has."""


def unavailable(why: str) -> StoreUnavailable:
    """What a client sees of a request that did not come through."""
    return StoreUnavailable(f"the request was {why} on purpose")

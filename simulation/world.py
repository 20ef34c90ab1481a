"""The world: true time, the events to come, and the processes that live in it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from reef.environment import Environment
from reef.errors import StoreUnavailable
from reef.store.contract import Result
from simulation.plan import Plan

START = 1_700_000_000.0
_PAUSES = (5.0, 30.0, 100.0, 300.0, 90_000.0)
_LATE = (0.5, 15.0, 100.0, 400.0, 5_000.0)
_JUMPS = (-5_000.0, -60.0, -1.0, 1.0, 60.0, 5_000.0)

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


class Fate(NamedTuple):
    """What becomes of one request. Times count from its beginning.

    It takes effect at each of `effects`; the answer comes at `answer`: that of the last effect, or
    `error`. With `dies` the process is dead at that moment instead. With `sleep` the whole process
    does nothing until then.
    """

    effects: tuple[float, ...]
    answer: float
    error: str = ""
    dies: bool = False
    sleep: float = 0.0
    name: str = ""


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
        me = getcurrent()
        self.world.after(seconds, partial(self.wake, me))
        self.world.hub.switch()

    def jump(self, seconds: float) -> None:
        """Set the wall clock wrong by that much more."""
        self._offset += seconds

    def run(self, call: Callable[[], None]) -> None:
        """Begin to run it, soon."""
        thread = greenlet(call, parent=self.world.hub)
        self.greenlets[thread] = None
        self.world.after(0.0, partial(self.wake, thread))

    def wake(self, thread: greenlet) -> None:
        """Go on with a greenlet that waits, unless the process is dead or asleep."""
        world = self.world
        if self.dead:
            return
        if world.time < self.resumes:
            world.after(self.resumes - world.time, partial(self.wake, thread))
            return
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
            self._process.world.after(0.0, partial(self._process.wake, waiter))

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


class World:
    """Runs events in the order of their times; the same seed gives the same run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.time = START
        self.hub = getcurrent()
        self.trace: list[Step] = []
        self.requests = 0
        self.calm = False
        self.processes: list[Process] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._timing = Random(f"{plan.seed}/timing")
        self._chance = Random(f"{plan.seed}/chance")

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, called by the hub."""
        self._count += 1
        heappush(self._events, (self.time + seconds, self._count, action))

    def note(self, process: str, kind: str, subject: str = "", outcome: str = "") -> None:
        """Add a line to the trace."""
        self.trace.append(Step(self.time, process, kind, subject, outcome))

    def process(self, name: str, random: Random) -> Process:
        """A new process."""
        process = Process(self, name, random)
        self.processes.append(process)
        return process

    def run(self, most_requests: int) -> None:
        """Let the world go on until nothing is left to happen, or that many requests were made."""
        events = self._events
        while events and self.requests < most_requests:
            self.time, _, action = heappop(events)
            action()

    def end(self) -> None:
        """Everybody dies. What is under way in the bucket still happens, after this, in `run`."""
        for process in self.processes:
            if not process.dead:
                process.die()

    def fate(self, process: Process, kind: str) -> Fate:
        """Decide what becomes of a request."""
        timing = self._timing.random
        there = 0.001 + timing() * 0.02
        back = 0.001 + timing() * 0.02
        plan = self.plan
        if self.calm:
            return Fate((there,), there + back)
        chance = self._chance
        # The requests that decide something are where it hurts.
        if chance.random() >= plan.intensity * (4 if kind in ("create", "put") else 1):
            return Fate((there,), there + back)
        fault = chance.choice(plan.faults)
        writes = kind in MUTATING
        if fault == "refuse":
            return Fate((), there, "refused", name=fault)
        if fault == "lose":
            return Fate((there,), there + back, "lost", name=fault)
        if fault == "duplicate" and writes:
            return Fate((there, there + back), there + 2 * back, name=fault)
        if fault == "conflict" and kind == "create":
            return Fate((), there, "conflict", name=fault)
        if fault == "late" and writes:
            late = chance.choice(_LATE) * (0.5 + chance.random())
            return Fate((late,), there + 0.3, "timed out", name=fault)
        if fault == "crash":
            when = chance.randrange(3)
            if when == 0:
                return Fate((), there, dies=True, name="crash before")
            if when == 1 or not writes:
                return Fate((there,), there + back, dies=True, name="crash after")
            late = chance.choice(_LATE) * (0.5 + chance.random())
            return Fate((late,), there, dies=True, name="crash, lands late")
        if fault == "pause":
            pause = chance.choice(_PAUSES) * (0.5 + chance.random())
            if chance.random() < 0.5:
                return Fate((there,), there + back, sleep=pause, name="sleeps after")
            awake = there + pause
            return Fate((awake,), awake + back, sleep=awake, name="sleeps before")
        if fault == "slow":
            slow = chance.random() * 20
            return Fate((there + slow,), there + slow + back, name=fault)
        if fault == "jump":
            process.jump(chance.choice(_JUMPS) * chance.random())
        return Fate((there,), there + back, name=fault if fault == "jump" else "")

    def pages(self) -> int:
        """How many keys a page of a listing has."""
        if self.calm or "pages" not in self.plan.faults or self._chance.random() > 0.2:
            return 1_000
        return self._chance.randrange(1, 6)


def unavailable(why: str) -> StoreUnavailable:
    """What a client sees of a request that did not come through."""
    return StoreUnavailable(f"the request was {why} on purpose")

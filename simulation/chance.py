"""A world of chance: events in the order of their times, and faults as a plan allows them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from reef.errors import AlreadyExists
from reef.store.contract import Result
from simulation.plan import Plan
from simulation.world import MUTATING, Process, Violation, World, unavailable

_PAUSES = (5.0, 30.0, 100.0, 300.0, 90_000.0)
_LATE = (0.5, 15.0, 100.0, 400.0, 5_000.0)
_JUMPS = (-5_000.0, -60.0, -1.0, 1.0, 60.0, 5_000.0)


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


_USUAL = Fate((), 0.0)
"""Nothing befalls it. Then nobody can tell its effect from its answer, and they come together."""


class _Request:
    """A request under way. Called by the hub, it takes effect and is answered."""

    __slots__ = (
        "effect", "error", "fate", "key", "kind", "number", "process", "result", "thread", "world",
    )  # fmt: skip

    def __init__(
        self,
        world: RandomWorld,
        process: Process,
        kind: str,
        key: str,
        effect: Callable[[], Any],
        thread: greenlet,
        fate: str,
    ) -> None:
        self.world = world
        self.process = process
        self.kind = kind
        self.key = key
        self.effect = effect
        self.thread = thread
        self.fate = fate
        self.number = world.requests
        self.result: Any = None
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.happen()
        self.world.wake(self.process, self.thread)

    def happen(self) -> None:
        """Take effect."""
        said = "ok"
        try:
            self.result, self.error = self.effect(), None
        except Violation:
            said = "VIOLATION"
            raise
        except Exception as error:
            self.error = error
            said = type(error).__name__
        finally:
            fault = f" ({self.fate})" if self.fate else ""
            self.world.note(self.process.name, self.kind, self.key, f"#{self.number} {said}{fault}")

    def answer(self, fate: Fate) -> None:
        """Come to whatever end it has."""
        note = partial(self.world.note, self.process.name)
        if fate.dies:
            note("dies", self.key, f"#{self.number} {fate.name}")
            self.process.die()
            return
        if fate.error == "conflict":
            self.error = AlreadyExists(self.key)
        elif fate.error:
            self.error = unavailable(fate.error)
        if fate.name and (fate.error or not fate.effects):
            note("failed", self.key, f"#{self.number} {self.kind} {fate.name}")
        self.world.wake(self.process, self.thread)


class RandomWorld(World):
    """Runs events in the order of their times; the same seed gives the same run."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.calm = False
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._timing = Random(f"{plan.seed}/timing").random
        self._chance = Random(f"{plan.seed}/chance")

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, called by the hub."""
        self._count += 1
        heappush(self._events, (self.time + seconds, self._count, action))

    def run(self, most_requests: int) -> None:
        """Let the world go on until nothing is left to happen, or that many requests were made.
        What is under way in the bucket happens even after its process died."""
        events = self._events
        while events and self.requests < most_requests:
            self.time, _, action = heappop(events)
            action()

    def finish(self) -> None:
        self.run(1_000_000_000)

    def soon(self, process: Process, thread: greenlet) -> None:
        self.after(0.0, partial(self.wake, process, thread))

    def sleep(self, process: Process, seconds: float) -> None:
        self.after(seconds, partial(self.wake, process, getcurrent()))
        self.hub.switch()

    def wake(self, process: Process, thread: greenlet) -> None:
        """Go on with a greenlet, unless its process is dead or asleep."""
        if process.dead:
            return
        if self.time < process.resumes:
            self.after(process.resumes - self.time, partial(self.wake, process, thread))
            return
        process.resume(thread)

    def request(
        self, process: Process, kind: str, key: str, effect: Callable[[], Result]
    ) -> Result:
        self.requests += 1
        fate = self.fate(process, kind)
        me = getcurrent()
        asked = _Request(self, process, kind, key, effect, me, fate.name)
        if fate is _USUAL:
            self.after(0.002 + self._timing() * 0.04, asked)
        else:
            for moment in fate.effects:
                self.after(moment, asked.happen)
            self.after(fate.answer, partial(asked.answer, fate))
            if fate.sleep:
                process.resumes = max(process.resumes, self.time + fate.sleep)
                self.note(
                    process.name, "sleeps", key, f"#{asked.number} {kind}, {fate.sleep:.0f} s"
                )
        self.hub.switch()
        if asked.error is not None:
            raise asked.error
        return asked.result  # type: ignore[no-any-return]

    def fate(self, process: Process, kind: str) -> Fate:
        """Decide what becomes of a request."""
        plan = self.plan
        chance = self._chance
        # The requests that decide something are where it hurts.
        if self.calm or chance.random() >= plan.intensity * (4 if kind in ("create", "put") else 1):
            return _USUAL
        there = 0.001 + self._timing() * 0.02
        back = 0.001 + self._timing() * 0.02
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

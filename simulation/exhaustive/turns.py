"""A world of turns: one process runs at a time, and at each request somebody decides who is next.

Time stands still but for sleeps, and for the hour that a decision may let pass. Requests that a
process has under way at the same time are performed in the order in which they were made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from reef.errors import AlreadyExists
from reef.store.contract import ObjectInfo, Result
from simulation.bucket import Object
from simulation.exhaustive.schedule import GO_ON, Choose, Option
from simulation.world import Process, Violation, World, unavailable

HOUR = 3_600.0


@dataclass(eq=False)
class _Request:
    kind: str
    key: str
    effect: Callable[[], Any]
    thread: greenlet | None
    result: Any = None
    error: Exception | None = None
    asked: bool = False
    slept: bool = False


@dataclass(eq=False)
class _Lane:
    """A process and what it waits for. `history` is a hash of all that it ever learned, which is
    all that its memory is made of."""

    number: int
    name: str
    process: Process | None
    ready: deque[greenlet] = field(default_factory=deque)
    requests: deque[_Request] = field(default_factory=deque)
    sleeping: list[tuple[float, greenlet]] = field(default_factory=list)
    answered: _Request | None = None
    history: int = 0

    @property
    def alive(self) -> bool:
        return bool(self.ready or self.requests or self.sleeping or self.answered)

    def learn(self, *facts: object) -> None:
        self.history = hash((self.history, facts))


class TurnWorld(World):
    """Goes on as `choose` decides."""

    def __init__(self, time: float) -> None:
        super().__init__()
        self.time = time
        self.lanes: list[_Lane] = []
        self.turn: _Lane | None = None
        self._lane_of: dict[Process, _Lane] = {}
        self._choose: Choose = lambda options: options[0]

    def process(self, name: str, random: Random) -> Process:
        process = super().process(name, random)
        lane = _Lane(len(self.lanes), name, process)
        self.lanes.append(lane)
        self._lane_of[process] = lane
        return process

    def learned(self, process: Process, *facts: object) -> None:
        """A process looked at something that is not in an answer."""
        self._lane_of[process].learn(*facts)

    @property
    def fingerprint(self) -> int:
        """A hash of what processes know and wait for, and of the time."""
        return hash(
            (
                self.time,
                self.damages,
                self.turn.number if self.turn is not None else -1,
                tuple(
                    (
                        lane.history,
                        len(lane.requests),
                        lane.answered is not None and 1 + lane.answered.slept,
                        bool(lane.requests and lane.requests[0].asked),
                    )
                    if lane.alive
                    else 0
                    for lane in self.lanes
                ),
            )
        )

    # What processes ask for

    def soon(self, process: Process, thread: greenlet) -> None:
        self._lane_of[process].ready.append(thread)

    def sleep(self, process: Process, seconds: float) -> None:
        self._lane_of[process].sleeping.append((self.time + seconds, getcurrent()))
        self.hub.switch()

    def request(
        self, process: Process, kind: str, key: str, effect: Callable[[], Result]
    ) -> Result:
        self.requests += 1
        request = _Request(kind, key, effect, getcurrent())
        self._lane_of[process].requests.append(request)
        self.hub.switch()
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[no-any-return]

    def pages(self) -> int:
        return 1_000

    # How it goes on

    def finish(self) -> None:
        """Go on to the end without a decision."""
        self.run(lambda options: options[0])

    def run(self, choose: Choose) -> None:
        """Go on to the end, with that decision at each point."""
        self._choose = choose
        while True:
            lane = self.turn
            if lane is None or not lane.alive:
                if not any(lane.alive for lane in self.lanes):
                    self.turn = None
                    return
                self.turn = None
                self._switch(choose(self._turns(free=True)))
            elif lane.ready:
                self._resume(lane, lane.ready.popleft())
            elif lane.answered is not None:
                self._answer(lane, lane.answered)
            elif lane.requests:
                self._request_of(lane, lane.requests[0])
            else:
                self._wake(lane)

    def _turns(self, *, free: bool) -> list[Option]:
        cost = 0 if free else 1
        found = []
        for lane in self.lanes:
            if lane.alive and lane is not self.turn:
                found.append(Option(lane.name, lane.number, cost))
                found.append(Option(f"{lane.name}+hour", lane.number, cost, 1))
        return found

    def _switch(self, option: Option) -> None:
        if option.hours:
            self.time += HOUR
            self.note("", "an hour", "", "passes")
        if option.turn >= 0:
            self.turn = self.lanes[option.turn]
            self.note(self.turn.name, "has the turn")

    def _resume(self, lane: _Lane, thread: greenlet) -> None:
        assert lane.process is not None
        lane.process.resume(thread)

    def _wake(self, lane: _Lane) -> None:
        """The process sleeps: somebody else may have the turn for nothing."""
        option = self._choose([GO_ON, *self._turns(free=True)])
        if option is not GO_ON:
            self._switch(option)
            return
        lane.sleeping.sort(key=lambda sleeper: sleeper[0])
        until, thread = lane.sleeping.pop(0)
        self.time = max(self.time, until)
        lane.learn("awake", self.time)
        self._resume(lane, thread)

    def _request_of(self, lane: _Lane, request: _Request) -> None:
        options = [GO_ON]
        if not request.asked:
            options += [*self._turns(free=False), Option("+hour", hours=1)]
        if request.thread is not None:
            options += _FAULTS[request.kind]
        option = self._choose(options)
        if option.faults:
            self._fail(lane, request, option.name)
        elif option is not GO_ON:
            request.asked = True
            self._switch(option)
        else:
            self._perform(lane, request)

    def _perform(self, lane: _Lane, request: _Request, fault: str = "") -> None:
        """Do it. The answer waits: the process may sleep before it gets it."""
        lane.requests.popleft()
        try:
            request.result = request.effect()
            said = "ok"
        except Violation:
            self.note(lane.name, request.kind, request.key, "VIOLATION")
            raise
        except Exception as error:
            request.error = error
            said = type(error).__name__
        self.note(lane.name, request.kind, request.key, f"{said} {fault}".strip())
        if request.thread is not None and not fault:
            self._hold(lane, request)

    def _hold(self, lane: _Lane, request: _Request) -> None:
        lane.answered = request
        lane.learn(request.kind, request.key, type(request.error).__name__, _digest(request.result))

    def _answer(self, lane: _Lane, request: _Request) -> None:
        if not request.slept:
            sleeps = [option for option in self._turns(free=False) if option.hours]
            option = self._choose([GO_ON, *sleeps, Option("+hour", hours=1)])
            if option is not GO_ON:
                request.slept = True
                self._switch(option)
                return
        lane.answered = None
        lane.learn("answer", self.time)
        assert request.thread is not None
        self._resume(lane, request.thread)

    def _fail(self, lane: _Lane, request: _Request, fault: str) -> None:
        if fault in ("lost", "dies after", "duplicate", "damaged"):
            self._perform(lane, request, fault)
        else:
            lane.requests.popleft()
            self.note(lane.name, request.kind, request.key, fault)
        if fault.startswith("dies"):
            assert lane.process is not None
            self._kill(lane, lane.process)
            return
        if fault == "damaged":
            self.damages += 1
            request.result = _damaged(request.result)
        elif fault in ("duplicate", "conflict"):
            request.error = AlreadyExists(request.key)
        else:
            request.error = unavailable(fault)
        if fault == "late":
            ghost = _Lane(len(self.lanes), f"late{len(self.lanes)}", None)
            ghost.requests.append(
                _Request(request.kind, request.key, request.effect, None, asked=True)
            )
            ghost.learn(lane.name, lane.history, request.kind, request.key)
            self.lanes.append(ghost)
        request.slept = True
        self._hold(lane, request)

    def _kill(self, lane: _Lane, process: Process) -> None:
        process.die()
        lane.ready.clear()
        lane.requests.clear()
        lane.sleeping.clear()
        lane.answered = None


def _faults(*names: str) -> tuple[Option, ...]:
    return tuple(Option(name, faults=1) for name in names)


# To die at a read is to die before the next write, or at the end.
_WRITES = ("dies", "dies after", "refused", "lost", "late")
_FAULTS = {
    "get": _faults("refused", "damaged"),
    "head": _faults("refused"),
    "list": _faults("refused"),
    "create": _faults(*_WRITES, "conflict", "duplicate"),
    "put": _faults(*_WRITES),
    "delete": _faults(*_WRITES),
}
FAULTS = tuple(dict.fromkeys(option.name for kind in _FAULTS.values() for option in kind))


def _digest(result: Any) -> int:
    if isinstance(result, Object):
        return hash((result.data, result.modified))
    if isinstance(result, list):
        return hash(tuple(_digest(item) for item in result))
    if isinstance(result, ObjectInfo):
        return hash((result.key, result.size, result.modified))
    return hash(result)


def _damaged(result: Any) -> Any:
    """What arrives of an object when the way there is bad. The object itself is whole."""
    if isinstance(result, Object):
        return result._replace(data=result.data[: len(result.data) // 2])
    return result

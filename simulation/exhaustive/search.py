"""The search: every schedule of a scenario within bounds, each state met once.

A run is repeated from its start for each schedule, with one decision changed. What a process does
depends on nothing but the answers that it got and the times at which it got them, so what can come
of a state depends on the bucket, the model, what each process learned, and what is left of the
bounds; where all of that was met before, with as much left, the run is given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import reef
from simulation.exhaustive.scenario import Run, Scenario
from simulation.exhaustive.schedule import Bounds, Option, Replay, Schedule
from simulation.exhaustive.turns import FAULTS
from simulation.world import Step, Violation


class _Known(Exception):
    """This state was met before."""


@dataclass(frozen=True)
class Failure:
    """A schedule that comes to something that must never be."""

    schedule: Schedule
    violation: str


@dataclass
class Found:
    """What a search came to. `runs` are the schedules tried, `ends` those that ran to their end,
    `states` the different points met."""

    scenario: str
    runs: int = 0
    ends: int = 0
    states: int = 0
    requests: int = 0
    seconds: float = 0.0
    complete: bool = False
    failures: list[Failure] = field(default_factory=list)


@dataclass
class _Point:
    """A point on the way of the present run: which option is taken, of how many, and where."""

    place: int
    options: list[Option]
    taken: int = 0


class _Chooser:
    """Takes the way that is given, and the default from there on."""

    def __init__(
        self,
        run: Run,
        bounds: Bounds,
        way: list[_Point],
        known: _States,
        faults: frozenset[str],
    ) -> None:
        self._run = run
        self._left = bounds
        self._way = way
        self._known = known
        self._faults = faults
        self._given = len(way)
        self._met = 0
        self._place = -1

    def __call__(self, options: Sequence[Option]) -> Option:
        self._place += 1
        if self._met < self._given:
            point = self._way[self._met]
            if point.place != self._place:
                return options[0]
            self._met += 1
            option = point.options[point.taken]
            self._left = self._left.less(option)
            return option
        if self._known.meet(self._run.fingerprint, self._left):
            raise _Known
        allowed = [
            option
            for option in options
            if self._left.less(option).kept and (not option.faults or option.name in self._faults)
        ]
        if len(allowed) > 1:
            self._way.append(_Point(self._place, allowed))
        return allowed[0]


class _States:
    """The states that were met, and what was left of the bounds there."""

    def __init__(self) -> None:
        self._met: dict[int, list[Bounds]] = {}

    def __len__(self) -> int:
        return len(self._met)

    def meet(self, state: int, left: Bounds) -> bool:
        """Whether all that can come of it was, or will be, looked at already."""
        before = self._met.get(state)
        if before is None:
            self._met[state] = [left]
            return False
        if any(known.covers(left) for known in before):
            return True
        before[:] = [known for known in before if not left.covers(known)] + [left]
        return False


def search(
    scenario: Scenario,
    *bounds: Bounds,
    faults: Collection[str] = FAULTS,
    most_runs: int | None = None,
    most_failures: int = 1,
    progress: Callable[[Found], None] | None = None,
) -> Found:
    """Try every schedule that is within one of the bounds, or as many as allowed."""
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    searching = _Search(scenario, frozenset(faults))
    found = searching.found
    began = time.perf_counter()
    for bound in bounds or (Bounds(),):
        for _ in searching.every(bound):
            found.seconds = time.perf_counter() - began
            if len(found.failures) >= most_failures:
                return found
            if most_runs is not None and found.runs >= most_runs:
                return found
            if progress is not None and found.runs % 1_000 == 0:
                progress(found)
    found.complete = True
    return found


class _Search:
    """What is known of a scenario so far."""

    def __init__(self, scenario: Scenario, faults: frozenset[str]) -> None:
        self.found = Found(scenario.name)
        self._scenario = scenario
        self._faults = faults
        self._known = _States()
        self._audited: set[int] = set()

    def every(self, bounds: Bounds) -> Iterator[None]:
        """Run every schedule within the bounds that may come to something new, one at a time."""
        found = self.found
        way: list[_Point] = []
        while True:
            violation = self._once(bounds, way)
            found.runs += 1
            found.states = len(self._known)
            if violation is not None:
                found.failures.append(Failure(_schedule(way), violation))
            yield
            while way and way[-1].taken + 1 == len(way[-1].options):
                way.pop()
            if not way:
                return
            way[-1].taken += 1

    def _once(self, bounds: Bounds, way: list[_Point]) -> str | None:
        run = Run(self._scenario)
        try:
            run.go(_Chooser(run, bounds, way, self._known, self._faults))
            self.found.ends += 1
            if run.state not in self._audited:
                self._audited.add(run.state)
                run.audit()
        except _Known:
            pass
        except Violation as violation:
            return str(violation)
        except reef.ReefError as error:
            return f"{type(error).__name__}: {error}"
        finally:
            run.close()
            self.found.requests += run.world.requests
        return None


def _schedule(way: list[_Point]) -> Schedule:
    return Schedule(
        tuple((point.place, point.options[point.taken].name) for point in way if point.taken)
    )


def replay(scenario: Scenario, schedule: Schedule) -> tuple[list[Step], str | None]:
    """One schedule again, with its trace."""
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    run = Run(scenario)
    violation = None
    try:
        run.go(Replay(schedule))
        run.audit()
    except Violation as found:
        violation = str(found)
    except reef.ReefError as error:
        violation = f"{type(error).__name__}: {error}"
    finally:
        run.close()
    return run.world.trace, violation

"""A scenario: a bucket that was prepared, and a few programs that then run beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import reef
from simulation.bucket import Bucket
from simulation.ending import end_of
from simulation.exhaustive.schedule import Choose
from simulation.exhaustive.turns import TurnWorld
from simulation.observer import Observer
from simulation.session import PATIENCE, TYPES, Session, Stage
from simulation.world import START, Crash, Violation


@dataclass(frozen=True)
class Part:
    """A program: what it has done before (opened a handle, say), and what it does now."""

    name: str
    act: Callable[[Session, Any], None]
    before: Callable[[Session], Any] = lambda session: None


@dataclass(frozen=True)
class Scenario:
    """`prepare` is run once, alone; the parts together, once for each schedule."""

    name: str
    prepare: Callable[[Session], None]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class _Prepared:
    bucket: Bucket
    observer: Observer
    time: float


@cache
def _prepared(prepare: Callable[[Session], None]) -> _Prepared:
    world = TurnWorld(START)
    bucket = Bucket(lambda: world.time)
    observer = Observer(world, bucket, PATIENCE, TYPES)
    bucket.observer = observer
    session = _session(Stage(world, bucket, observer), "preparation")
    session.process.run(lambda: prepare(session))
    world.finish()
    return _Prepared(bucket, observer, world.time)


def _session(stage: Stage, name: str) -> Session:
    return Session(stage, stage.world.process(name, Random(name)), Random(name))


class Run:
    """One run of a scenario, up to whatever a schedule makes of it."""

    def __init__(self, scenario: Scenario) -> None:
        prepared = _prepared(scenario.prepare)
        self.world = world = TurnWorld(prepared.time)
        self.bucket = prepared.bucket.copy(lambda: world.time)
        self.observer = prepared.observer.copy(world, self.bucket)
        self.bucket.observer = self.observer
        self.stage = Stage(world, self.bucket, self.observer)
        self._acts = [self._begin(part) for part in scenario.parts]

    def _begin(self, part: Part) -> Callable[[], None]:
        session = _session(self.stage, part.name)
        made: list[Any] = []
        session.process.run(lambda: made.append(part.before(session)))
        self.world.finish()

        def act() -> None:
            try:
                part.act(session, made[0])
            except Crash:
                pass
            except reef.NamespaceNotFound as error:
                session.alive()
                session.check_gone(part.name, error)
            except reef.ReefError as error:
                session.alive()
                raise Violation(f"{part.name} raised {type(error).__name__}: {error}") from error

        return lambda: session.process.run(act)

    @property
    def fingerprint(self) -> int:
        """A hash of everything that can make a difference from here on."""
        return hash((self.world.fingerprint, self.state))

    @property
    def state(self) -> int:
        """A hash of what is left when no process is."""
        return hash(
            (
                self.world.time,
                self.bucket.fingerprint,
                self.observer.fingerprint,
                tuple(intent.token for kept in self.stage.unsettled.values() for intent in kept),
            )
        )

    def go(self, choose: Choose) -> None:
        """Let the parts run."""
        for act in self._acts:
            act()
        self.world.run(choose)

    def audit(self) -> None:
        """Hold what is left against the model."""
        self.world.note("", "the audit")
        end_of(self.stage, quick=True)

    def close(self) -> None:
        """Let nobody linger."""
        self.world.end()

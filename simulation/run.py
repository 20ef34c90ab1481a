"""A run: the nodes of a plan live, die and come back; then it is quiet, and all is checked."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from random import Random

import reef
from simulation.bucket import Bucket
from simulation.chance import RandomWorld
from simulation.ending import end_of
from simulation.observer import Observer
from simulation.plan import Plan
from simulation.programs import Program, program_of
from simulation.session import PATIENCE, TYPES, Session, Stage
from simulation.world import Crash, Step, Violation


@dataclass(frozen=True)
class Outcome:
    """How a run went. `violation` is None when all was as it must be."""

    plan: Plan
    violation: str | None
    trace: list[Step]
    requests: int
    slots: int
    generations: int

    @property
    def digest(self) -> str:
        """A hash of everything that happened."""
        return hashlib.sha256("\n".join(map(repr, self.trace)).encode()).hexdigest()


def simulate(plan: Plan) -> Outcome:
    """Run a plan. The same plan gives the same outcome, trace and all."""
    # Failures are what this is about; nobody needs to read of each.
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    world = RandomWorld(plan)
    bucket = Bucket(lambda: world.time)
    observer = Observer(world, bucket, PATIENCE, TYPES)
    bucket.observer = observer
    stage = Stage(world, bucket, observer, pace=plan.pace)
    violation = None
    try:
        for number, role in enumerate(plan.roles):
            random = Random(f"{plan.seed}/{number}/{role}")
            name = plan.names[number % len(plan.names)]
            _Node(stage, world, f"{role}{number}", program_of(role, plan.steps), random, name)
        world.run(plan.requests)
        world.end()
        world.calm = True
        # What is still under way in the bucket lands before the end is judged.
        world.finish()
        end_of(stage, quick=plan.quick)
    except Violation as found:
        violation = str(found)
    except reef.ReefError as error:
        violation = f"{type(error).__name__}: {error}"
    finally:
        world.end()
    trees = observer.trees.values()
    slots = sum(tree.newest for tree in trees)
    generations = sum(tree.roots.newest for tree in trees)
    return Outcome(plan, violation, world.trace, world.requests, slots, generations)


class _Node:
    """A place where a program runs, and runs again after it died."""

    def __init__(
        self,
        stage: Stage,
        world: RandomWorld,
        name: str,
        program: Program,
        random: Random,
        namespace: str,
    ) -> None:
        self.stage = stage
        self.world = world
        self.name = name
        self.program = program
        self.random = random
        self.namespace = namespace
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        """A new process, with nothing in memory."""
        world = self.world
        if world.calm:
            return
        self.lives += 1
        process = world.process(f"{self.name}.{self.lives}", self.random)

        def live() -> None:
            try:
                self.program.run(Session(self.stage, process, self.random, self.namespace))
            except Crash:
                world.after(self.random.random() * 100, self.begin)

        process.run(live)

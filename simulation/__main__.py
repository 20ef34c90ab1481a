"""Run seeds: `python -m simulation --seeds 1000`, or one with its trace: `--seed 17 --trace`."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from simulation.exhaustive.command import EVERYTHING, explore, show
from simulation.exhaustive.schedule import Bounds
from simulation.plan import plan_of
from simulation.run import simulate
from simulation.shrink import shrink
from simulation.telling import tell


def _fails(seed: int) -> tuple[int, str | None, int]:
    outcome = simulate(plan_of(seed))
    return seed, outcome.violation, outcome.requests


def main() -> int:
    """The command. Exits with 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="print what happened, shrunk or not")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    every = parser.add_argument_group("every schedule of small scenarios")
    every.add_argument("--exhaustive", action="store_true", help="search them")
    every.add_argument("--scenario", action="append", default=[], help="only this one; repeatable")
    every.add_argument("--preemptions", type=int, help="at most so many (2)")
    every.add_argument("--hours", type=int, help="at most so many hours that pass (1 or 0)")
    every.add_argument("--faults", type=int, help="at most so many faults (0 or 1)")
    every.add_argument("--most", type=int, help="at most so many schedules of each")
    every.add_argument("--schedule", metavar="SCENARIO@…", help="run only this one, with its trace")
    given = parser.parse_args()
    if given.schedule is not None:
        return show(given.schedule)
    if given.exhaustive:
        bounds: tuple[Bounds, ...] = EVERYTHING
        if (given.preemptions, given.hours, given.faults) != (None, None, None):
            bounds = (Bounds(given.preemptions or 0, given.hours or 0, given.faults or 0),)
        return explore(given.scenario, bounds, jobs=given.jobs, most=given.most)
    if given.seed is not None:
        outcome = simulate(plan_of(given.seed))
        if outcome.violation and not given.trace:
            outcome = shrink(outcome)
        if outcome.violation or given.trace:
            print(tell(outcome))
        print(f"seed {given.seed}: {outcome.violation or 'as it must be'}")
        return 1 if outcome.violation else 0
    began = time.perf_counter()
    requests = failures = done = 0
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(max(1, given.jobs)) as pool:
        for seed, violation, count in pool.map(_fails, seeds, chunksize=8):
            done += 1
            requests += count
            if violation is None:
                continue
            failures += 1
            print(f"seed {seed}: {violation}", flush=True)
            if not given.keep_going:
                pool.shutdown(wait=False, cancel_futures=True)
                print(tell(shrink(simulate(plan_of(seed)))))
                return 1
    seconds = time.perf_counter() - began
    print(
        f"{done} seeds, {requests} requests in {seconds:.1f} s"
        f" ({done / seconds:.0f} seeds/s), {failures} failed"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

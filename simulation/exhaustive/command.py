"""`script/simulate --exhaustive` and `--schedule`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from simulation.exhaustive.scenarios import SCENARIOS
from simulation.exhaustive.schedule import Bounds, Schedule
from simulation.exhaustive.search import Found, replay, search
from simulation.telling import table

EVERYTHING = (
    Bounds(1, 0, 0),
    Bounds(1, 1, 0),
    Bounds(1, 0, 1),
    Bounds(2, 1, 0),
    Bounds(2, 0, 1),
)
"""Two pre-emptions, and with them an hour that passes or a fault; what is simple comes first. All
three at once take a day."""


def explore(names: Sequence[str], bounds: Sequence[Bounds], *, jobs: int, most: int | None) -> int:
    """Search scenarios, all if none is named, and tell what was found. 1 if a schedule failed."""
    chosen = list(names) or list(SCENARIOS)
    unknown = [name for name in chosen if name not in SCENARIOS]
    if unknown:
        print(f"there is no scenario {unknown[0]}; there are {', '.join(SCENARIOS)}")
        return 2
    began = time.perf_counter()
    results: list[Found] = []
    with ProcessPoolExecutor(max(1, jobs)) as pool:
        waiting = [pool.submit(_search, name, tuple(bounds), most) for name in chosen]
        for done in as_completed(waiting):
            found = done.result()
            results.append(found)
            print(_line(found, f"{len(results)} of {len(chosen)}"), flush=True)
    for found in results:
        for failure in found.failures:
            print(f"\n{found.scenario}@{failure.schedule}: {failure.violation}")
    seconds = time.perf_counter() - began
    runs = sum(found.runs for found in results)
    failed = sum(bool(found.failures) for found in results)
    print(
        f"\n{len(results)} scenarios, {runs} schedules in {seconds:.0f} s"
        f" ({runs / seconds:.0f}/s), {failed} failed"
    )
    return 1 if failed else 0


def _search(name: str, bounds: tuple[Bounds, ...], most: int | None) -> Found:
    def progress(found: Found) -> None:
        if found.runs % 5_000 == 0:
            print(_line(found, "so far"), file=sys.stderr, flush=True)

    return search(SCENARIOS[name], *bounds, most_runs=most, progress=progress)


def _line(found: Found, place: str) -> str:
    end = "FAILED" if found.failures else "all" if found.complete else "some"
    return (
        f"{place:>9}  {found.scenario:28} {end:6} {found.runs:8} schedules,"
        f" {found.ends} to the end, {found.states} states, {found.seconds:.0f} s"
        f" ({found.runs / max(found.seconds, 0.001):.0f}/s)"
    )


def show(text: str) -> int:
    """Replay `scenario@schedule` and print its trace. 1 if it fails."""
    name, _, schedule = text.partition("@")
    trace, violation = replay(SCENARIOS[name], Schedule.parse(schedule or "-"))
    print(table(trace))
    print(f"{text}: {violation or 'as it must be'}")
    return 1 if violation else 0

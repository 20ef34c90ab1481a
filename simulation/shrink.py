"""Making a failing run shorter: fewer programs, faults and steps, as long as it still fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulation.plan import Plan
from simulation.run import Outcome, simulate


def shrink(outcome: Outcome, attempts: int = 300) -> Outcome:
    """The shortest failing run that was found with that many tries."""
    best = outcome
    while attempts > 0:
        for plan in _smaller(best.plan):
            attempts -= 1
            tried = simulate(plan)
            if tried.violation is not None and len(tried.trace) < len(best.trace):
                best = tried
                break
            if attempts <= 0:
                return best
        else:
            return best
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    for place in range(len(plan.roles)):
        if len(plan.roles) > 1:
            roles = (*plan.roles[:place], *plan.roles[place + 1 :])
            yield replace(plan, roles=roles)
    for place in range(len(plan.faults)):
        if len(plan.faults) > 1:
            yield replace(plan, faults=(*plan.faults[:place], *plan.faults[place + 1 :]))
    yield replace(plan, intensity=0.0)
    for steps in (plan.steps // 2, plan.steps - 1):
        if 0 < steps < plan.steps:
            yield replace(plan, steps=steps)
    for requests in (plan.requests // 2, plan.requests * 3 // 4, plan.requests * 9 // 10):
        if requests > 10:
            yield replace(plan, requests=requests)
    if not plan.quick:
        yield replace(plan, quick=True)

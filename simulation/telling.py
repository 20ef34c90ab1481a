"""A run told to people."""

from __future__ import annotations

from simulation.observer import PREFIX
from simulation.run import Outcome
from simulation.world import START, Step


def tell(outcome: Outcome) -> str:
    """The trace, a line for each request and each call, and what was wrong in the end."""
    plan = outcome.plan
    faults = f"{plan.intensity:.0%} of requests meet one of {', '.join(plan.faults)}"
    first = f"seed {plan.seed}: {', '.join(plan.roles)}; {plan.steps} steps each; {faults}"
    return f"{first}\n{table(outcome.trace)}\nviolation: {outcome.violation}"


def table(trace: list[Step]) -> str:
    """A line for each step."""
    lines = []
    for number, step in enumerate(trace, 1):
        subject = step.subject.removeprefix(PREFIX)
        lines.append(
            f"{number:5} {step.time - START:11.3f}  {step.process:14} {step.kind:10}"
            f" {subject:60.60} {step.outcome}"
        )
    return "\n".join(lines)

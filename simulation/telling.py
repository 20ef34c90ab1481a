"""A run told to people."""

from __future__ import annotations

from simulation.observer import PREFIX
from simulation.run import Outcome
from simulation.world import START


def tell(outcome: Outcome) -> str:
    """The trace, a line for each request and each call, and what was wrong in the end."""
    plan = outcome.plan
    faults = f"{plan.intensity:.0%} of requests meet one of {', '.join(plan.faults)}"
    lines = [f"seed {plan.seed}: {', '.join(plan.roles)}; {plan.steps} steps each; {faults}"]
    for number, step in enumerate(outcome.trace, 1):
        subject = step.subject.removeprefix(PREFIX)
        lines.append(
            f"{number:5} {step.time - START:11.3f}  {step.process:14} {step.kind:10}"
            f" {subject:60.60} {step.outcome}"
        )
    lines.append(f"violation: {outcome.violation}")
    return "\n".join(lines)

"""The simulator as a campaign: seed after seed, each a run of whole programs."""

from __future__ import annotations

from torture.progress import at
from torture.share import Failure, Share

_SEEDS_A_CAMPAIGN = 10_000_000


def run(share: Share) -> None:
    """Simulate this share's seeds until the time is up; counts "seeds" and "requests"."""
    from simulation.plan import plan_of
    from simulation.run import simulate

    seed = share.seed * _SEEDS_A_CAMPAIGN + share.index
    while not share.finished():
        repeat = f"script/simulate --seed {seed}"
        at(repeat)
        outcome = simulate(plan_of(seed))
        share.count("seeds", 1)
        share.count("requests", outcome.requests)
        if outcome.violation is not None:
            share.fail(Failure(f"seed {seed}: {outcome.violation}", repeat))
        seed += share.parts

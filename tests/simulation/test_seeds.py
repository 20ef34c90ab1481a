"""Seeds hold, and repeat. `REEF_SIMULATIONS` in the environment asks for more of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.plan import plan_of
from simulation.run import simulate
from simulation.shrink import shrink
from simulation.telling import tell

SEEDS = int(os.environ.get("REEF_SIMULATIONS", "300"))
_CHUNK = 25
_ROOT = Path(__file__).parents[2]
_DIGESTS = (
    "from simulation.plan import plan_of; from simulation.run import simulate;"
    "print([simulate(plan_of(seed)).digest for seed in (2, 3, 5)])"
)


@pytest.mark.parametrize("first", range(0, SEEDS, _CHUNK))
def test_seeds_hold(first: int) -> None:
    for seed in range(first, min(first + _CHUNK, SEEDS)):
        outcome = simulate(plan_of(seed))
        if outcome.violation is not None:
            pytest.fail(tell(shrink(outcome)))


@pytest.mark.parametrize("seed", [1, 4, 7, 8, 11])
def test_a_seed_repeats(seed: int) -> None:
    once, again = simulate(plan_of(seed)), simulate(plan_of(seed))
    assert once.requests > 50
    assert once.digest == again.digest
    assert once.trace == again.trace


def test_other_seeds_give_other_runs() -> None:
    assert len({simulate(plan_of(seed)).digest for seed in range(6)}) == 6


def test_a_seed_repeats_in_another_process_whatever_its_hashes() -> None:
    found = set()
    for hashing in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hashing,
            "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)]),
        }
        found.add(
            subprocess.run(
                [sys.executable, "-c", _DIGESTS],
                env=environment,
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
    assert len(found) == 1


def test_the_runs_reach_what_they_are_for() -> None:
    """Crashes, sleeps, lost answers, deletions and refusals all occur, and most writes succeed."""
    kinds: set[str] = set()
    words: set[str] = set()
    for seed in range(60):
        for step in simulate(plan_of(seed)).trace:
            kinds.add(step.kind)
            words.add(step.outcome.split(" ")[0].rstrip(":") if step.kind == "write" else "")
    assert {"dies", "sleeps", "failed", "delete", "at", "changes", "scan", "collect"} <= kinds
    assert {"verify", "repair", "rebuild", "hold", "reread"} <= kinds
    assert {"acknowledged", "refused", "unknown"} <= words

"""A name that is dropped and used again, at random and in every order; and bugs of it, put back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reef.documents.database import Database
from reef.lsm.tree import Tree
from simulation.exhaustive.scenarios import SCENARIOS
from simulation.exhaustive.schedule import Bounds
from simulation.exhaustive.search import search
from simulation.plan import plan_of
from simulation.run import simulate
from simulation.telling import tell

Patch = pytest.MonkeyPatch
DROPPERS: dict[str, Any] = {
    "roles": ("writer", "writer", "reader", "worker", "historian", "dropper", "dropper"),
    "steps": 14,
    "requests": 300,
}


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_seeds_of_droppers_hold(first: int) -> None:
    lives = 0
    for seed in range(first, first + 10):
        outcome = simulate(replace(plan_of(seed), **DROPPERS))
        if outcome.violation is not None:
            pytest.fail(tell(outcome))
        lives += sum(step.kind == "drop" and step.outcome == "ends" for step in outcome.trace)
    assert lives > 5


def drop_by_deleting(patch: Patch) -> None:
    """As it was done once: nobody remembers the name, and a writer goes on where it was."""

    def drop(self: Database, name: str) -> None:
        store = self._tree(name).store
        store.delete_many([info.key for info in store.list("")])

    patch.setattr(Database, "drop", drop)


def take_another_life_for_the_same(patch: Patch) -> None:
    patch.setattr(Tree, "check_root", lambda self, root: None)


@pytest.mark.parametrize("bug", [drop_by_deleting, take_another_life_for_the_same])
def test_a_bug_of_lives_is_found(bug: Any, monkeypatch: Patch) -> None:
    bug(monkeypatch)
    names = ("writer-second-life", "reader-second-life", "load-second-life", "pin-second-life")
    assert any(search(SCENARIOS[name], Bounds(1, 0, 0)).failures for name in names)

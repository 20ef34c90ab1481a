"""Every schedule of small scenarios within small bounds; `script/simulate --exhaustive` has larger
ones. And the search itself: it repeats, it leaves nothing out, and it finds bugs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import reef.lsm.retention.collector
from reef.log import Log, LogEntry
from reef.lsm.tree import Tree
from reef.manifest import Manifest
from simulation.exhaustive import search as searching
from simulation.exhaustive.scenarios import SCENARIOS
from simulation.exhaustive.schedule import Bounds, Schedule
from simulation.exhaustive.search import replay, search
from simulation.exhaustive.turns import FAULTS

Patch = pytest.MonkeyPatch
HARMLESS = tuple(fault for fault in FAULTS if fault != "damaged")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_one_preemption_anywhere(name: str) -> None:
    found = search(SCENARIOS[name], Bounds(1, 0, 0))
    assert found.failures == []
    assert found.complete
    assert found.runs > 5


@pytest.mark.parametrize("name", ["adder-emptying"])
def test_one_fault_anywhere(name: str) -> None:
    found = search(SCENARIOS[name], Bounds(1, 0, 1), faults=HARMLESS)
    assert found.failures == []
    assert found.complete


TRANSIT = ["takeover-fold", "takeover-load", "takeover-reader", "writer-takeover"]


@pytest.mark.parametrize("name", TRANSIT)
def test_one_answer_damaged_on_its_way(name: str) -> None:
    found = search(SCENARIOS[name], Bounds(0, 0, 1), faults=("damaged",))
    assert found.failures == []
    assert found.complete


@pytest.mark.parametrize("name", TRANSIT)
def test_believing_damage_at_once_is_found(name: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Log, "read", lambda self, lsn: self.home(lsn)._look(lsn))
    assert search(SCENARIOS[name], Bounds(0, 0, 1), faults=("damaged",)).failures


def blind_to_an_empty_overwrite(patch: Patch) -> None:
    def take(self: Tree, entry: LogEntry, records: Any = None) -> None:
        unfolded = self.view.unfolded
        before = unfolded.ingests
        unfolded.apply(entry, records)
        if unfolded.ingests is not before:
            self.install(self.head, unfolded)

    patch.setattr(Tree, "take", take)


def acknowledge_from_a_collected_slot(patch: Patch) -> None:
    patch.setattr(Tree, "slept", lambda self: False)


def collect_orphans_by_age_alone(patch: Patch) -> None:
    honest = reef.lsm.retention.collector.plan_collection

    def plan(manifest: Manifest, *others: Any) -> Any:
        return replace(honest(manifest, *others), orphan_floor=manifest.orphan_floor)

    patch.setattr(reef.lsm.retention.collector, "plan_collection", plan)


def delete_what_a_repair_named_again(patch: Patch) -> None:
    patch.setattr(
        reef.lsm.retention.collector,
        "_unneeded",
        lambda face, published, doomed, pinned: list(doomed),
    )


BUGS: list[tuple[Callable[[Patch], None], str, Bounds]] = [
    (blind_to_an_empty_overwrite, "adder-emptying", Bounds(1, 0, 0)),
    (acknowledge_from_a_collected_slot, "writer-successor", Bounds(1, 0, 0)),
    (delete_what_a_repair_named_again, "wounded-collector-repair", Bounds(1, 0, 0)),
    (collect_orphans_by_age_alone, "load-keeper", Bounds(1, 0, 0)),
]


@pytest.mark.parametrize(("bug", "name", "bounds"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_bug_is_found(
    bug: Callable[[Patch], None], name: str, bounds: Bounds, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    found = search(SCENARIOS[name], bounds)
    assert found.failures
    (failure,) = found.failures
    _, violation = replay(SCENARIOS[name], Schedule.parse(str(failure.schedule)))
    assert violation == failure.violation


def test_what_is_left_out_was_looked_at(monkeypatch: Patch) -> None:
    """Without pruning, which takes much longer, no other end is reached."""
    scenario = SCENARIOS["adder-emptying"]
    ends: list[set[int]] = [set(), set()]
    honest = searching.Run.audit

    def search_into(reached: set[int]) -> None:
        def audit(self: searching.Run) -> None:
            reached.add(self.state)
            honest(self)

        monkeypatch.setattr(searching.Run, "audit", audit)
        assert search(scenario, Bounds(1, 0, 1), faults=HARMLESS).complete

    search_into(ends[0])
    monkeypatch.setattr(searching._States, "meet", lambda self, state, left: False)
    search_into(ends[1])
    assert len(ends[0]) > 5
    assert ends[0] == ends[1]


def test_a_schedule_is_told_and_read_again() -> None:
    schedule = Schedule(((3, "fold"), (7, "fold+hour"), (9, "dies after")))
    assert str(schedule) == "3:fold,7:fold+hour,9:dies after"
    assert Schedule.parse(str(schedule)) == schedule
    assert Schedule.parse(str(Schedule())) == Schedule()


def test_a_schedule_repeats() -> None:
    scenario = SCENARIOS["writer-takeover"]
    once = replay(scenario, Schedule(((3, "takeover"),)))
    assert once == replay(scenario, Schedule(((3, "takeover"),)))
    assert once[1] is None
    assert once[0] != replay(scenario, Schedule())[0]


def test_a_decision_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="has no 'nobody'"):
        replay(SCENARIOS["writer-takeover"], Schedule(((2, "nobody"),)))

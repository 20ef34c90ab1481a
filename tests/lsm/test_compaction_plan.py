"""What the planner picks, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from reef.lsm.upkeep.compaction import plan_compaction, plan_full_compaction
from reef.segment import SegmentInfo

Run = tuple[str, int, int]
"""Name, level, size; a name that repeats is one run of several segments."""


def segments(runs: list[Run]) -> list[SegmentInfo]:
    return [
        SegmentInfo(
            f"{name}{place}", 1, name, level, 10, 0, "a", "b", place + 1, place + 1, size, 1, 0
        )
        for place, (name, level, size) in enumerate(runs)
    ]


CASES: dict[str, tuple[list[Run], tuple[set[str], int] | None]] = {
    "nothing": ([], None),
    "one run": ([("a", 0, 500)], None),
    "too few runs": ([("a", 0, 500), ("b", 0, 500)], None),
    "enough runs, too small": ([("a", 0, 1), ("b", 0, 1), ("c", 0, 1)], None),
    "enough of both": ([("a", 0, 50), ("b", 0, 30), ("c", 0, 30)], ({"a", "b", "c"}, 1)),
    "exactly the threshold": ([("a", 0, 50), ("b", 0, 25), ("c", 0, 25)], ({"a", "b", "c"}, 1)),
    "one below it": ([("a", 0, 50), ("b", 0, 25), ("c", 0, 24)], None),
    "the smallest, and as few as reach": (
        [("a", 0, 90), ("b", 0, 20), ("c", 0, 30), ("d", 0, 80)],
        ({"b", "c", "d"}, 1),
    ),
    "more if the smallest do not reach": (
        [("a", 0, 90), ("b", 0, 10), ("c", 0, 10), ("d", 0, 10)],
        ({"a", "b", "c", "d"}, 1),
    ),
    "many small ones within their level": (
        [(name, 0, 1) for name in "abcdef"],
        ({"a", "b", "c", "d", "e"}, 0),
    ),
    "many small ones and a large one": (
        [("z", 0, 1000), *((name, 0, 1) for name in "abcde")],
        ({"a", "b", "c", "d", "e"}, 0),
    ),
    "a run of two segments is one run": ([("a", 0, 90), ("a", 0, 90), ("b", 0, 90)], None),
    "whole runs": (
        [("a", 0, 40), ("a", 0, 40), ("b", 0, 10), ("c", 0, 60)],
        ({"a", "b", "c"}, 1),
    ),
    "the threshold grows with the level": ([("a", 1, 99), ("b", 1, 99), ("c", 1, 99)], None),
    "a higher level": ([("a", 1, 100), ("b", 1, 100), ("c", 1, 100)], ({"a", "b", "c"}, 2)),
    "the lower level first": (
        [
            *((name, 1, 200) for name in "abc"),
            *((name, 0, 50) for name in "def"),
        ],
        ({"d", "e", "f"}, 1),
    ),
    "levels are not mixed": ([("a", 0, 90), ("b", 0, 90), ("c", 1, 900), ("d", 2, 900)], None),
}


@pytest.mark.parametrize("case", CASES)
def test_plan(case: str) -> None:
    runs, expected = CASES[case]
    plan = plan_compaction(segments(runs), fan_in=3, most_inputs=5, first_threshold=100)
    if expected is None:
        assert plan is None
        return
    assert plan is not None
    assert ({info.run for info in plan.inputs}, plan.level) == expected
    names = {info.run for info in plan.inputs}
    assert len(plan.inputs) == sum(name in names for name, _, _ in runs)


def test_ingests_of_one_job_in_two_slots_are_two_runs() -> None:
    base: dict[str, Any] = {"size": 50}
    infos = [
        SegmentInfo("s", 1, "r", 0, 1, 0, "a", "b", lsn, lsn, base["size"], 1, 0, lsn)
        for lsn in (1, 2, 3)
    ]
    plan = plan_compaction(infos, fan_in=3, most_inputs=5, first_threshold=100)
    assert plan is not None
    assert len(plan.inputs) == 3


FULL: dict[str, tuple[list[Run], int | None]] = {
    "nothing": ([], None),
    "one run": ([("a", 0, 5)], None),
    "one run of two segments": ([("a", 2, 5), ("a", 2, 5)], None),
    "two runs": ([("a", 0, 5), ("b", 0, 5)], 1),
    "the highest level stays": ([("a", 0, 5), ("b", 3, 5)], 3),
}


@pytest.mark.parametrize("case", FULL)
def test_full_plan(case: str) -> None:
    runs, level = FULL[case]
    plan = plan_full_compaction(segments(runs))
    assert (plan.level if plan else None) == level
    if plan:
        assert len(plan.inputs) == len(runs)


def test_one_run_with_tombstones_is_worth_a_full_compaction() -> None:
    info = SegmentInfo("s", 1, "r", 1, 10, 3, "a", "b", 1, 1, 5, 1, 0)
    assert plan_full_compaction([info]) is not None


def test_planning_until_nothing_is_left_ends_with_few_runs() -> None:
    """A simulator: folds of one size, and every compaction done at once."""
    live: list[SegmentInfo] = []
    written = 0
    for fold in range(400):
        live.append(SegmentInfo(f"f{fold}", 1, f"f{fold}", 0, 1, 0, "a", "b", fold, fold, 10, 1, 0))
        while plan := plan_compaction(live, fan_in=4, most_inputs=12, first_threshold=40):
            names = {info.run for info in plan.inputs}
            size = sum(info.size for info in plan.inputs)
            written += size
            live = [info for info in live if info.run not in names]
            name = f"c{fold}-{plan.level}"
            live.append(SegmentInfo(name, 1, name, plan.level, 1, 0, "a", "b", 0, fold, size, 1, 0))
        assert len(live) <= 4 * 6
    assert sum(info.size for info in live) == 4000
    assert written <= 4000 * 6

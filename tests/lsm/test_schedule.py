"""What upkeep comes next, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from reef.data.schema import Schema
from reef.lsm.options import Options
from reef.lsm.unfolded import Unfolded
from reef.lsm.upkeep.schedule import NEVER, PAUSE, Activity, Due, Pass, next_pass
from reef.manifest import LogSpan, Manifest, Superseded
from reef.segment import SegmentInfo

OPTIONS = Options(
    fold_bytes=100, fold_objects=10, fold_segments=3, fan_in=2, most_inputs=3, collect_seconds=60
)
NOW = 1000.0
FOLD, COMPACT, COLLECT = Pass.FOLD, Pass.COMPACT, Pass.COLLECT
TIDY = (COMPACT, COLLECT)


@dataclass(frozen=True)
class Case:
    """A tree in some shape, and the answer."""

    due: Due
    nbytes: int = 0
    objects: int = 0
    ingests: int = 0
    runs: int = 0
    superseded: bool = False
    folded: bool = False
    wrote: float = -inf
    collected: float = -inf
    among: tuple[Pass, ...] = tuple(Pass)


CASES: dict[str, Case] = {
    "nothing at all": Case(NEVER),
    "a little log": Case(NEVER, nbytes=99, objects=9, ingests=2),
    "bytes of log": Case(Due(FOLD, NOW), nbytes=100),
    "objects of log": Case(Due(FOLD, NOW), objects=10),
    "segments named by the log": Case(Due(FOLD, NOW), ingests=3),
    "not the folding's turn": Case(NEVER, nbytes=100, among=TIDY),
    "few runs": Case(NEVER, runs=2),
    "many runs, never written": Case(Due(COMPACT, NOW), runs=3),
    "many runs, just written": Case(Due(COMPACT, NOW + PAUSE), runs=3, wrote=NOW),
    "many runs, in the pause": Case(Due(COMPACT, NOW - 0.1 + PAUSE), runs=3, wrote=NOW - 0.1),
    "many runs, after the pause": Case(Due(COMPACT, NOW), runs=3, wrote=NOW - PAUSE),
    "runs pile up under writes": Case(Due(COMPACT, NOW), runs=6, wrote=NOW),
    "not the compaction's turn": Case(NEVER, runs=6, among=(FOLD,)),
    "folding first": Case(Due(FOLD, NOW), runs=6, nbytes=100, superseded=True),
    "compaction before collection": Case(Due(COMPACT, NOW), runs=3, superseded=True),
    "collection while compaction waits": Case(
        Due(COLLECT, NOW - 10), runs=3, wrote=NOW, folded=True, collected=NOW - 70
    ),
    "compaction sooner than collection": Case(
        Due(COMPACT, NOW + PAUSE), runs=3, wrote=NOW, folded=True, collected=NOW
    ),
    "superseded, never collected": Case(Due(COLLECT, -inf), superseded=True),
    "folded log, collected just now": Case(Due(COLLECT, NOW + 60), folded=True, collected=NOW),
    "collected, nothing since": Case(NEVER, collected=NOW - 500),
    "not the collection's turn": Case(NEVER, superseded=True, among=(FOLD,)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_next_pass(case: Case) -> None:
    segment = SegmentInfo("s", 1, "r", 0, 10, 0, "a", "b", 1, 1, 1, 1, 0)
    root = Manifest(
        generation=9,
        namespace="n",
        created_at=0,
        publisher="p",
        nonce="n",
        segments=tuple(
            SegmentInfo(f"s{run}", 1, f"r{run}", 0, 10, 0, "a", "b", run + 1, run + 1, 1, 1, 0)
            for run in range(case.runs)
        ),
        superseded=(Superseded("segments/x.seg", 8),) if case.superseded else (),
        folded=(LogSpan(1, 2, 8),) if case.folded else (),
    )
    unfolded = Unfolded(1, Schema(), 0)
    unfolded.nbytes = case.nbytes
    unfolded.objects = case.objects
    unfolded.ingests = (segment,) * case.ingests
    activity = Activity(case.wrote, case.collected)
    assert next_pass(root, unfolded, OPTIONS, activity, NOW, case.among) == case.due

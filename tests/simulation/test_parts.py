"""The simulator's own parts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from reef.errors import AlreadyExists, ObjectNotFound
from simulation.bucket import Bucket
from simulation.chance import RandomWorld
from simulation.intent import Intent
from simulation.plan import FAULTS, plan_of
from simulation.run import simulate
from simulation.schema import SchemaModel, fit, kinds_of
from simulation.shrink import shrink
from simulation.store import SimulatedStore
from simulation.telling import tell
from simulation.world import START

CALM = replace(plan_of(0), intensity=0.0)


def test_requests_of_one_process_overlap_and_answers_keep_their_order() -> None:
    world = RandomWorld(CALM)
    bucket = Bucket(lambda: world.time)
    process = world.process("p", Random(1))
    store = SimulatedStore(bucket, process)
    for number in range(8):
        bucket.put(f"k{number}", b"%d" % number)
    found: list[bytes] = []

    def program() -> None:
        blobs = store.concurrently([lambda n=n: store.get(f"k{n}") for n in range(8)])  # type: ignore[misc]
        found.extend(bytes(blob.data) for blob in blobs)

    process.run(program)
    world.run(1_000)
    assert found == [b"%d" % number for number in range(8)]
    assert [step.subject for step in world.trace] != [f"k{number}" for number in range(8)]
    assert world.time - START < 0.1


def test_a_process_that_dies_asks_for_nothing_more() -> None:
    world = RandomWorld(replace(CALM, faults=("crash",), intensity=1.0))
    bucket = Bucket(lambda: world.time)
    process = world.process("p", Random(1))
    store = SimulatedStore(bucket, process)
    reached: list[str] = []

    def program() -> None:
        try:
            for number in range(100):
                store.create(f"k{number}", b"")
        finally:
            reached.append("finally")
        reached.append("end")

    process.run(program)
    world.run(1_000)
    assert process.dead
    assert reached == ["finally"]
    assert len(bucket.objects) < 2


def test_the_bucket_keeps_its_word() -> None:
    bucket = Bucket(lambda: 5.0)
    bucket.create("a/1", b"x")
    with pytest.raises(AlreadyExists):
        bucket.create("a/1", b"y")
    bucket.put("a/2", b"y")
    bucket.put("b/1", b"z")
    assert bucket.page("a/", "", 10) == ["a/1", "a/2"]
    assert bucket.page("a/", "a/1", 10) == ["a/2"]
    assert bucket.page("a/", "", 1) == ["a/1"]
    bucket.delete("a/1")
    bucket.delete("a/1")
    with pytest.raises(ObjectNotFound):
        bucket.get("a/1")


def test_an_intent_says_what_it_comes_to() -> None:
    state = {"a": {"id": "a", "v": 1}, "b": {"id": "b", "v": 2}}
    patch = Intent("t", patches=[{"id": "a", "x": 1}, {"id": "z", "x": 1}])
    effect = patch.on(state)
    assert effect is not None
    assert effect.counts == (0, 1, 0, 1, frozenset())
    assert effect.state["a"] == {"id": "a", "v": 1, "x": 1}
    assert Intent("t", upserts=[{"id": "a"}], condition="absent").on(state) is None
    skipped = Intent("t", deletes=["a", "b"], condition=1, skip=True).on(state)
    assert skipped is not None
    assert skipped.state == {"b": {"id": "b", "v": 2}}
    assert skipped.rejected == {"b"}
    truncated = Intent("t", upserts=[{"id": "c"}], load=True, truncate=True).on(state)
    assert truncated is not None
    assert set(truncated.state) == {"c"}


def test_the_schema_of_the_model() -> None:
    kinds = kinds_of([{"id": "a", "c": 7}, {"id": "b", "d": "seven"}])
    assert kinds == {"c": "int64", "d": "string"}
    assert fit({}, kinds)
    assert fit({"c": "float64"}, kinds)
    assert not fit({"d": "float64"}, kinds)
    assert not fit({"c": "int64"}, {"c": "float64"})
    model = SchemaModel({"v": "int64"})
    model.add({"c": "int64"}, {"c": "int64", "d": "string"})
    model.add({"c": "float64"}, {})
    assert model.known == {"v": "int64", "c": "int64"}
    assert model.may_refuse({"d": "int64"})
    assert not model.may_refuse({"c": "int64", "e": "string"})


def test_only_what_has_an_effect_brings_types() -> None:
    state = {"a": {"id": "a", "v": 1}}
    skipped = Intent(
        "t",
        upserts=[{"id": "a", "c": 1}],
        patches=[{"id": "z", "d": 1}],
        condition="exists",
        skip=True,
    )
    effect = skipped.on(state)
    assert effect is not None
    assert skipped.written_kinds(state, effect) == {"c": "int64"}
    assert skipped.kinds() == {"c": "int64", "d": "int64"}


def test_a_failing_run_is_told_and_made_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    from reef.lsm.upkeep import fold

    honest = fold.Gathered
    monkeypatch.setattr(fold, "Gathered", lambda batches: honest(batches[:1]))
    outcome = next(
        found for seed in range(40) if (found := simulate(plan_of(seed))).violation is not None
    )
    shorter = shrink(outcome, attempts=30)
    assert shorter.violation is not None
    assert len(shorter.trace) <= len(outcome.trace)
    told = tell(shorter)
    assert f"seed {outcome.plan.seed}:" in told
    assert "violation: " in told
    assert "wal/" in told


def test_every_fault_is_somewhere_among_the_plans() -> None:
    assert {fault for seed in range(50) for fault in plan_of(seed).faults} == set(FAULTS)

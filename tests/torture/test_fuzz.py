"""A slice of the fuzzing, and proof that it would notice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from reef.errors import Corruption
from torture.fuzz import campaign, reading, seeds
from torture.fuzz.campaign import fuzz
from torture.fuzz.judge import judge
from torture.fuzz.sealing import described, packed
from torture.fuzz.targets import TARGETS, Target, input_of
from torture.fuzz.worker import order
from torture.share import Failure, Share

INPUTS = int(os.environ.get("REEF_FUZZ", "30000"))


def test_a_slice() -> None:
    figures = fuzz(seed=1, inputs=INPUTS)
    assert figures.failures == []
    assert sum(figures.inputs.values()) == INPUTS
    assert set(figures.inputs) == set(TARGETS)
    # Neither all refused at the door, nor harmless.
    assert figures.endings["value"] > INPUTS // 20
    assert figures.endings["Corruption"] > INPUTS // 2


def test_seeds_are_sound() -> None:
    for data in seeds.LOG_OBJECTS:
        reading.read_log(data)
    for record in seeds.RECORDS:
        if record is not seeds.COMPRESSED:
            reading.read_record(record)
    for data in seeds.MANIFESTS:
        reading.read_manifest(data)
    for segment in seeds.SEGMENTS:
        reading.read_segment(segment.data)
    for number, block in enumerate(reading.BLOCKS):
        for made in (described(block.body), packed(block.body)):
            reading.read_block(number.to_bytes(2, "little") + made)


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_is_the_same_whenever_it_is_made(name: str) -> None:
    target = TARGETS[name]
    first = [input_of(target, 5, number) for number in range(200)]
    used = Random(9)
    assert [input_of(target, 5, number, used) for number in range(200)] == first
    assert len(set(first)) > 150
    assert [input_of(target, 6, number) for number in range(200)] != first


def test_parts_share_the_inputs() -> None:
    names, weights = ["a", "b"], [2, 1]
    drawn = []
    for index in range(3):
        inputs = order(names, weights, index, 3)
        drawn += [next(inputs) for _ in range(48)]
    assert len(set(drawn)) == len(drawn)
    assert {number for name, number in drawn if name == "b"} == set(range(48))


def _target(read: Callable[[bytes], None]) -> Target:
    return Target("log", lambda random: b"x", read, 1)


def _raise(error: BaseException) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        raise error

    return read


def test_what_is_judged() -> None:
    assert judge(_target(lambda data: None), b"") == ("value", None)
    assert judge(_target(_raise(Corruption("k", "r"))), b"") == ("Corruption", None)
    for error in (
        ValueError("x"),
        RecursionError(),
        MemoryError(),
        KeyError("x"),
        AssertionError(),
    ):
        ending, wrong = judge(_target(_raise(error)), b"")
        assert ending == type(error).__name__
        assert wrong is not None


def test_memory_that_was_refused_is_noticed_behind_a_typed_error() -> None:
    def read(data: bytes) -> None:
        try:
            raise MemoryError("4 GiB")
        except MemoryError:
            raise Corruption("k", "r") from None

    assert "4 GiB" in (judge(_target(read), b"")[1] or "")


def test_a_slow_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torture.fuzz.judge.SECONDS", 0.0)
    assert "took" in (judge(_target(lambda data: None), b"")[1] or "")


_DYING = """
import sys
from torture.fuzz import reading, targets, worker
import dataclasses, os, signal
def read(data):
    global seen
    seen += 1
    if seen == 40:
        {act}
seen = 0
target = targets.TARGETS["manifest"]
targets.TARGETS["manifest"] = dataclasses.replace(target, read=read)
worker.main()
"""


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise ValueError('odd')", "ValueError"),
        ("bytearray(1 << 50)", "MemoryError"),
        ("while True: pass", "still being read"),
    ],
)
def test_a_worker_that_breaks_is_told_with_its_input(
    act: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "dying.py"
    script.write_text(_DYING.format(act=act))
    monkeypatch.setattr(campaign, "WORKER", ["-P", str(script)])
    monkeypatch.setattr(campaign, "STUCK", 5.0)
    monkeypatch.setattr(campaign, "SAVED", tmp_path / "saved")
    failures: list[Failure] = []
    share = Share(0, 1, 3, lambda: bool(failures), lambda name, many: None, failures.append)
    campaign.Watch(share, ["manifest"], 2000).run()
    (failure,) = failures
    assert told in failure.what
    assert failure.repeat.endswith("--target manifest --seed 3 --input 39")
    (saved,) = (tmp_path / "saved").iterdir()
    assert saved.read_bytes() == input_of(TARGETS["manifest"], 3, 39)


def test_a_share_is_done_when_its_time_is_up() -> None:
    counts: dict[str, int] = {}

    def count(name: str, many: int) -> None:
        counts[name] = counts.get(name, 0) + many

    share = Share(1, 2, 3, lambda: counts.get("inputs", 0) > 1000, count, pytest.fail)
    campaign.run(share)
    assert counts["inputs"] == sum(many for name, many in counts.items() if name != "inputs")


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torture.fuzz.judge.limit_memory", lambda: None)
    arguments = ["campaign", "--target", "log", "--seed", "1", "--input", "5"]
    monkeypatch.setattr("sys.argv", arguments)
    assert campaign.main() == 0
    assert "as it must be" in capsys.readouterr().out

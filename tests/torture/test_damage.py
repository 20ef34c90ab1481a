"""A slice of the damage campaign, and proof that its judge can find fault."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

import reef.lsm.repair.salvage
from reef.lsm.repair import repair as repairing
from reef.lsm.repair.salvage import Salvage
from reef.segment import SegmentInfo
from torture.damage.campaign import benches, cases, quiet, run
from torture.damage.injuries import Injury, flip, kind_of, others, parse
from torture.damage.specimen import specimens
from torture.share import Failure, Share

HEAD = 40
SAMPLE = 80


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet():
        yield


def structural(specimen: str) -> list[Injury]:
    """Every object removed, emptied, cut at one place and swapped with another; segments, of which
    only the beginning is read, extended too."""
    chosen: dict[tuple[str, str], list[Injury]] = {}
    for injury in others(specimens()[specimen]):
        if injury.kind != "junk" or kind_of(injury.key) == "segments":
            chosen.setdefault((injury.key, injury.kind), []).append(injury)
    return [some[len(some) // 2] for some in chosen.values()]


def heads(specimen: str) -> list[Injury]:
    """Bytes at the beginning of every kind of object, every one of the hint and the newest
    manifest among them."""
    content = specimens()[specimen].content()
    firsts = {kind_of(key): key for key in reversed(content)}
    newest = max(key for key in content if kind_of(key) == "manifest")
    return [
        flip(specimen, key, offset)
        for key in {*firsts.values(), newest}
        for offset in range(min(HEAD, len(content[key])))
        if key in (newest, "hint.json") or offset % 8 == 0
    ]


def sampled(specimen: str) -> list[Injury]:
    """Bytes anywhere, the same ones every time."""
    content = specimens()[specimen].content()
    chance = random.Random(specimen)
    every = [(key, offset) for key, data in content.items() for offset in range(len(data))]
    return [
        flip(specimen, key, offset, chance.randrange(9))
        for key, offset in chance.sample(every, SAMPLE)
    ]


@pytest.mark.parametrize("choose", [structural, heads, sampled])
@pytest.mark.parametrize("specimen", ["kept", "bare", "emptied"])
def test_a_slice(specimen: str, choose: object) -> None:
    assert callable(choose)
    bench = benches()[specimen]
    outcomes: Counter[str] = Counter()
    for injury in choose(specimen):
        verdict = bench.judge(injury)
        assert not verdict.broken, f"{injury}: {verdict.broken}"
        outcomes["harmless" if verdict.harmless else "detected"] += 1
        outcomes["lost rows"] += verdict.lost_rows
    assert outcomes["detected"] > 20
    if specimen == "bare" and choose is not heads:
        assert outcomes["lost rows"] > 10


@pytest.mark.parametrize(
    "case",
    [
        "kept/wal/00000000000000000010.wal:remove:",
        "kept/manifest/00000000000000000008.manifest.json:cut:100",
        "bare/wal/00000000000000000008.wal:empty:",
        "emptied/wal/00000000000000000005.wal:cut:60",
    ],
)
def test_a_repair_that_dies_at_every_request(case: str) -> None:
    injury = parse(case)
    verdict = benches()[injury.specimen].judge(injury, crash=True)
    assert not verdict.broken
    assert verdict.crashes > 3


def test_an_intact_specimen_is_left_alone() -> None:
    for specimen, bench in benches().items():
        # The clock is an object of which nobody reads the bytes.
        verdict = bench.judge(Injury(specimen, "junk", "clock"))
        assert verdict.harmless
        assert not verdict.repaired
        assert not verdict.broken


def test_there_is_every_kind_of_object() -> None:
    found = {(name, kind_of(key)) for name, s in specimens().items() for key in s.content()}
    for kind in ("hint.json", "clock", "manifest", "segments", "wal"):
        assert {("kept", kind), ("bare", kind), ("emptied", kind)} <= found
    assert ("bare", "quarantine") in found
    assert sum(len(d) for s in specimens().values() for d in s.content().values()) < 60_000


def test_names_say_everything() -> None:
    for number, injury in enumerate(cases(0)):
        if number % 97 == 0:
            assert parse(str(injury)) == injury


def test_a_share_does_its_part_and_counts() -> None:
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    share = Share(
        100,
        5000,
        0,
        lambda: sum(counts.values()) > 20,
        lambda name, number: counts.update({name: number}),
        failures.append,
    )
    run(share)
    assert counts["detected"] + counts["harmless"] >= 5
    assert not failures


# The judge must be able to find fault.


def test_a_wrong_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.log.codec.crc32c", lambda data, value=0: 0)
    monkeypatch.setattr("reef.log.codec._FRAME", _Unchecked(reef.log.codec._FRAME))
    content = specimens()["kept"].content()
    key = max(key for key in content if kind_of(key) == "wal")
    offset = content[key].index(b"\x1a", len(content[key]) - 20)
    verdict = benches()["kept"].judge(Injury("kept", "flip", key, f"01@{offset}"))
    assert any("instead of" in wrong for wrong in verdict.broken)


class _Unchecked:
    """Frames whose checksum is always the one that is computed."""

    def __init__(self, frame: object) -> None:
        self._frame = frame
        self.size = 8

    def unpack_from(self, data: bytes, offset: int = 0) -> tuple[int, int]:
        return self._frame.unpack_from(data, offset)[0], 0  # type: ignore[attr-defined]

    def pack(self, *values: int) -> bytes:
        return self._frame.pack(*values)  # type: ignore[attr-defined]


def test_a_loss_that_is_not_reported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    survey = reef.lsm.repair.salvage.survey

    def silent(store: object, info: SegmentInfo, schema: object) -> Salvage:
        found = survey(store, info, schema)  # type: ignore[arg-type]
        return Salvage(info, found.rows, (), (), found.groups, found.schema, found.index)

    monkeypatch.setattr(repairing, "survey", silent)
    content = specimens()["bare"].content()
    key = min(key for key in content if kind_of(key) == "segments")
    verdict = benches()["bare"].judge(Injury("bare", "cut", key, "300"))
    assert any("after repair" in wrong for wrong in verdict.broken)


def test_a_problem_that_is_not_named_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.lsm.repair.health._missing", lambda *_: {})
    key = "manifest/00000000000000000003.manifest.json"
    verdict = benches()["kept"].judge(Injury("kept", "remove", key))
    assert any("verify does not name" in wrong for wrong in verdict.broken)


def test_a_dry_run_that_does_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    quarantined = vars(repairing)["quarantined"]

    def meddling(store: reef.store.Store, keys: list[str]) -> set[str]:
        store.put("quarantine/x", b"")
        return quarantined(store, keys)

    monkeypatch.setattr(repairing, "quarantined", meddling)
    verdict = benches()["kept"].judge(Injury("kept", "empty", "hint.json"))
    assert any("dry run" in wrong for wrong in verdict.broken)

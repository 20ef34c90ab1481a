"""Verification: every kind of damage is named, and nothing sound is blamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import reef.lsm.repair.health
import reef.segment.verify
from lsm.damaging import (
    NAME,
    PLACE,
    contents,
    copied,
    damage,
    database,
    keys_of,
    make,
    objects,
    tree_of,
)
from reef.log import WAL
from reef.lsm.repair.repair import repair
from reef.lsm.repair.verify import Report, verify
from reef.manifest import MANIFESTS
from reef.segment.verify import verify_segment
from reef.store import MemoryStore


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL", logger="reef"):
        yield


@pytest.fixture(scope="module")
def content() -> dict[str, bytes]:
    store = MemoryStore()
    make(store)
    return objects(store)


def damaged(content: dict[str, bytes], *changes: tuple[str, str], deep: bool = False) -> Report:
    store = copied(content)
    for key, how in changes:
        damage(store, PLACE + key, how)
    return verify(tree_of(store), deep=deep)


def test_a_sound_namespace(content: dict[str, bytes]) -> None:
    store = copied(content)
    told: list[tuple[str, int, int]] = []
    report = verify(tree_of(store), deep=True, progress=lambda *step: told.append(step))
    assert report == Report((), 7, 9, 6, 0, True)
    assert report.sound
    assert {what for what, _, _ in told} == {"manifests", "log", "segments"}
    assert all(done <= total for _, done, total in told)
    with database(store).namespace(NAME, "r") as ns:
        assert ns.verify(deep=True) == report


@pytest.mark.parametrize(
    ("key", "how", "meaning"),
    [
        (MANIFESTS.key(7), "flip", "checksum"),
        (MANIFESTS.key(7), "remove", "only the hint"),
        (MANIFESTS.key(3), "cut", "not a manifest"),
        ("hint.json", "flip", "checksum"),
        (WAL.key(2), "flip", "checksum"),
        (WAL.key(2), "remove", "missing"),
        (WAL.key(7), "cut", ""),
        (WAL.key(7), "remove", "missing"),
        (WAL.key(9), "flip", "never committed"),
    ],
)
def test_what_is_damaged_is_named(
    content: dict[str, bytes], key: str, how: str, meaning: str
) -> None:
    report = damaged(content, (key, how))
    assert not report.sound
    (problem,) = report.problems
    assert problem.key == key
    assert meaning in problem.meaning


def test_segments_that_only_older_generations_name(content: dict[str, bytes]) -> None:
    superseded = keys_of(copied(content), "segments/")[0].removeprefix(PLACE)
    assert not damaged(content, (superseded, "flip"), deep=True).sound
    (problem,) = damaged(content, (superseded, "remove")).problems
    assert (problem.key, problem.meaning) == (superseded, "it is missing")


def test_a_block_is_only_looked_at_deeply(content: dict[str, bytes]) -> None:
    store = copied(content)
    key = keys_of(store, "segments/")[3]
    data = bytearray(store.get(key).data)
    data[40] ^= 1
    store.put(key, bytes(data))
    assert verify(tree_of(store)).sound
    assert {problem.key for problem in verify(tree_of(store), deep=True).problems} == {
        key.removeprefix(PLACE)
    }


def test_several_problems_at_once(content: dict[str, bytes]) -> None:
    changes = [(MANIFESTS.key(7), "cut"), ("hint.json", "cut"), (WAL.key(6), "cut")]
    report = damaged(content, *changes)
    assert {problem.key for problem in report.problems} == {key for key, _ in changes}


def test_no_manifest_at_all(content: dict[str, bytes]) -> None:
    changes = [("hint.json", "remove"), *((MANIFESTS.key(n), "remove") for n in range(1, 8))]
    report = damaged(content, *changes)
    assert not report.sound
    assert (report.manifests, report.log_objects) == (0, 9)


def test_orphans_are_no_problem(content: dict[str, bytes]) -> None:
    store = copied(content)
    store.put(f"{PLACE}segments/{3:020d}-orphan.seg", b"anything")
    report = verify(tree_of(store), deep=True)
    assert report.sound
    assert report.orphans == 1


def test_collected_history_is_no_problem() -> None:
    import reef

    store = MemoryStore()
    settings = reef.Settings(retention=0, grace=0)
    ns = database(store).namespace(NAME, maintain=False, settings=settings)
    for n in range(4):
        ns.write(upserts=[{"id": f"a{n}", "n": n}], idempotency_key=f"key {n}")
        ns.index()
    ns.compact(full=True)
    for _ in range(3):
        ns.gc(apply=True)
        report = verify(tree_of(store), deep=True)
        assert report.sound, report.problems
    assert len(keys_of(store, "segments/")) < 9


@pytest.mark.parametrize("moment", ["before the segment", "between its head and its data"])
def test_what_is_collected_meanwhile_is_no_problem(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    model = make(store)
    tree = tree_of(store)
    busy = [False]

    def overtake() -> None:
        """All is compacted, and what that superseded is forgotten and deleted."""
        if busy[0]:
            return
        busy[0] = True
        ns = database(store).namespace(NAME, maintain=False)
        while ns.index() is not None:
            pass
        ns.compact(full=True)
        ns.close()
        other = tree_of(store)
        gone = [item.key for item in other.register.head().manifest.superseded]
        other.register.publish(
            lambda manifest: msgspec.structs.replace(manifest, superseded=(), folded=())
        )
        other.store.delete_many(gone)

    honest = reef.segment.verify._check_data

    def check_data(*given: Any) -> Any:
        overtake()
        return honest(*given)

    def check_segment(*given: Any, **more: Any) -> Any:
        overtake()
        return verify_segment(*given, **more)

    if moment == "before the segment":
        monkeypatch.setattr(reef.lsm.repair.health, "verify_segment", check_segment)
    else:
        monkeypatch.setattr(reef.segment.verify, "_check_data", check_data)
    report = verify(tree, deep=True)
    assert busy[0]
    assert report.sound, report.problems
    busy[0] = False
    assert not repair(tree_of(store)).actions
    assert contents(store) == model

"""Machines that share a folder disagree about the time, or the file system's clock is stepped."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

import reef
from reef import CommitUncertain, Fenced, Options, Settings
from reef.documents import Database, Namespace
from reef.environment import Environment
from reef.store import FolderStore

TWENTY_MINUTES = 1200.0
A_DAY = 86_400.0
SETTINGS = Settings(retention=3600.0, grace=900.0)


def opened(
    root: Path, mode: str = "w", *, ahead: float = 0.0, settings: Settings = SETTINGS
) -> Namespace:
    """A handle of another machine: its own store, and its own opinion of the time."""
    environment = Environment(now=lambda: time.time() + ahead)
    store = FolderStore(root, environment)
    return Database(store, Options(), environment).namespace(
        "n", mode, maintain=False, settings=settings
    )


def everything(root: Path) -> set[str]:
    return {
        str(path)
        for folder in ("wal", "segments", "manifest")
        for path in (root / "namespaces" / "n" / folder).iterdir()
    }


def ids_of(root: Path) -> list[str]:
    with opened(root, "r") as reader:
        return [str(row["id"]) for row in reader.scan().documents()]


def step_clock(root: Path, seconds: float) -> None:
    """The file system's clock goes ahead: everything written so far looks that much older."""
    for path in root.rglob("*"):
        if path.is_file():
            moment = path.stat().st_mtime_ns - int(seconds * 1e9)
            os.utime(path, ns=(moment, moment))


def churn(ns: Namespace) -> None:
    for number in range(3):
        ns.write(upserts=[{"id": "a", "n": number}])
        ns.index()
    ns.compact(full=True)


def test_a_collector_whose_clock_is_ahead_takes_nothing_that_is_retained(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    writer.write(upserts=[{"id": "a", "n": -1}])
    writer.index()
    first, lsn = writer.generation, writer.lsn
    with writer.snapshot(seconds=600) as held:
        churn(writer)
        before = everything(tmp_path)
        with opened(tmp_path, "r", ahead=A_DAY) as ahead:
            assert ahead.gc(apply=True).deleted == 0
            assert ahead.gc(apply=True).deleted == 0
        assert before <= everything(tmp_path)
        # Held and not lapsed; renewed by one machine, it is not lapsed to the other.
        assert held.get("a") == {"id": "a", "n": -1}
        held.renew()
        with opened(tmp_path, "r", ahead=A_DAY) as ahead:
            assert ahead.gc(apply=True).deleted == 0
        writer.refresh()
        assert held.get("a") == {"id": "a", "n": -1}
    assert writer.at(generation=first).get("a") == {"id": "a", "n": -1}
    assert writer.at(lsn=lsn).get("a") == {"id": "a", "n": -1}
    assert writer.verify(deep=True).sound


def test_what_a_machine_that_is_ahead_wrote_is_collected_in_time(tmp_path: Path) -> None:
    ahead = opened(tmp_path, ahead=30 * A_DAY)
    churn(ahead)
    step_clock(tmp_path, 2 * 3600)
    with opened(tmp_path, "r") as collector:
        assert collector.gc(apply=True).deleted > 5
    assert ahead.get("a") == {"id": "a", "n": 2}


@pytest.mark.parametrize("how", ["a machine is ahead", "the file system's clock is stepped"])
@pytest.mark.parametrize("guests", [False, True], ids=["alone", "with guests"])
def test_a_superseded_writer_does_not_win_its_old_slot_again(
    tmp_path: Path, how: str, guests: bool
) -> None:
    """It looked at the root a moment ago, so nothing makes it look again; and its next slot was
    filled, folded and collected since, because somebody's clock said that hours had passed."""
    first = opened(tmp_path, settings=Settings(retention=0.0, grace=900.0))
    first.write(upserts=[{"id": "a"}])
    with opened(tmp_path) as second:
        second.write(upserts=[{"id": "b"}])
        if guests:
            second.load([{"id": "c"}])
        while second.index() is not None:
            pass
    stepped = how.startswith("the file system")
    if stepped:
        step_clock(tmp_path, TWENTY_MINUTES)
    with opened(tmp_path, "r", ahead=0.0 if stepped else TWENTY_MINUTES) as collector:
        collector.gc(apply=True)
    assert stepped == (not list((tmp_path / "namespaces/n/wal").glob("*.wal")))
    with pytest.raises((Fenced, CommitUncertain)):
        first.write(upserts=[{"id": "zombie"}])
    with pytest.raises(Fenced):
        first.write(upserts=[{"id": "zombie"}])
    assert ids_of(tmp_path) == ["a", "b", "c"][: 2 + guests]
    with opened(tmp_path) as third:
        third.write(upserts=[{"id": "d"}])
        assert third.get("zombie") is None
        assert third.verify(deep=True).sound


def test_a_superseded_load_does_not_win_its_old_slot_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for a bulk load: the slot is collected while it is about to be put."""
    first = opened(tmp_path)
    first.write(upserts=[{"id": "a"}])
    create = FolderStore.create
    struck: list[str] = []

    def others_first(store: FolderStore, key: str, data: object) -> str:
        if "/wal/" in key and not struck:
            struck.append(key)
            with opened(tmp_path) as second:
                second.write(upserts=[{"id": "b"}])
                while second.index() is not None:
                    pass
                step_clock(tmp_path, 4 * 3600)
                second.gc(apply=True)
        return create(store, key, data)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderStore, "create", others_first)
    with pytest.raises(CommitUncertain):
        first.load([{"id": "zombie"}])
    assert struck
    assert ids_of(tmp_path) == ["a", "b"]


def test_a_publication_does_not_win_a_collected_generation_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What seems to be published must be what everybody reads."""
    first = opened(tmp_path)
    first.write(upserts=[{"id": "a"}])
    create = FolderStore.create
    struck: list[str] = []

    def others_first(store: FolderStore, key: str, data: object) -> str:
        if "/manifest/" in key and not struck:
            struck.append(key)
            with opened(tmp_path) as second:
                churn(second)
                step_clock(tmp_path, 4 * 3600)
                second.gc(apply=True)
            assert not (tmp_path / key).exists()
        return create(store, key, data)  # type: ignore[arg-type]

    monkeypatch.setattr(FolderStore, "create", others_first)
    first._tree.register.publish(lambda root: msgspec.structs.replace(root, compactor_epoch=17))
    assert struck
    with opened(tmp_path, "r") as reader:
        assert reader.status().compactor_epoch == 17


def test_an_idle_writer_whose_log_was_collected_goes_on(tmp_path: Path) -> None:
    """The slot before its own is gone, and rightly so."""
    writer = opened(tmp_path)
    for number in range(3):
        writer.write(upserts=[{"id": f"{number}"}])
        while writer.index() is not None:
            pass
        step_clock(tmp_path, 4 * 3600)
        with opened(tmp_path, "r") as collector:
            collector.gc(apply=True)
    writer.write(upserts=[{"id": "3"}])
    assert ids_of(tmp_path) == ["0", "1", "2", "3"]
    with reef.connect(tmp_path) as db, db.namespace("n", "r") as reader:
        assert reader.verify(deep=True).sound

"""The times of a folder's objects are the file system's own; no process's clock is believed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reef.environment import Environment
from reef.store import FolderStore
from reef.store.workplace import WORK

WAYS = ["create", "create named", "put", "replace"]
A_DAY = 86_400.0


def writing(store: FolderStore, way: str) -> Callable[[str], str]:
    """Writes to a key, in one of the ways that a file gets its name."""
    if way == "create named":
        store._unnamed = False
    if way == "replace":
        return lambda key: store.replace(key, b"x", store.create(key, b"before"))
    return lambda key: (store.put if way == "put" else store.create)(key, b"x")


def file_system_time(root: Path) -> float:
    """What the file system says now: the time of a file just made."""
    probe = root.parent / "probe"
    probe.unlink(missing_ok=True)
    probe.touch()
    return probe.stat().st_mtime


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ahead", [A_DAY, -A_DAY])
def test_a_wrong_clock_does_not_reach_the_objects(tmp_path: Path, way: str, ahead: float) -> None:
    wrong = Environment(now=lambda: time.time() + ahead)
    store = FolderStore(tmp_path / "bucket", wrong)
    before = file_system_time(tmp_path / "bucket")
    version = writing(store, way)("wal/1")
    after = file_system_time(tmp_path / "bucket")
    found = store.head("wal/1")
    assert before - 0.002 <= found.modified <= after + 0.002
    assert found.version == version == store.get("wal/1").version
    assert next(store.list("")) == found


@pytest.mark.parametrize("way", WAYS)
def test_versions_differ_while_the_file_system_time_stands(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path / "bucket")
    write = writing(store, way)
    utime = os.utime
    stands = 1_800_000_000_000_000_000

    def stand(descriptor: int, ns: tuple[int, int]) -> None:
        moment = stands + ns[1] % 1_000_000
        utime(descriptor, ns=(moment, moment))

    monkeypatch.setattr(os, "utime", stand)
    # The number of a file that was deleted is soon given to another.
    versions = []
    for _ in range(200):
        versions.append(write("a"))
        assert store.head("a").modified == pytest.approx(stands / 1e9, abs=0.001)
        store.delete("a")
    assert len(set(versions)) == len(versions)


@pytest.mark.parametrize("way", WAYS)
def test_whoever_slept_before_giving_the_name_makes_no_old_object(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object appears when it gets its name, whenever its bytes were written."""
    store = FolderStore(tmp_path / "bucket")
    write = writing(store, way)
    syncs: list[int] = []
    fsync = os.fsync

    def sleep_an_hour(descriptor: int) -> None:
        fsync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            an_hour_ago = time.time_ns() - 3600 * 10**9
            os.utime(descriptor, ns=(an_hour_ago, an_hour_ago))
        syncs.append(descriptor)

    monkeypatch.setattr(os, "fsync", sleep_an_hour)
    version = write("wal/1")
    monkeypatch.undo()
    assert syncs
    found = store.head("wal/1")
    assert found.modified > file_system_time(tmp_path / "bucket") - 60
    assert found.version == version


def test_leftovers_are_as_old_as_the_file_system_says(tmp_path: Path) -> None:
    work = tmp_path / WORK
    work.mkdir()
    (work / "new-of-another-process").write_bytes(b"half")
    ahead = FolderStore(tmp_path, Environment(now=lambda: time.time() + 30 * A_DAY))
    ahead.put("a", b"")
    assert (work / "new-of-another-process").exists()

"""A disk that is full, or may not be written: said at once, with its cause, and nothing is left."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import reef
import reef.store
from reef.environment import Environment
from reef.errors import AccessDenied, CommitUncertain, StoreError, StoreFull, StoreUnavailable
from reef.store import FolderStore
from reef.store.workplace import WORK
from support.faults import FaultyStore, request

ROOM = 512 << 10


class SmallDisk:
    """A file system with little room: a real one where mounting is permitted, else a pretence."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._patch = patch
        root.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(root)]
        self.real = sys.platform == "linux" and _succeeds(mount)

    def fill(self) -> None:
        """Use up what room there is."""
        if self.real:
            with open(self.root / "filling", "wb", buffering=0) as file:
                while True:
                    try:
                        file.write(bytes(4096))
                    except OSError:
                        return
        for name in ("write", "writev"):
            self._patch.setattr(os, name, _full)

    def empty(self) -> None:
        """Give the room back."""
        if self.real:
            (self.root / "filling").unlink()
        self._patch.undo()

    def close(self) -> None:
        self._patch.undo()
        if self.real:
            subprocess.run(["umount", "-l", str(self.root)], check=True, capture_output=True)


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with pytest.MonkeyPatch.context() as patch:
        disk = SmallDisk(tmp_path / "disk", patch)
        yield disk
        disk.close()


@pytest.mark.parametrize("unnamed", [True, False], ids=["unnamed", "named"])
def test_a_full_disk_takes_nothing_and_leaves_nothing(disk: SmallDisk, unnamed: bool) -> None:
    store = FolderStore(disk.root / "bucket")
    store._unnamed = store._unnamed and unnamed
    version = store.create("old", b"old")
    store.put("also", b"old")
    disk.fill()
    large = b"x" * ROOM
    for write in (
        lambda: store.create("new", large),
        lambda: store.create("new", [large[:9000], large]),
        lambda: store.put("old", large),
        lambda: store.replace("old", large, version),
    ):
        with pytest.raises(StoreFull, match=r"was not written: No space left on device$") as caught:
            write()
        assert isinstance(caught.value.__cause__, OSError)
    disk.empty()
    assert [info.key for info in store.list("")] == ["also", "old"]
    assert store.get("old").version == version
    assert list((disk.root / "bucket" / WORK).glob("new-*")) == []
    store.create("new", b"fits")


def test_a_write_to_a_full_disk_says_so_at_once_and_the_next_one_succeeds(disk: SmallDisk) -> None:
    naps: list[float] = []
    with reef.connect(disk.root / "bucket", environment=Environment(sleep=naps.append)) as db:
        ns = db.namespace("n", maintain=False)
        ns.write(upserts=[{"id": "a", "text": "kept"}])
        disk.fill()
        for _ in range(2):
            with pytest.raises(StoreFull, match="No space left on device"):
                ns.write(upserts=[{"id": "b", "text": "x" * ROOM}])
        assert naps == []
        assert ns.get("a") == {"id": "a", "text": "kept"}
        assert ns.get("b") is None
        disk.empty()
        assert ns.write(upserts=[{"id": "b"}], condition=reef.if_absent()).upserted == 1
        assert ns.verify(deep=True).sound


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EROFS, AccessDenied),
        (errno.EACCES, AccessDenied),
        (errno.EFBIG, StoreError),
        (errno.EIO, StoreUnavailable),
    ],
)
@pytest.mark.parametrize("step", ["write", "fsync", "link", "rename"])
def test_each_cause_has_its_error(
    folder_store: FolderStore,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: type[StoreError],
    step: str,
) -> None:
    folder_store.put("old", b"old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    write = folder_store.put if step == "rename" else folder_store.create
    with pytest.raises(StoreError, match=f"new was not written: {os.strerror(code)}$") as caught:
        write("new", b"x")
    assert type(caught.value) is expected
    monkeypatch.undo()
    assert [info.key for info in folder_store.list("")] == ["old"]
    assert list(Path(folder_store.url).glob(f"{WORK}/new-*")) == []


@pytest.mark.parametrize("way", ["create", "put"])
def test_what_fails_after_the_name_may_have_been_written(
    folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder_store.put("folder/old", b"old")
    fsync = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnavailable, match="may not be durable: No space left"):
        getattr(folder_store, way)("folder/new", b"x")
    monkeypatch.undo()
    assert bytes(folder_store.get("folder/new").data) == b"x"


def test_an_uncertain_commit_names_the_cause() -> None:
    store = FaultyStore(reef.store.MemoryStore())
    with reef.connect(store, environment=Environment(sleep=lambda _: None)) as db:
        ns = db.namespace("n", maintain=False)
        store.refuse(request("create", "wal/"), times=100)
        with pytest.raises(CommitUncertain, match=r"whether slot \d+ was written: .+"):
            ns.write(upserts=[{"id": "a"}])
        store.refuse(request("create", "manifest/"), times=100)
        with pytest.raises(CommitUncertain, match=r"whether manifest \d+ was written: .+"):
            db.create("other")

"""Whoever may write to a bucket's folder must not lead others out of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import reef
from reef.errors import AccessDenied
from reef.store import FolderStore
from reef.store.workplace import WORK


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder elsewhere, with a file that a sweep would take for an old leftover."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "new-precious").write_bytes(b"precious")
    os.utime(folder / "new-precious", (0, 0))
    return folder


def untouched(outside: Path) -> bool:
    return (
        sorted(path.name for path in outside.iterdir()) == ["new-precious"]
        and (outside / "new-precious").read_bytes() == b"precious"
    )


def writes_of(store: FolderStore) -> list[Callable[[], object]]:
    version = store.head("old").version
    return [
        lambda: store.put("new", b"x"),
        lambda: store.replace("old", b"x", version),
        lambda: store.delete("old"),
        lambda: store.delete_many(["old"]),
    ]


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    store = FolderStore(tmp_path / "bucket")
    store.create("old", b"old")
    return store


def test_a_link_in_place_of_the_work_folder_is_refused(
    tmp_path: Path, store: FolderStore, outside: Path
) -> None:
    (tmp_path / "bucket" / WORK).symlink_to(outside)
    store._unnamed = False
    for write in (*writes_of(store), lambda: store.create("new", b"x")):
        with pytest.raises(AccessDenied, match=rf"symbolic link \(.*/{WORK}\)$"):
            write()
    assert untouched(outside)
    assert bytes(store.get("old").data) == b"old"
    assert [info.key for info in store.list("")] == ["old"]


def test_a_work_folder_swapped_for_a_link_is_refused(
    tmp_path: Path, store: FolderStore, outside: Path
) -> None:
    store.put("first", b"x")
    (tmp_path / "bucket" / WORK).rename(tmp_path / "bucket" / "moved")
    (tmp_path / "bucket" / WORK).symlink_to(outside)
    for write in writes_of(store):
        with pytest.raises(AccessDenied, match="symbolic link"):
            write()
    assert untouched(outside)


def test_a_swap_in_the_middle_of_a_write_leads_nowhere(
    tmp_path: Path, store: FolderStore, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work folder is swapped when the temporary file is there, before it gets its name."""
    work = tmp_path / "bucket" / WORK
    fsync = os.fsync

    def swap(descriptor: int) -> None:
        fsync(descriptor)
        if not work.is_symlink():
            work.rename(tmp_path / "aside")
            work.symlink_to(outside)

    store.put("first", b"x")
    monkeypatch.setattr(os, "fsync", swap)
    with pytest.raises(AccessDenied, match="symbolic link"):
        store.put("new", b"x")
    monkeypatch.undo()
    assert untouched(outside)
    assert list((tmp_path / "aside").glob("new-*")) == []
    assert [info.key for info in store.list("")] == ["first", "old"]


def test_links_in_the_work_folder_are_not_followed(
    tmp_path: Path, store: FolderStore, outside: Path
) -> None:
    work = tmp_path / "bucket" / WORK
    work.mkdir()
    (work / "new-link").symlink_to(outside / "new-precious")
    os.utime(work / "new-link", (0, 0), follow_symlinks=False)
    for number in range(64):
        (work / f"lock-{number:02d}").symlink_to(outside / f"lock-{number:02d}")
    for write in writes_of(store):
        with pytest.raises(AccessDenied, match="symbolic link"):
            write()
    assert untouched(outside)
    assert not (work / "new-link").is_symlink()


def test_a_folder_where_a_leftover_would_be_harms_nobody(tmp_path: Path) -> None:
    odd = tmp_path / "bucket" / WORK / "new-odd"
    odd.mkdir(parents=True)
    os.utime(odd, (0, 0))
    FolderStore(tmp_path / "bucket").put("a", b"x")


def test_pruning_does_not_lead_out(
    tmp_path: Path, store: FolderStore, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is swapped for a link between a deletion in it and the removal of what is empty."""
    store.create("a/b/1", b"x")
    (outside / "new-precious").unlink()
    (outside / "b").mkdir()
    fsync = os.fsync

    def swap(descriptor: int) -> None:
        fsync(descriptor)
        if not (tmp_path / "bucket" / "a").is_symlink():
            (tmp_path / "bucket" / "a").rename(tmp_path / "aside")
            (tmp_path / "bucket" / "a").symlink_to(outside)

    monkeypatch.setattr(os, "fsync", swap)
    store.delete("a/b/1")
    monkeypatch.undo()
    assert (outside / "b").is_dir()


def test_listing_does_not_lead_out(
    tmp_path: Path, store: FolderStore, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is swapped for a link when it has been found to be one, before it is read."""
    store.create("a/1", b"x")
    scandir = os.scandir

    def swap(path: str) -> object:
        if not (tmp_path / "aside").exists():
            (tmp_path / "bucket" / "a").rename(tmp_path / "aside")
            (tmp_path / "bucket" / "a").symlink_to(outside)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", swap)
    found = [info.key for info in store.list("a/")]
    monkeypatch.undo()
    assert found == ["a/1"]
    assert list(store.list("a/")) == []


def test_a_namespace_on_such_a_bucket_says_so(tmp_path: Path, outside: Path) -> None:
    bucket = tmp_path / "other"
    bucket.mkdir()
    (bucket / WORK).symlink_to(outside)
    with reef.connect(bucket) as db, pytest.raises(AccessDenied, match="symbolic link"):
        db.namespace("n", maintain=False).gc(apply=True)
    assert untouched(outside)

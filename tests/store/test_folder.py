"""What only a folder must do: last, stay inside, and be shared between processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reef.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    InvalidName,
    ObjectNotFound,
    PreconditionFailed,
    StoreUnavailable,
)
from reef.store import FolderStore
from reef.store.workplace import WORK


@pytest.fixture
def root(folder_store: FolderStore) -> Path:
    return Path(folder_store.url)


@pytest.fixture(params=["unnamed", "named"])
def either(request: pytest.FixtureRequest, folder_store: FolderStore) -> FolderStore:
    """A store that writes through files without a name, and one that cannot."""
    if request.param == "named":
        folder_store._unnamed = False
    return folder_store


def keys_of(store: FolderStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


class Syncs:
    """What was synced, in order: the kind and the name of each file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str]] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.seen.append((kind, name if kind == "folder" else ""))
        self._fsync(descriptor)


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="reads /proc")


@needs_proc
def test_every_write_is_synced_with_its_name(
    either: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    either.put("wal/0", b"")
    syncs = Syncs(monkeypatch)
    version = either.create("wal/1", b"x")
    assert syncs.seen == [("file", ""), ("folder", "wal")]
    syncs.seen.clear()
    version = either.replace("wal/1", b"y", version)
    assert syncs.seen == [("file", ""), ("folder", "wal")]
    syncs.seen.clear()
    either.put("wal/1", b"z")
    assert syncs.seen == [("file", ""), ("folder", "wal")]
    syncs.seen.clear()
    either.delete("wal/1")
    assert syncs.seen == [("folder", "wal")]
    syncs.seen.clear()
    with pytest.raises(PreconditionFailed):
        either.replace("wal/0", b"y", version)
    assert syncs.seen == []


@needs_proc
def test_new_folders_are_synced_once(
    either: FolderStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    either.create("a/b/1", b"x")
    assert {name for kind, name in syncs.seen if kind == "folder"} == {root.name, "a", "b"}
    assert syncs.seen[-1] == ("folder", "b")
    syncs.seen.clear()
    either.create("a/b/2", b"x")
    assert syncs.seen == [("file", ""), ("folder", "b")]


@needs_proc
def test_a_folder_that_another_made_is_synced_too(
    folder_store: FolderStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a" / "b").mkdir(parents=True)
    syncs = Syncs(monkeypatch)
    folder_store.create("a/b/1", b"x")
    assert {name for kind, name in syncs.seen if kind == "folder"} == {root.name, "a", "b"}


def test_a_failing_sync_is_no_success(either: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    version = either.create("a", b"old")

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreUnavailable, match="Input/output error"):
        either.create("b", b"new")
    with pytest.raises(StoreUnavailable):
        either.replace("a", b"new", version)
    monkeypatch.undo()
    assert keys_of(either) == ["a"]
    assert bytes(either.get("a").data) == b"old"


def test_crash_leftovers_are_invisible_and_swept(root: Path) -> None:
    work = root / WORK
    work.mkdir(parents=True)
    (work / "new-dead-1-0").write_bytes(b"half")
    (work / "new-dead-1-1").write_bytes(b"half")
    os.utime(work / "new-dead-1-0", (0, 0))
    store = FolderStore(root)
    assert keys_of(store) == []
    assert store.list_folders("") == []
    store.put("a", b"")
    assert keys_of(store) == ["a"]
    assert sorted(path.name for path in work.glob("new-*")) == ["new-dead-1-1"]
    for call in (store.get, store.delete, store.head):
        with pytest.raises(InvalidName):
            call(f"{WORK}/new-dead-1-1")


def test_sweeping_past_a_file_that_vanishes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = root / WORK
    work.mkdir(parents=True)
    (work / "new-other-1-0").write_bytes(b"")
    scandir = os.scandir

    def remove_then_show(path: int) -> object:
        entries = list(scandir(path))
        (work / "new-other-1-0").unlink(missing_ok=True)
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", remove_then_show)
    FolderStore(root).put("a", b"x")


def test_no_temporary_file_stays(either: FolderStore, root: Path) -> None:
    version = either.create("a", b"1")
    either.put("a", b"2")
    for call in (lambda: either.create("a", b""), lambda: either.replace("a", b"", version)):
        with pytest.raises((AlreadyExists, PreconditionFailed)):
            call()
    assert list(root.glob(f"{WORK}/new-*")) == []


def test_links_do_not_lead_out(folder_store: FolderStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    for call in (
        lambda: folder_store.get("link/secret"),
        lambda: folder_store.get("file"),
        lambda: folder_store.get_range("file", 0, 1),
        lambda: folder_store.create("link/new", b""),
        lambda: folder_store.put("link/secret", b""),
        lambda: folder_store.delete("link/secret"),
        lambda: folder_store.head("link/secret"),
    ):
        with pytest.raises(AccessDenied, match="symbolic link"):
            call()
    assert keys_of(folder_store) == []
    assert keys_of(folder_store, "link/") == []
    assert keys_of(folder_store, "../outside/") == []
    assert folder_store.list_folders("") == []
    assert folder_store.list_folders("link/") == []
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_folder_swapped_for_a_link_is_noticed(
    folder_store: FolderStore, root: Path, tmp_path: Path
) -> None:
    folder_store.create("a/1", b"x")
    folder_store.get("a/1")
    (root / "a").rename(tmp_path / "moved")
    (root / "a").symlink_to(tmp_path / "moved")
    with pytest.raises(AccessDenied):
        folder_store.create("a/2", b"")
    with pytest.raises(AccessDenied):
        folder_store.get("a/1")


def test_a_link_to_the_whole_bucket_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = FolderStore(tmp_path / "link")
    store.create("a/b", b"x")
    assert keys_of(store) == ["a/b"]


def test_folders_that_vanish_are_made_again(either: FolderStore, root: Path) -> None:
    either.create("a/b/1", b"x")
    shutil.rmtree(root / "a")
    with pytest.raises(ObjectNotFound):
        either.get("a/b/1")
    either.create("a/b/1", b"y")
    assert bytes(either.get("a/b/1").data) == b"y"
    shutil.rmtree(root)
    either.put("a/b/2", b"z")
    assert keys_of(either) == ["a/b/2"]


def test_a_folder_made_again_by_another_is_seen(either: FolderStore, root: Path) -> None:
    for turn in range(5):
        either.create("a/mine", b"x")
        assert bytes(either.get("a/mine").data) == b"x"
        shutil.rmtree(root / "a")
        (root / "a").mkdir()
        (root / "a" / "theirs").write_bytes(b"%d" % turn)
        assert bytes(either.get("a/theirs").data) == b"%d" % turn
        assert either.head("a/theirs").size == 1


def test_a_folder_moved_away_is_not_written_to(
    either: FolderStore, root: Path, tmp_path: Path
) -> None:
    either.create("a/1", b"x")
    (root / "a").rename(tmp_path / "backup")
    either.create("a/1", b"y")
    assert bytes(either.get("a/1").data) == b"y"
    assert (tmp_path / "backup" / "1").read_bytes() == b"x"


def test_empty_folders_are_removed(folder_store: FolderStore, root: Path) -> None:
    folder_store.put("a/b/c/1", b"")
    folder_store.put("a/2", b"")
    folder_store.delete("a/b/c/1")
    assert not (root / "a" / "b").exists()
    folder_store.delete_many(["a/2"])
    assert not (root / "a").exists()
    assert root.exists()


def test_objects_and_folders_do_not_share_a_name(either: FolderStore) -> None:
    either.put("a", b"")
    either.put("b/c", b"")
    for call in (
        lambda: either.create("a/b", b""),
        lambda: either.put("a/b", b""),
        lambda: either.create("b", b""),
        lambda: either.put("b", b""),
        lambda: either.put("x" * 256, b""),
        lambda: either.create("x" * 256, b""),
    ):
        with pytest.raises(InvalidName):
            call()
    with pytest.raises(PreconditionFailed):
        either.replace("b", b"", "1")
    assert keys_of(either) == ["a", "b/c"]


def test_without_hard_links(folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder_store.create("a", b"first")
    with pytest.raises(AlreadyExists):
        folder_store.create("a", b"second")
    assert bytes(folder_store.get("a").data) == b"first"


def test_short_writes_are_continued(
    folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writev = os.write, os.writev
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    monkeypatch.setattr(os, "writev", lambda fd, views: writev(fd, [views[0][:2]]))
    folder_store.create("a", b"0123456789")
    folder_store.create("b", [b"01234", b"", b"567", b"89"])
    monkeypatch.undo()
    assert bytes(folder_store.get("a").data) == bytes(folder_store.get("b").data) == b"0123456789"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BucketNotFound, match="no folder"):
        FolderStore(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


@needs_proc
def test_listing_reads_only_the_folders_it_reaches(
    folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in "abcd":
        folder_store.put(f"{folder}/1", b"")
    read: list[str] = []
    scandir = os.scandir

    def watch(descriptor: int) -> object:
        read.append(os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2])
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", watch)
    found = folder_store.list("", start_after="b/1")
    assert next(found).key == "c/1"
    assert read[1:] == ["b", "c"]


def test_a_folder_that_cannot_be_read_is_said(
    folder_store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_store.put("a/1", b"")

    def refuse(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    for call in (lambda: keys_of(folder_store), lambda: folder_store.list_folders("a/")):
        with pytest.raises(AccessDenied, match="Permission denied"):
            call()


def test_many_listings_at_once_miss_nothing(folder_store: FolderStore) -> None:
    keys = [f"a/{number:03}" for number in range(200)]
    for key in keys:
        folder_store.create(key, b"")
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: keys_of(folder_store), range(64)):
            assert found == keys


def test_open_folders_are_bounded(folder_store: FolderStore) -> None:
    before = len(os.listdir("/dev/fd"))
    for number in range(300):
        folder_store.create(f"{number}/1", b"")
        folder_store.get(f"{number}/1")
    assert len(os.listdir("/dev/fd")) - before < 280
    folder_store.close()
    assert len(os.listdir("/dev/fd")) <= before + 1


def _create_all(root: str, name: str, count: int, ready: object, results: object) -> None:
    store = FolderStore(root)
    ready.wait()  # type: ignore[attr-defined]
    won = []
    for number in range(count):
        try:
            store.create(f"wal/{number}", name.encode())
            won.append(number)
        except AlreadyExists:
            pass
    results.put((name, won))  # type: ignore[attr-defined]


def _increment(root: str, name: str, count: int, ready: object, results: object) -> None:
    store = FolderStore(root)
    ready.wait()  # type: ignore[attr-defined]
    for _ in range(count):
        while True:
            blob = store.get("counter")
            try:
                store.replace("counter", b"%d" % (int(bytes(blob.data)) + 1), blob.version)
                break
            except PreconditionFailed:
                continue
    results.put((name, []))  # type: ignore[attr-defined]


def _churn(root: str, name: str, count: int, ready: object, results: object) -> None:
    store = FolderStore(root)
    ready.wait()  # type: ignore[attr-defined]
    for number in range(count):
        store.create(f"deep/er/{name}-{number}", b"x")
        store.delete(f"deep/er/{name}-{number}")
    results.put((name, []))  # type: ignore[attr-defined]


def run_processes(
    work: Callable[..., None], root: str, count: int, processes: int = 3
) -> dict[str, list[int]]:
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=work, args=(root, str(number), count, ready, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    return dict(results.get(timeout=10) for _ in workers)


def test_processes_racing_to_create(folder_store: FolderStore) -> None:
    won = run_processes(_create_all, folder_store.url, 100)
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(100))
    for name, numbers in won.items():
        for number in numbers:
            assert bytes(folder_store.get(f"wal/{number}").data) == name.encode()


def test_processes_racing_to_replace(folder_store: FolderStore) -> None:
    folder_store.create("counter", b"0")
    run_processes(_increment, folder_store.url, 40)
    assert bytes(folder_store.get("counter").data) == b"120"


def test_processes_racing_to_remove_and_make_a_folder(folder_store: FolderStore) -> None:
    run_processes(_churn, folder_store.url, 60)
    assert keys_of(folder_store) == []

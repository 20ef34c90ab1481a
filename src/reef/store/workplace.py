"""The hidden folder where a folder store keeps what is no object: files being written, and locks.

Whoever may write to the bucket's folder could put a link in its place, or in that of a lock. So it
is reached through its open folder, and no link is followed: neither to it nor in it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from itertools import count
from zlib import crc32

from reef.store.directories import Directories, Directory

WORK = ".reef-work"

_LOCKS = 64
_ATTEMPTS = 100
_STALE_SECONDS = 24 * 3600.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Temporary:
    """A file being written. It can be given its name once, from this folder to another; when it
    is left, nothing of it stays here."""

    __slots__ = ("_name", "_work", "descriptor")

    def __init__(self, work: Directory, name: str, descriptor: int) -> None:
        self._work = work
        self._name = name
        self.descriptor = descriptor

    def link(self, directory: Directory, name: str) -> None:
        """Give it the name there, unless that is taken."""
        source, target = self._work.descriptor, directory.descriptor
        os.link(self._name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def rename(self, directory: Directory, name: str) -> None:
        """Give it the name there, whoever had it."""
        source, target = self._work.descriptor, directory.descriptor
        os.rename(self._name, name, src_dir_fd=source, dst_dir_fd=target)
        self._name = ""

    def __enter__(self) -> Temporary:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._name:
                with suppress(OSError):
                    os.unlink(self._name, dir_fd=self._work.descriptor)
        finally:
            os.close(self.descriptor)


class Locked:
    """A lock between processes, held until it is left."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *_: object) -> None:
        # Closing alone would not do if the process was forked meanwhile.
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            os.close(self._descriptor)


class Workplace:
    """The work folder of a bucket, made when it is first needed."""

    def __init__(self, directories: Directories, identity: str) -> None:
        self._directories = directories
        self._identity = identity
        self._number = count()
        self._swept = False

    def temporary(self) -> Temporary:
        """A new empty file."""
        name = f"new-{self._identity}-{os.getpid()}-{next(self._number)}"
        work, descriptor = self._open(name, _NEW)
        if not self._swept:
            self._swept = True
            _sweep(work, os.fstat(descriptor).st_mtime - _STALE_SECONDS)
        return Temporary(work, name, descriptor)

    def locked(self, name: str) -> Locked:
        """Be the only one, of all processes, at work on objects whose file has that name."""
        # Opened each time: a lock belongs to the open file, which threads and forks would share.
        return Locked(self._open(f"lock-{crc32(name.encode()) % _LOCKS:02d}", _LOCK)[1])

    def _open(self, name: str, flags: int) -> tuple[Directory, int]:
        for _ in range(_ATTEMPTS - 1):
            work = self._directories.make(f"{WORK}/")
            # The folder may be removed between the two, by whoever empties the bucket.
            try:
                return work, os.open(name, flags, 0o666, dir_fd=work.descriptor)
            except FileNotFoundError:
                continue
        work = self._directories.make(f"{WORK}/")
        return work, os.open(name, flags, 0o666, dir_fd=work.descriptor)


def _sweep(work: Directory, oldest: float) -> None:
    """Remove what crashed writers left behind before then, by the file system's own time."""
    with suppress(OSError), os.scandir(work.descriptor) as entries:
        for entry in entries:
            # Its writer may just have given it its name, and somebody may have put a folder here.
            with suppress(OSError):
                if (
                    entry.name.startswith("new-")
                    and entry.stat(follow_symlinks=False).st_mtime < oldest
                ):
                    os.unlink(entry.name, dir_fd=work.descriptor)

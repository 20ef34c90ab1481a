"""The folders of a folder store, held open, so that a write costs no search for its place."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
from collections import OrderedDict
from threading import Lock

_MOST_OPEN = 128
_ATTEMPTS = 100
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def sync(descriptor: int) -> None:
    """Return when what was written to that file or folder will outlive a power loss."""
    if sys.platform == "darwin":
        # There, fsync leaves the data in the drive's own cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


class Directory:
    """An open folder; closed when nobody holds it any more."""

    __slots__ = ("_identity", "_path", "descriptor")

    def __init__(self, path: str, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.descriptor = descriptor
        self._path = path
        self._identity = (status.st_dev, status.st_ino)

    def is_there(self) -> bool:
        """Whether it is still what its path leads to: not removed, moved or replaced."""
        # While a folder is being removed, its path may lead to it a moment longer.
        if os.fstat(self.descriptor).st_nlink == 0:
            return False
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    def __del__(self) -> None:
        os.close(self.descriptor)


class Directories:
    """Open folders by their path below the root. No symbolic link is followed below it."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = Lock()
        self._open: OrderedDict[str, Directory] = OrderedDict()
        self._durable: OrderedDict[str, Directory] = OrderedDict()

    def find(self, key: str) -> Directory:
        """The folder that holds the key's file, or `FileNotFoundError`."""
        return self._get(self._open, key.rpartition("/")[0], make=False)

    def make(self, key: str) -> Directory:
        """The same, made if need be, and on the disk with all its ancestors."""
        return self._get(self._durable, key.rpartition("/")[0], make=True)

    def sync_root(self) -> None:
        """Put a root just made on the disk, and its own name in the folder above."""
        for path in (self._root, os.path.dirname(self._root)):
            descriptor = os.open(path, _FLAGS)
            try:
                sync(descriptor)
            finally:
                os.close(descriptor)

    def prune(self, key: str) -> None:
        """Remove the folders above a deleted key that became empty."""
        folder = key.rpartition("/")[0]
        while folder:
            parent, _, name = folder.rpartition("/")
            try:
                os.rmdir(name, dir_fd=self.find(folder).descriptor)
            except OSError:
                return
            folder = parent

    def clear(self) -> None:
        """Let go of every folder."""
        with self._lock:
            self._open.clear()
            self._durable.clear()

    def _get(self, known: OrderedDict[str, Directory], folder: str, *, make: bool) -> Directory:
        found = known.get(folder)
        if found is not None and found.is_there():
            return found
        found = self._make(folder) if make else self._descend(folder, make=False)
        with self._lock:
            known[folder] = found
            known.move_to_end(folder)
            if len(known) > _MOST_OPEN:
                known.popitem(last=False)
        return found

    def _make(self, folder: str) -> Directory:
        # Another process may remove an empty folder between its making and its opening.
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._descend(folder, make=True)
            except FileNotFoundError:
                continue
        return self._descend(folder, make=True)

    def _descend(self, folder: str, *, make: bool) -> Directory:
        if make:
            os.makedirs(self._root, exist_ok=True)
        path = self._root
        current = Directory(path, os.open(path, _FLAGS))
        for name in folder.split("/") if folder else ():
            path = f"{path}/{name}"
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=current.descriptor)
                # Even if another process made it: that one may not have come to sync it yet.
                sync(current.descriptor)
            try:
                descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=current.descriptor)
            except NotADirectoryError:
                # What systems answer for a link that must not be followed, too.
                if os.path.islink(path):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                raise
            current = Directory(path, descriptor)
        return current

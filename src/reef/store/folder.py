"""A bucket in a folder of a local or shared filesystem, durable through power loss.

An object is a file whose path is its key. Below the root, one hidden folder (`WORK`) holds
what is no object:

    .reef-work/new-…     files being written; one that a crash left behind is seen by nobody
    .reef-work/lock-NN   locks between processes, one for each share of the keys

A write goes to a file without its name yet, is synced, gets its name in one step, and then
the folder that holds the name is synced. `create` gives the name by link(), which fails if
the name is taken; the others by rename(), under the key's lock, so that a comparison of
versions and the rename that follows it are one step to every other process.

An object's time is the one that the file system itself gave to the file when it was written: on a
network file system the server's. No process's clock is asked. So times compare with each other
and with a probe, an object just written, whatever the machines that share the folder believe.
"""

from __future__ import annotations

import builtins
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from stat import S_ISDIR, S_ISREG

from reef.environment import SYSTEM, Environment
from reef.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    InvalidName,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from reef.store.contract import Blob, Data, ObjectInfo, Store, check_key
from reef.store.directories import Directories, Directory, sync
from reef.store.files import read, refuse, refuse_write, write_all
from reef.store.walk import folders_in, walk
from reef.store.workplace import WORK, Temporary, Workplace

_ATTEMPTS = 100
_MILLISECOND = 1_000_000
_LATE = 2_000 * _MILLISECOND
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_UNNAMED = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


class FolderStore(Store):
    """Safe between threads and between processes that share the filesystem.

    A version is the file's time, number and size. Because a file's number is soon reused and the
    file system's time may stand still for milliseconds, what the time has below the millisecond is
    a mark instead, never twice the same within that millisecond.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        environment: Environment = SYSTEM,
        *,
        create: bool = True,
    ) -> None:
        self._root = os.path.realpath(os.fspath(path))
        self._directories = Directories(self._root)
        self._workplace = Workplace(self._directories, environment.nonce())
        self._marks = count(int.from_bytes(environment.entropy(4), "big"))
        self._unnamed = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
        if not os.path.isdir(self._root):
            if not create:
                raise BucketNotFound(f"there is no folder {self._root}")
            try:
                os.makedirs(self._root, exist_ok=True)
                self._directories.sync_root()
            except OSError as error:
                raise AccessDenied(
                    f"folder {self._root} cannot be made: {error.strerror}"
                ) from error

    @property
    def url(self) -> str:
        return self._root

    @property
    def is_local(self) -> bool:
        return True

    @property
    def has_steady_clock(self) -> bool:
        return False

    def get(self, key: str) -> Blob:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            return Blob(read(descriptor, 0, status.st_size), _version_of(status))
        except OSError as error:
            refuse(key, error)
        finally:
            os.close(descriptor)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            return read(descriptor, start, min(length, status.st_size - start))
        except OSError as error:
            refuse(key, error)
        finally:
            os.close(descriptor)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[memoryview]:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            size = status.st_size
            return [read(descriptor, start, min(length, size - start)) for start, length in ranges]
        except OSError as error:
            refuse(key, error)
        finally:
            os.close(descriptor)

    def put(self, key: str, data: Data) -> str:
        def rename(temporary: Temporary, directory: Directory, name: str) -> None:
            with self._workplace.locked(name):
                temporary.rename(directory, name)

        return self._write(key, data, rename)

    def create(self, key: str, data: Data) -> str:
        if self._unnamed:
            version = self._create_unnamed(key, data)
            if version is not None:
                return version
        return self._write(key, data, self._link)

    def replace(self, key: str, data: Data, version: str) -> str:
        def rename(temporary: Temporary, directory: Directory, name: str) -> None:
            with self._workplace.locked(name):
                if self._version(directory, name) != version:
                    raise PreconditionFailed(key)
                temporary.rename(directory, name)

        # Most lost races end here, before anything is written and synced.
        try:
            if self.head(key).version != version:
                raise PreconditionFailed(key)
        except ObjectNotFound:
            raise PreconditionFailed(key) from None
        return self._write(key, data, rename)

    def head(self, key: str) -> ObjectInfo:
        name = _name_of(key)
        try:
            directory = self._directories.find(key)
            status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
        except OSError as error:
            refuse(key, error)
        if not S_ISREG(status.st_mode):
            raise ObjectNotFound(key)
        return ObjectInfo(key, status.st_size, status.st_mtime_ns / 1e9, _version_of(status))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        try:
            for key, status in walk(self._directories, prefix, start_after, hidden=WORK):
                yield ObjectInfo(key, status.st_size, status.st_mtime_ns / 1e9, _version_of(status))
        except OSError as error:
            refuse(prefix, error)

    def list_folders(self, prefix: str) -> builtins.list[str]:
        try:
            return folders_in(self._directories, prefix, hidden=WORK)
        except OSError as error:
            refuse(prefix, error)

    def delete(self, key: str) -> None:
        directory = self._unlink(key)
        if directory is not None:
            sync(directory.descriptor)
            self._directories.prune(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        touched: dict[str, tuple[str, Directory]] = {}
        for key in keys:
            directory = self._unlink(key)
            if directory is not None:
                touched[key.rpartition("/")[0]] = (key, directory)
        for key, directory in touched.values():
            sync(directory.descriptor)
            self._directories.prune(key)

    def close(self) -> None:
        super().close()
        self._directories.clear()

    # Reading

    def _open(self, key: str) -> int:
        name = _name_of(key)
        try:
            directory = self._directories.find(key)
            return os.open(name, _READ, dir_fd=directory.descriptor)
        except OSError as error:
            refuse(key, error)

    def _version(self, directory: Directory, name: str) -> str | None:
        try:
            status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return _version_of(status)

    # Writing

    def _create_unnamed(self, key: str, data: Data) -> str | None:
        """Like `create`, through a file that never has another name; None if that cannot be."""
        name = _name_of(key)
        for _ in range(_ATTEMPTS):
            try:
                directory = self._directories.make(key)
                try:
                    descriptor = os.open(".", _UNNAMED, 0o666, dir_fd=directory.descriptor)
                except OSError as error:
                    # In a folder removed meanwhile, systems answer this and that.
                    if not directory.is_there():
                        continue
                    if error.errno not in _NO_UNNAMED:
                        raise
                    self._unnamed = False
                    return None
            except OSError as error:
                refuse_write(key, error)
            try:
                version = self._fill(descriptor, data)
                source = f"/proc/self/fd/{descriptor}"
                os.link(source, name, dst_dir_fd=directory.descriptor)
                return self._settle(key, descriptor, directory, version)
            except FileExistsError:
                raise self._taken(key, directory) from None
            except OSError as error:
                if not directory.is_there():
                    continue
                if error.errno != errno.ENOENT and error.errno not in _NO_LINK:
                    refuse_write(key, error)
                self._unnamed = False
                return None
            finally:
                os.close(descriptor)
        raise StoreUnavailable(f"the folder of {key} is removed again and again")

    def _write(
        self, key: str, data: Data, give_name: Callable[[Temporary, Directory, str], None]
    ) -> str:
        name = _name_of(key)
        try:
            with self._workplace.temporary() as temporary:
                version = self._fill(temporary.descriptor, data)
                for _ in range(_ATTEMPTS):
                    directory = self._directories.make(key)
                    try:
                        give_name(temporary, directory, name)
                    except FileExistsError:
                        raise self._taken(key, directory) from None
                    except OSError:
                        if directory.is_there():
                            raise
                        continue
                    return self._settle(key, temporary.descriptor, directory, version)
        except OSError as error:
            refuse_write(key, error)
        raise StoreUnavailable(f"the folder of {key} is removed again and again")

    def _fill(self, descriptor: int, data: Data) -> str:
        """Write and sync a file that has no name yet, and return its version."""
        size = write_all(descriptor, data)
        # A network file system must say itself when that was; asked, it writes what it holds back.
        status = os.fstat(descriptor)
        if status.st_size != size:
            raise StoreUnavailable(f"only {status.st_size} of {size} bytes were written")
        version = self._mark(descriptor, status)
        sync(descriptor)
        return version

    def _mark(self, descriptor: int, status: os.stat_result) -> str:
        """Tell the file apart from every other that the file system gave the same time."""
        whole = status.st_mtime_ns - status.st_mtime_ns % _MILLISECOND
        moment = whole + next(self._marks) % _MILLISECOND
        os.utime(descriptor, ns=(moment, moment))
        # The file system may keep less of it than it was given.
        return _version_of(os.fstat(descriptor))

    def _settle(self, key: str, descriptor: int, directory: Directory, version: str) -> str:
        """Make the name that a file was just given durable. Returns the version that it has.

        The object is there: a failure from here on says that it may have been written.
        """
        try:
            status = os.fstat(descriptor)
            if status.st_ctime_ns - status.st_mtime_ns > _LATE:
                # Whoever slept between the two has made an object that looks old, and what it
                # supersedes with it; but it appeared only now, when the name came.
                os.utime(descriptor)
                version = self._mark(descriptor, os.fstat(descriptor))
            sync(directory.descriptor)
        except OSError as error:
            raise StoreUnavailable(
                f"object {key} was written but may not be durable: {error.strerror}"
            ) from error
        return version

    def _link(self, temporary: Temporary, directory: Directory, name: str) -> None:
        try:
            temporary.link(directory, name)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            # A filesystem without hard links: all who create there come this way, so the
            # lock makes the look and the rename one step.
            with self._workplace.locked(name):
                if self._version(directory, name) is not None:
                    raise FileExistsError from None
                temporary.rename(directory, name)

    def _taken(self, key: str, directory: Directory) -> StoreError | InvalidName:
        try:
            status = os.stat(_name_of(key), dir_fd=directory.descriptor, follow_symlinks=False)
        except OSError:
            return AlreadyExists(key)
        if S_ISREG(status.st_mode):
            return AlreadyExists(key)
        return InvalidName(f"object key {key!r} names something that is no object")

    def _unlink(self, key: str) -> Directory | None:
        name = _name_of(key)
        try:
            directory = self._directories.find(key)
            try:
                with self._workplace.locked(name):
                    os.unlink(name, dir_fd=directory.descriptor)
            except PermissionError:
                # Some systems say so when asked to unlink a folder.
                status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
                if not S_ISDIR(status.st_mode):
                    raise
                return None
            return directory
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            refuse(key, error)


def _name_of(key: str) -> str:
    if key.startswith(WORK) and key.partition("/")[0] == WORK:
        raise InvalidName(f"object key {key!r} is reserved")
    return check_key(key).rpartition("/")[2]


def _version_of(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"

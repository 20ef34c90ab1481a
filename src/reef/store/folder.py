"""A bucket in a folder of a local or shared filesystem, durable through power loss.

An object is a file whose path is its key. Below the root, one hidden folder (`WORK`) holds
what is no object:

    .reef-work/new-…     files being written; one that a crash left behind is seen by nobody
    .reef-work/lock-NN   locks between processes, one for each share of the keys

A write goes to a file without its name yet, is synced, gets its name in one step, and then
the folder that holds the name is synced. `create` gives the name by link(), which fails if
the name is taken; the others by rename(), under the key's lock, so that a comparison of
versions and the rename that follows it are one step to every other process.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from stat import S_ISREG
from typing import NoReturn
from zlib import crc32

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
from reef.store.contract import Blob, Data, ObjectInfo, Store, check_key, parts_of
from reef.store.directories import Directories, Directory, sync
from reef.store.walk import folders_in, walk

WORK = ".reef-work"

_LOCKS = 64
_ATTEMPTS = 100
_STALE_SECONDS = 24 * 3600.0
_LARGEST_READ = 1 << 30
_MOST_BUFFERS = 512
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC
_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
_NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV}


class FolderStore(Store):
    """Safe between threads and between processes that share the filesystem.

    A version is the file's time, number and size. The time is set with each write, to the
    nanosecond and never twice the same by one store, because a file's number is soon reused
    and the filesystem's own time stands still for milliseconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        environment: Environment = SYSTEM,
        *,
        create: bool = True,
    ) -> None:
        self._root = os.path.realpath(os.fspath(path))
        self._environment = environment
        self._directories = Directories(self._root)
        self._identity = environment.nonce()
        self._number = count()
        self._last_time = 0
        self._unnamed = hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd")
        self._swept = False
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

    def get(self, key: str) -> Blob:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            return Blob(_read(descriptor, 0, status.st_size), _version_of(status))
        except OSError as error:
            _fail(key, error)
        finally:
            os.close(descriptor)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            return _read(descriptor, start, min(length, status.st_size - start))
        except OSError as error:
            _fail(key, error)
        finally:
            os.close(descriptor)

    def get_ranges(self, key: str, ranges: Iterable[tuple[int, int]]) -> builtins.list[memoryview]:
        descriptor = self._open(key)
        try:
            status = os.fstat(descriptor)
            if not S_ISREG(status.st_mode):
                raise ObjectNotFound(key)
            size = status.st_size
            return [_read(descriptor, start, min(length, size - start)) for start, length in ranges]
        except OSError as error:
            _fail(key, error)
        finally:
            os.close(descriptor)

    def put(self, key: str, data: Data) -> str:
        def rename(temporary: str, directory: Directory, name: str) -> None:
            with self._locked(name):
                os.rename(temporary, name, dst_dir_fd=directory.descriptor)

        return self._write(key, data, rename)

    def create(self, key: str, data: Data) -> str:
        if self._unnamed:
            version = self._create_unnamed(key, data)
            if version is not None:
                return version
        return self._write(key, data, self._link)

    def replace(self, key: str, data: Data, version: str) -> str:
        def rename(temporary: str, directory: Directory, name: str) -> None:
            with self._locked(name):
                if self._version(directory, name) != version:
                    raise PreconditionFailed(key)
                os.rename(temporary, name, dst_dir_fd=directory.descriptor)

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
            _fail(key, error)
        if not S_ISREG(status.st_mode):
            raise ObjectNotFound(key)
        return ObjectInfo(key, status.st_size, status.st_mtime_ns / 1e9, _version_of(status))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        for key, status in walk(self._root, prefix, start_after, hidden=WORK):
            yield ObjectInfo(key, status.st_size, status.st_mtime_ns / 1e9, _version_of(status))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return folders_in(self._root, prefix, hidden=WORK)

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
            _fail(key, error)

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
        try:
            for _ in range(_ATTEMPTS):
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
                try:
                    version = self._fill(descriptor, data)
                    source = f"/proc/self/fd/{descriptor}"
                    os.link(source, name, dst_dir_fd=directory.descriptor)
                except FileExistsError:
                    raise self._taken(key, directory) from None
                except OSError as error:
                    if not directory.is_there():
                        continue
                    if error.errno != errno.ENOENT and error.errno not in _NO_LINK:
                        raise
                    self._unnamed = False
                    return None
                finally:
                    os.close(descriptor)
                sync(directory.descriptor)
                return version
        except OSError as error:
            _fail_to_write(key, error)
        raise StoreUnavailable(f"the folder of {key} is removed again and again")

    def _write(self, key: str, data: Data, give_name: Callable[[str, Directory, str], None]) -> str:
        name = _name_of(key)
        temporary = ""
        try:
            temporary, version = self._write_temporary(data)
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
                sync(directory.descriptor)
                return version
        except OSError as error:
            _fail_to_write(key, error)
        finally:
            _remove(temporary)
        raise StoreUnavailable(f"the folder of {key} is removed again and again")

    def _write_temporary(self, data: Data) -> tuple[str, str]:
        work = f"{self._root}/{WORK}"
        path = f"{work}/new-{self._identity}-{os.getpid()}-{next(self._number)}"
        if not self._swept:
            os.makedirs(work, exist_ok=True)
            self._sweep(work)
        try:
            descriptor = os.open(path, _NEW, 0o666)
        except FileNotFoundError:
            os.makedirs(work, exist_ok=True)
            descriptor = os.open(path, _NEW, 0o666)
        try:
            return path, self._fill(descriptor, data)
        except BaseException:
            _remove(path)
            raise
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int, data: Data) -> str:
        size = _write_all(descriptor, data)
        # Under the GIL two threads could still get one number here; their files' inodes differ.
        moment = max(int(self._environment.now() * 1e9), self._last_time + 1)
        self._last_time = moment
        os.utime(descriptor, ns=(moment, moment))
        status = os.fstat(descriptor)
        if status.st_size != size:
            raise StoreUnavailable(f"only {status.st_size} of {size} bytes were written")
        sync(descriptor)
        return _version_of(status)

    def _link(self, temporary: str, directory: Directory, name: str) -> None:
        try:
            os.link(temporary, name, dst_dir_fd=directory.descriptor)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            # A filesystem without hard links: all who create there come this way, so the
            # lock makes the look and the rename one step.
            with self._locked(name):
                if self._version(directory, name) is not None:
                    raise FileExistsError from None
                os.rename(temporary, name, dst_dir_fd=directory.descriptor)

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
            with self._locked(name):
                os.unlink(name, dir_fd=directory.descriptor)
            return directory
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except PermissionError as error:
            # Some systems say so when asked to unlink a folder.
            if os.path.isdir(f"{self._root}/{key}"):
                return None
            _fail(key, error)
        except OSError as error:
            _fail(key, error)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        # Opened each time: a lock belongs to the open file, which threads and forks would share.
        path = f"{self._root}/{WORK}/lock-{crc32(name.encode()) % _LOCKS:02d}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _sweep(self, work: str) -> None:
        """Remove what crashed writers left behind a day ago."""
        self._swept = True
        oldest = self._environment.now() - _STALE_SECONDS
        with os.scandir(work) as entries:
            for entry in entries:
                try:
                    if entry.name.startswith("new-") and entry.stat().st_mtime < oldest:
                        os.unlink(entry.path)
                except FileNotFoundError:
                    continue  # its writer has just given it its name


def _name_of(key: str) -> str:
    if key.startswith(WORK) and key.partition("/")[0] == WORK:
        raise InvalidName(f"object key {key!r} is reserved")
    return check_key(key).rpartition("/")[2]


def _version_of(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _read(descriptor: int, start: int, length: int) -> memoryview:
    if length <= 0:
        return memoryview(b"")
    if length <= _LARGEST_READ:
        data = os.pread(descriptor, length, start)
        if len(data) == length:
            return memoryview(data)
    view = memoryview(bytearray(length))
    done = 0
    while done < length:
        taken = os.preadv(descriptor, [view[done : done + _LARGEST_READ]], start + done)
        if taken == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        done += taken
    return view.toreadonly()


def _write_all(descriptor: int, data: Data) -> int:
    if isinstance(data, bytes) and len(data) <= _LARGEST_READ:
        written = os.write(descriptor, data)
        if written == len(data):
            return written
        views = [memoryview(data)[written:]]
    else:
        written = 0
        views = [memoryview(part).cast("B") for part in parts_of(data)]
    views = [view for view in views if view.nbytes]
    while views:
        taken = os.writev(descriptor, views[:_MOST_BUFFERS])
        written += taken
        while views and taken >= views[0].nbytes:
            taken -= views.pop(0).nbytes
        if taken:
            views[0] = views[0][taken:]
    return written


def _remove(path: str) -> None:
    if path:
        with suppress(OSError):
            os.unlink(path)


def _fail(key: str, error: OSError) -> NoReturn:
    """Say in Reef's words why an object could not be reached."""
    code = error.errno
    if code in (errno.ENOENT, errno.ENOTDIR):
        raise ObjectNotFound(key) from None
    if code == errno.ELOOP:
        raise AccessDenied(f"object key {key!r} leads through a symbolic link") from None
    if code == errno.ENAMETOOLONG:
        raise InvalidName(f"object key {key!r} has a component over 255 bytes") from None
    if code in (errno.EISDIR, errno.ENOTEMPTY):
        raise InvalidName(f"object key {key!r} is the name of a folder") from None
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        raise AccessDenied(f"object {key} cannot be reached: {error.strerror}") from error
    raise StoreUnavailable(f"object {key} cannot be reached: {error.strerror}") from error


def _fail_to_write(key: str, error: OSError) -> NoReturn:
    if error.errno == errno.ENOTDIR:
        raise InvalidName(f"object key {key!r} lies below another object's key") from None
    if error.errno == errno.ENOENT:
        raise StoreUnavailable(f"object {key} lost its file while it was written") from error
    _fail(key, error)

"""Reading and writing whole files, and what their failures mean in Reef's errors."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from reef.errors import (
    AccessDenied,
    InvalidName,
    ObjectNotFound,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from reef.store.contract import Data, parts_of

_LARGEST_READ = 1 << 30
_MOST_BUFFERS = 512
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def read(descriptor: int, start: int, length: int) -> memoryview:
    """That many bytes of an open file from `start` on."""
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


def write_all(descriptor: int, data: Data) -> int:
    """Write everything, and return how many bytes that was."""
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


def refuse(key: str, error: OSError) -> NoReturn:
    """Say in Reef's words why an object could not be reached."""
    _refuse_name(key, error)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise ObjectNotFound(key) from None
    if error.errno in _DENIED:
        raise AccessDenied(f"object {key} cannot be reached: {error.strerror}") from error
    if error.errno in _FULL:  # a deletion takes a lock, and that is a file
        raise StoreFull(f"object {key} cannot be reached: {error.strerror}") from error
    raise StoreUnavailable(f"object {key} cannot be reached: {error.strerror}") from error


def refuse_write(key: str, error: OSError) -> NoReturn:
    """Say in Reef's words why an object was not written, before it had its name."""
    _refuse_name(key, error)
    if error.errno == errno.ENOTDIR:
        raise InvalidName(f"object key {key!r} lies below another object's key") from None
    if error.errno == errno.ENOENT:
        raise StoreUnavailable(f"object {key} lost its file while it was written") from error
    if error.errno in _FULL:
        raise StoreFull(f"object {key} was not written: {error.strerror}") from error
    if error.errno in _DENIED:
        raise AccessDenied(f"object {key} was not written: {error.strerror}") from error
    if error.errno == errno.EFBIG:
        raise StoreError(f"object {key} was not written: {error.strerror}") from error
    raise StoreUnavailable(f"object {key} was not written: {error.strerror}") from error


def _refuse_name(key: str, error: OSError) -> None:
    if error.errno == errno.ELOOP:
        link = f" ({error.filename})" if error.filename else ""
        raise AccessDenied(f"object key {key!r} leads through a symbolic link{link}") from None
    if error.errno == errno.ENAMETOOLONG:
        raise InvalidName(f"object key {key!r} has a component over 255 bytes") from None
    if error.errno in (errno.EISDIR, errno.ENOTEMPTY):
        raise InvalidName(f"object key {key!r} is the name of a folder") from None

"""The files of a folder in the order in which a bucket lists its keys.

A bucket sorts whole keys: "a-b" comes before "a/c", and "a0" after it. Sorting the names of
each folder, with a slash behind those that are folders themselves, gives just that order.

Folders are read through their open descriptors, so that a link in the way is never followed: it
leads out of the bucket, and what it shows are no objects of this one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from stat import S_ISREG

from reef.store.directories import Directories, Directory

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def walk(
    directories: Directories, prefix: str, start_after: str, *, hidden: str
) -> Iterator[tuple[str, os.stat_result]]:
    """Keys and status of the files whose key has the prefix, each folder read when reached."""
    folder = prefix.rpartition("/")[0]
    if _is_possible(folder):
        folder = f"{folder}/" if folder else ""
        yield from _walk(directories, folder, prefix, start_after, hidden)


def folders_in(directories: Directories, prefix: str, *, hidden: str) -> list[str]:
    """The folders directly below a prefix that hold at least one file, sorted."""
    if not _is_possible(prefix.removesuffix("/")):
        return []
    return sorted(
        name[:-1]
        for name in _entries(directories, prefix, hidden)[1]
        if name.endswith("/")
        and next(_walk(directories, prefix + name, prefix + name, "", hidden), None) is not None
    )


def _is_possible(folder: str) -> bool:
    """Whether it could be a folder of the bucket at all: not one above or beside it."""
    return not folder or not any(part in ("", ".", "..") for part in folder.split("/"))


def _walk(
    directories: Directories, folder: str, prefix: str, start_after: str, hidden: str
) -> Iterator[tuple[str, os.stat_result]]:
    directory, names = _entries(directories, folder, hidden)
    for name in names:
        key = folder + name
        if not key.startswith(prefix):
            continue
        if name.endswith("/"):
            # All its keys start with `key`: they lie on one side of `start_after` unless it
            # starts so too.
            if key > start_after or start_after.startswith(key):
                yield from _walk(directories, key, prefix, start_after, hidden)
        elif key > start_after:
            assert directory is not None
            try:
                status = os.stat(name, dir_fd=directory.descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if S_ISREG(status.st_mode):
                yield key, status


def _entries(
    directories: Directories, folder: str, hidden: str
) -> tuple[Directory | None, list[str]]:
    """A folder, and the sorted names in it, with a slash behind those of folders."""
    try:
        directory = directories.find(folder)
        # A descriptor of its own: readers of one would share their place in the folder.
        descriptor = os.open(".", _READ, dir_fd=directory.descriptor)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None, []
        raise
    found: list[str] = []
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if folder or entry.name != hidden:
                        found.append(f"{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    found.append(entry.name)
    finally:
        os.close(descriptor)
    found.sort()
    return directory, found

"""The files of a folder in the order in which a bucket lists its keys.

A bucket sorts whole keys: "a-b" comes before "a/c", and "a0" after it. Sorting the names of
each folder, with a slash behind those that are folders themselves, gives just that order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


def walk(
    root: str, prefix: str, start_after: str, *, hidden: str
) -> Iterator[tuple[str, os.stat_result]]:
    """Keys and status of the files whose key has the prefix, each folder read when reached."""
    folder = prefix.rpartition("/")[0]
    yield from _walk(root, f"{folder}/" if folder else "", prefix, start_after, hidden)


def folders_in(root: str, prefix: str, *, hidden: str) -> list[str]:
    """The folders directly below a prefix that hold at least one file, sorted."""
    return sorted(
        name[:-1]
        for name, _ in _entries(root, prefix, hidden)
        if name.endswith("/")
        and next(_walk(root, prefix + name, prefix + name, "", hidden), None) is not None
    )


def _walk(
    root: str, folder: str, prefix: str, start_after: str, hidden: str
) -> Iterator[tuple[str, os.stat_result]]:
    for name, entry in _entries(root, folder, hidden):
        key = folder + name
        if not key.startswith(prefix):
            continue
        if name.endswith("/"):
            # All its keys start with `key`: they lie on one side of `start_after` unless it
            # starts so too.
            if key > start_after or start_after.startswith(key):
                yield from _walk(root, key, prefix, start_after, hidden)
        elif key > start_after:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield key, status


def _entries(root: str, folder: str, hidden: str) -> list[tuple[str, os.DirEntry[str]]]:
    path = f"{root}/{folder}"
    # A link in the way leads out of the bucket; what it shows are no objects of this one.
    if folder and os.path.realpath(path) != path.removesuffix("/"):
        return []
    found: list[tuple[str, os.DirEntry[str]]] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if folder or entry.name != hidden:
                        found.append((f"{entry.name}/", entry))
                elif entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found.sort(key=_first)
    return found


def _first(pair: tuple[str, os.DirEntry[str]]) -> str:
    return pair[0]

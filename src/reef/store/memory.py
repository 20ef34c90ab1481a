"""A bucket in this process's memory."""

from __future__ import annotations

import builtins
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock

from reef.environment import SYSTEM, Environment
from reef.errors import AlreadyExists, ObjectNotFound, PreconditionFailed
from reef.store.contract import Blob, Data, ObjectInfo, Store, as_bytes, check_key

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified: float
    version: str


class MemoryStore(Store):
    """Objects live as long as the store does. Versions count the writes of the whole store."""

    def __init__(self, environment: Environment = SYSTEM, *, name: str = "") -> None:
        self._environment = environment
        self._name = name
        self._lock = Lock()
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []
        self._writes = 0

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    @property
    def is_local(self) -> bool:
        return True

    def get(self, key: str) -> Blob:
        found = self._find(key)
        return Blob(memoryview(found.data), found.version)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        return memoryview(self._find(key).data)[start : start + length]

    def put(self, key: str, data: Data) -> str:
        content = bytes(as_bytes(data))
        with self._lock:
            return self._write(check_key(key), content)

    def create(self, key: str, data: Data) -> str:
        content = bytes(as_bytes(data))
        with self._lock:
            if key in self._objects:
                raise AlreadyExists(key)
            return self._write(check_key(key), content)

    def replace(self, key: str, data: Data, version: str) -> str:
        content = bytes(as_bytes(data))
        with self._lock:
            found = self._objects.get(check_key(key))
            if found is None or found.version != version:
                raise PreconditionFailed(key)
            return self._write(key, content)

    def head(self, key: str) -> ObjectInfo:
        found = self._find(key)
        return ObjectInfo(key, len(found.data), found.modified, found.version)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        last = start_after
        while True:
            with self._lock:
                keys = self._keys
                first = max(bisect_left(keys, prefix), bisect_right(keys, last) if last else 0)
                page = [
                    ObjectInfo(key, len(found.data), found.modified, found.version)
                    for key in keys[first : first + _PAGE]
                    if key.startswith(prefix) and (found := self._objects[key])
                ]
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1].key

    def list_folders(self, prefix: str) -> builtins.list[str]:
        folders: list[str] = []
        with self._lock:
            keys = self._keys
            position = bisect_left(keys, prefix)
            while position < len(keys) and keys[position].startswith(prefix):
                name, slash, _ = keys[position][len(prefix) :].partition("/")
                if slash:
                    folders.append(name)
                    # "0" is the character after the slash: past every key of this folder.
                    position = bisect_left(keys, f"{prefix}{name}0", position)
                else:
                    position += 1
        return sorted(folders)

    def delete(self, key: str) -> None:
        check_key(key)
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def _find(self, key: str) -> _Object:
        found = self._objects.get(key)
        if found is None:
            raise ObjectNotFound(check_key(key))
        return found

    def _write(self, key: str, content: bytes) -> str:
        self._writes += 1
        if key not in self._objects:
            insort(self._keys, key)
        version = str(self._writes)
        self._objects[key] = _Object(content, self._environment.now(), version)
        return version

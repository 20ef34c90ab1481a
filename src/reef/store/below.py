"""A prefix of a store, seen as a store."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

from reef.store.contract import Blob, Data, ObjectInfo, Result, Store, check_key


class StoreBelow(Store):
    """Every key of it is the parent's key after the prefix. Errors name the parent's key."""

    def __init__(self, parent: Store, prefix: str) -> None:
        folder = check_key(prefix.removesuffix("/")) + "/"
        self._parent: Store = parent
        self._prefix: str = folder
        if isinstance(parent, StoreBelow):
            self._parent = parent._parent
            self._prefix = parent._prefix + folder

    @property
    def url(self) -> str:
        address, mark, query = self._parent.url.partition("?")
        return f"{address.removesuffix('/')}/{self._prefix.removesuffix('/')}{mark}{query}"

    @property
    def is_local(self) -> bool:
        return self._parent.is_local

    @property
    def has_steady_clock(self) -> bool:
        return self._parent.has_steady_clock

    @property
    def can_replace(self) -> bool:
        return self._parent.can_replace

    def get(self, key: str) -> Blob:
        return self._parent.get(self._prefix + key)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        return self._parent.get_range(self._prefix + key, start, length)

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        return self._parent.get_ranges(self._prefix + key, ranges)

    def put(self, key: str, data: Data) -> str:
        return self._parent.put(self._prefix + key, data)

    def create(self, key: str, data: Data) -> str:
        return self._parent.create(self._prefix + key, data)

    def replace(self, key: str, data: Data, version: str) -> str:
        return self._parent.replace(self._prefix + key, data, version)

    def head(self, key: str) -> ObjectInfo:
        return self._own(self._parent.head(self._prefix + key))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        after = self._prefix + start_after if start_after else ""
        return map(self._own, self._parent.list(self._prefix + prefix, start_after=after))

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._parent.list_folders(self._prefix + prefix)

    def delete(self, key: str) -> None:
        self._parent.delete(self._prefix + key)

    def delete_many(self, keys: Iterable[str]) -> None:
        self._parent.delete_many([self._prefix + key for key in keys])

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        return self._parent._submit(call)

    def close(self) -> None:
        """Nothing: the parent holds what there is to let go of."""

    def _own(self, info: ObjectInfo) -> ObjectInfo:
        return ObjectInfo(info.key[len(self._prefix) :], info.size, info.modified, info.version)

"""A store that counts what is asked of it."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from threading import Lock

from reef.store.contract import Blob, Data, ObjectInfo, Result, Store, size_of

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests of each kind were made, failed ones included, and bytes moved."""

    get: int = 0
    get_range: int = 0
    put: int = 0
    create: int = 0
    replace: int = 0
    head: int = 0
    list: int = 0
    delete: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def reads(self) -> int:
        """Requests that read: get, get_range, head and list."""
        return self.get + self.get_range + self.head + self.list

    @property
    def writes(self) -> int:
        """Requests that write: put, create and replace."""
        return self.put + self.create + self.replace

    @property
    def requests(self) -> int:
        """All requests."""
        return self.reads + self.writes + self.delete

    def __sub__(self, earlier: Counts) -> Counts:
        return Counts(
            *(getattr(self, each.name) - getattr(earlier, each.name) for each in fields(Counts))
        )


class CountingStore(Store):
    """Passes everything on. A range of `get_ranges` is a request; so is each 1000 keys listed."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._lock = Lock()
        self._counts: dict[str, int] = {}

    def counts(self) -> Counts:
        """What was counted since the start or the last `reset`."""
        with self._lock:
            return Counts(**self._counts)

    def reset(self) -> Counts:
        """Count from zero again; returns what had been counted."""
        with self._lock:
            counted, self._counts = self._counts, {}
        return Counts(**counted)

    def _count(self, kind: str, requests: int = 1, *, read: int = 0, written: int = 0) -> None:
        with self._lock:
            counts = self._counts
            counts[kind] = counts.get(kind, 0) + requests
            if read:
                counts["bytes_read"] = counts.get("bytes_read", 0) + read
            if written:
                counts["bytes_written"] = counts.get("bytes_written", 0) + written

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def is_local(self) -> bool:
        return self._inner.is_local

    @property
    def has_steady_clock(self) -> bool:
        return self._inner.has_steady_clock

    @property
    def can_replace(self) -> bool:
        return self._inner.can_replace

    def get(self, key: str) -> Blob:
        self._count("get")
        blob = self._inner.get(key)
        self._count("get", 0, read=blob.data.nbytes)
        return blob

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        self._count("get_range")
        data = self._inner.get_range(key, start, length)
        self._count("get_range", 0, read=data.nbytes)
        return data

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        self._count("get_range", len(ranges))
        found = self._inner.get_ranges(key, ranges)
        self._count("get_range", 0, read=sum(data.nbytes for data in found))
        return found

    def put(self, key: str, data: Data) -> str:
        self._count("put", written=size_of(data))
        return self._inner.put(key, data)

    def create(self, key: str, data: Data) -> str:
        self._count("create", written=size_of(data))
        return self._inner.create(key, data)

    def replace(self, key: str, data: Data, version: str) -> str:
        self._count("replace", written=size_of(data))
        return self._inner.replace(key, data, version)

    def head(self, key: str) -> ObjectInfo:
        self._count("head")
        return self._inner.head(key)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._count("list")
        for position, info in enumerate(self._inner.list(prefix, start_after=start_after)):
            if position and position % _PAGE == 0:
                self._count("list")
            yield info

    def list_folders(self, prefix: str) -> builtins.list[str]:
        self._count("list")
        return self._inner.list_folders(prefix)

    def delete(self, key: str) -> None:
        self._count("delete")
        self._inner.delete(key)

    def delete_many(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        self._count("delete", len(doomed))
        self._inner.delete_many(doomed)

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        return self._inner._submit(call)

    def close(self) -> None:
        self._inner.close()

"""A process's way to the bucket: every request gives way to the others, and may meet its fate."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial

from reef.store.contract import Blob, Data, ObjectInfo, Result, Store, as_bytes
from simulation.bucket import Bucket
from simulation.world import Branch, Crash, Process


class SimulatedStore(Store):
    """The bucket as one process sees it. No thread is ever used."""

    def __init__(self, bucket: Bucket, process: Process) -> None:
        self._bucket = bucket
        self._process = process

    @property
    def url(self) -> str:
        return "memory://simulated"

    @property
    def can_replace(self) -> bool:
        return False

    def _request(self, kind: str, key: str, effect: Callable[[], Result]) -> Result:
        process = self._process
        if process.dead:
            raise Crash
        return process.world.request(process, kind, key, effect)

    def get(self, key: str) -> Blob:
        found = self._request("get", key, partial(self._bucket.get, key))
        return Blob(memoryview(found.data), found.version)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        found = self._request("get", key, partial(self._bucket.get, key))
        return memoryview(found.data)[start : start + length]

    def put(self, key: str, data: Data) -> str:
        whole = bytes(as_bytes(data))
        attempt = self._process.attempt
        return self._request("put", key, lambda: self._bucket.put(key, whole, attempt))

    def create(self, key: str, data: Data) -> str:
        whole = bytes(as_bytes(data))
        attempt = self._process.attempt
        return self._request("create", key, lambda: self._bucket.create(key, whole, attempt))

    def replace(self, key: str, data: Data, version: str) -> str:
        raise AssertionError("nothing here may need more of a bucket than put-if-absent")

    def head(self, key: str) -> ObjectInfo:
        found = self._request("head", key, partial(self._bucket.get, key))
        return ObjectInfo(key, len(found.data), found.modified, found.version)

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        after = start_after
        count = self._process.world.pages()
        while True:
            page = self._request("list", prefix, partial(self._page, prefix, after, count))
            yield from page
            if len(page) < count:
                return
            after = page[-1].key

    def _page(self, prefix: str, after: str, count: int) -> builtins.list[ObjectInfo]:
        objects = self._bucket.objects
        page = []
        for key in self._bucket.page(prefix, after, count):
            data, modified, version = objects[key]
            page.append(ObjectInfo(key, len(data), modified, version))
        return page

    def list_folders(self, prefix: str) -> builtins.list[str]:
        found = self._request("list", prefix, partial(self._page, prefix, "", 1_000_000))
        return sorted({info.key[len(prefix) :].partition("/")[0] for info in found})

    def delete(self, key: str) -> None:
        self._request("delete", key, partial(self._bucket.delete, key))

    def delete_many(self, keys: Iterable[str]) -> None:
        self.concurrently([partial(self.delete, key) for key in keys])

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        if self._process.dead:
            raise Crash
        return Branch(self._process, call)

    def close(self) -> None:
        """Nothing is held."""

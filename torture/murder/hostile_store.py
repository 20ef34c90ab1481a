"""A store that kills its own process at a crash point, dawdles, or is out of order for a while."""

from __future__ import annotations

import builtins
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from random import Random
from threading import Lock, current_thread

import msgspec

from reef.errors import StoreUnavailable
from reef.store.contract import Blob, Data, ObjectInfo, Result, Store
from torture.murder.crash_points import BEFORE, BY_NAME, Seen

# The longer name first: the other is how it begins.
_OWN_UPKEEP = {"reef-upkeep-long": "own compact", "reef-upkeep": "own fold"}


class Hostility(msgspec.Struct, frozen=True):
    """How a store treats one process. Times are of the machine's monotonic clock.

    `crash` names the crash point to die at, the `nth` time it is met. Of all requests, a share of
    `slow` takes up to `slowness` seconds longer. Between the bounds of each `outages`, a share
    of requests fails: half of those that write happened all the same. Of the log's objects a
    share of `lies` is acknowledged and not written: so it can be seen that this is found out.
    """

    crash: str = ""
    nth: int = 1
    slow: float = 0.0
    slowness: float = 0.3
    outages: tuple[tuple[float, float, float], ...] = ()
    lies: float = 0.0
    seed: int = 0


class HostileStore(Store):
    """Passes everything on to `inner`, if it lives to do so.

    `dying` is told the name of the crash point before the process ends.
    """

    def __init__(self, inner: Store, hostility: Hostility, dying: Callable[[str], None]) -> None:
        self._inner = inner
        self._hostility = hostility
        self._dying = dying
        self._point = BY_NAME[hostility.crash] if hostility.crash else None
        self._left = hostility.nth
        self._random = Random(hostility.seed)
        self._lock = Lock()
        self._phase = ""
        self._seen: Seen = Counter()

    def begin(self, phase: str) -> None:
        """A pass of that phase begins: the requests from here on belong to it."""
        with self._lock:
            self._phase = phase
            self._seen.clear()

    def _do(self, kind: str, key: str, call: Callable[[], Result]) -> Result:
        self._misbehave()
        struck = False
        if self._point is not None:
            struck = self._strikes(kind, key)
            if struck and self._point.when == BEFORE:
                self._die()
        lost = self._is_out()
        if lost and self._random.random() < 0.5:
            raise StoreUnavailable("the store is out of order on purpose")
        result = call()
        if struck:
            self._die()
        if lost:
            raise StoreUnavailable("the answer was lost on purpose")
        return result

    def _strikes(self, kind: str, key: str) -> bool:
        assert self._point is not None
        folder = (*key.split("/"), "", "")[2]
        name = current_thread().name
        own = next((phase for start, phase in _OWN_UPKEEP.items() if name.startswith(start)), None)
        with self._lock:
            # What the upkeep does in threads of its own is counted with everything else.
            struck = self._point.meets(own or self._phase, kind, folder, self._seen)
            self._seen[kind, folder] += 1
            if struck:
                self._left -= 1
            return struck and self._left <= 0

    def _die(self) -> None:
        assert self._point is not None
        self._dying(self._point.name)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()

    def _misbehave(self) -> None:
        if self._hostility.slow and self._random.random() < self._hostility.slow:
            time.sleep(self._random.random() * self._hostility.slowness)

    def _is_out(self) -> bool:
        if not self._hostility.outages:
            return False
        now = time.monotonic()
        return any(
            start <= now < end and self._random.random() < share
            for start, end, share in self._hostility.outages
        )

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
        return self._do("get", key, lambda: self._inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        return self._do("range", key, lambda: self._inner.get_range(key, start, length))

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        return self._do("range", key, lambda: self._inner.get_ranges(key, ranges))

    def put(self, key: str, data: Data) -> str:
        return self._do("put", key, lambda: self._inner.put(key, data))

    def create(self, key: str, data: Data) -> str:
        if "/wal/" in key and self._random.random() < self._hostility.lies:
            return "a version that never was"
        return self._do("create", key, lambda: self._inner.create(key, data))

    def replace(self, key: str, data: Data, version: str) -> str:
        return self._do("replace", key, lambda: self._inner.replace(key, data, version))

    def head(self, key: str) -> ObjectInfo:
        return self._do("head", key, lambda: self._inner.head(key))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter(
            self._do(
                "list", prefix, lambda: list(self._inner.list(prefix, start_after=start_after))
            )
        )

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._do("list", prefix, lambda: self._inner.list_folders(prefix))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        doomed = list(keys)
        if self._point is not None and self._point.kind == "delete":
            for key in doomed:
                self.delete(key)
        elif doomed:
            self._do("delete", doomed[0], lambda: self._inner.delete_many(doomed))

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        return self._inner._submit(call)

    def close(self) -> None:
        self._inner.close()

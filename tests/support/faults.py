"""A store that fails on command, and a clock that is moved by hand."""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock, RLock

from reef.environment import Environment
from reef.errors import StoreUnavailable
from reef.store.contract import Blob, Data, ObjectInfo, Result, Store

Match = Callable[[str, str], bool]
"""Whether a request of this kind on this key is meant."""

MUTATING = ("put", "create", "replace", "delete")


class Crash(BaseException):
    """The process died here. No handler of `Exception` sees it."""


def mutating(kind: str, key: str) -> bool:
    """Every request that changes the bucket."""
    return kind in MUTATING


def request(kind: str, part: str = "") -> Match:
    """Requests of one kind on keys that contain a text."""
    return lambda asked, key: asked == kind and part in key


@dataclass
class _Fault:
    match: Match
    nth: int
    times: int
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    twice: bool = False
    damaging: bool = False
    seen: int = 0

    def meets(self, kind: str, key: str) -> bool:
        if not self.match(kind, key):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclass
class _State:
    faults: list[_Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    dead: bool = False


class FaultyStore(Store):
    """Passes everything on to `inner`, except where a fault was planted.

    Faults meet the n-th request that matches; each is spent when it has struck. After a crash
    every request raises `Crash`: a dead process asks for nothing. Deletes go out one by one.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._state = _State()

    @property
    def requests(self) -> builtins.list[tuple[str, str]]:
        """The mutating requests that were begun, in order."""
        return list(self._state.requests)

    @property
    def dead(self) -> bool:
        """Whether a crash has struck."""
        return self._state.dead

    def crash_before(self, match: Match = mutating, nth: int = 1) -> None:
        """Die instead of making the request."""
        self._plant(match, nth, before=self._die)

    def crash_after(self, match: Match = mutating, nth: int = 1) -> None:
        """Die when the request has been made, before its answer is seen."""
        self._plant(match, nth, after=self._die)

    def refuse(self, match: Match = mutating, nth: int = 1, times: int = 1) -> None:
        """`StoreUnavailable`, and nothing happened."""
        self._plant(match, nth, times, before=_unavailable)

    def lose_answer(self, match: Match = mutating, nth: int = 1, times: int = 1) -> None:
        """`StoreUnavailable`, though it happened."""
        self._plant(match, nth, times, after=_unavailable)

    def duplicate(self, match: Match = mutating, nth: int = 1) -> None:
        """Make the request twice, as a client library that retries by itself does: the answer
        is that of the second."""
        self._plant(match, nth, twice=True)

    def pause_before(self, match: Match, hook: Callable[[], None], nth: int = 1) -> None:
        """Let others run before the request."""
        self._plant(match, nth, before=hook)

    def pause_after(self, match: Match, hook: Callable[[], None], nth: int = 1) -> None:
        """Let others run after the request, before its answer is seen."""
        self._plant(match, nth, after=hook)

    def damage(self, match: Match, nth: int = 1, times: int = 1) -> None:
        """Flip a bit of what is read, on its way here."""
        self._plant(match, nth, times, damaging=True)

    def _plant(
        self,
        match: Match,
        nth: int,
        times: int = 1,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        twice: bool = False,
        damaging: bool = False,
    ) -> None:
        self._state.faults.append(_Fault(match, nth, times, before, after, twice, damaging))

    def _die(self) -> None:
        self._state.dead = True
        raise Crash

    def _do(self, kind: str, key: str, call: Callable[[], Result]) -> Result:
        state = self._state
        if state.dead:
            raise Crash
        with state.lock:
            if kind in MUTATING:
                state.requests.append((kind, key))
            struck = [fault for fault in state.faults if fault.meets(kind, key)]
        for fault in struck:
            fault.before()
        result = call()
        if any(fault.twice for fault in struck):
            result = call()
        for fault in struck:
            fault.after()
            if fault.damaging and isinstance(result, Blob):
                return Blob(_damaged(result.data), result.version)  # type: ignore[return-value]
        return result

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def has_steady_clock(self) -> bool:
        return self.inner.has_steady_clock

    @property
    def can_replace(self) -> bool:
        return self.inner.can_replace

    def get(self, key: str) -> Blob:
        return self._do("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        return self._do("get_range", key, lambda: self.inner.get_range(key, start, length))

    def put(self, key: str, data: Data) -> str:
        return self._do("put", key, lambda: self.inner.put(key, data))

    def create(self, key: str, data: Data) -> str:
        return self._do("create", key, lambda: self.inner.create(key, data))

    def replace(self, key: str, data: Data, version: str) -> str:
        return self._do("replace", key, lambda: self.inner.replace(key, data, version))

    def head(self, key: str) -> ObjectInfo:
        return self._do("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter(
            self._do("list", prefix, lambda: list(self.inner.list(prefix, start_after=start_after)))
        )

    def list_folders(self, prefix: str) -> builtins.list[str]:
        return self._do("list", prefix, lambda: self.inner.list_folders(prefix))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        return self.inner._submit(call)

    def close(self) -> None:
        self.inner.close()


def _damaged(data: memoryview) -> memoryview:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return memoryview(changed)


def _unavailable() -> None:
    raise StoreUnavailable("the answer was lost on purpose")


class Clock:
    """Time that passes only when it is told to; sleeping is telling it to."""

    def __init__(self, start: float = 1_700_000_000.0, seed: int = 0) -> None:
        self._time = start
        self._lock = RLock()
        self._random = random.Random(seed)

    def now(self) -> float:
        """Seconds since 1970, and, for it never goes back, monotonic."""
        return self._time

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self._time += seconds

    def entropy(self, count: int) -> bytes:
        """Random bytes, the same for the same seed."""
        with self._lock:
            return self._random.randbytes(count)

    def environment(self) -> Environment:
        """An environment whose time, patience and chance are this clock's."""
        return Environment(self.now, self.now, self.entropy, self.advance)

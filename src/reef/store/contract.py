"""What Reef asks of a bucket.

Keys are relative, slash-separated, and made of the characters that `check_key` admits.
Objects are immutable to readers: a key is seen whole or not at all, and once a `put` or
`create` has returned, every later `get` and `list` sees it.

The contract of conditional writes:

- `create` writes only if the key is free. Of any number of racing creates at most one
  returns. A create that raises `AlreadyExists` may nevertheless be the one that won, when
  its first answer was lost and a retry met its own object, and may rarely be raised for a
  key that turns out to be free (a store that answers 409 to a race). Callers that care
  read the object and look for their own mark.
- `replace` writes only over the version it names; otherwise `PreconditionFailed`.
- Any write that raises `StoreUnavailable` may have happened, or may yet happen.
"""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock, local
from typing import Protocol, TypeVar

from reef.errors import InvalidName, StoreError

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

Buffer = bytes | bytearray | memoryview
Data = Buffer | Sequence[Buffer]
"""What may be written: one buffer, or several that are written one after the other."""

_PARALLEL_REQUESTS = 32
_LONGEST_KEY = 900


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it. `modified` is the bucket's own clock, in seconds."""

    key: str
    size: int
    modified: float
    version: str


@dataclass(frozen=True, slots=True)
class Blob:
    """An object's bytes, and the version that `replace` takes."""

    data: memoryview
    version: str


class Pending(Protocol[Result_co]):
    """A request under way."""

    def result(self) -> Result_co:
        """Wait for it; what it returned, or what it raised."""


class _Inside(local):
    pool = False


# A request that itself asks for several runs them one after the other: were it to wait for
# threads of the pool it occupies, enough of them would wait for each other for ever.
_inside = _Inside()


def _run_inside(call: Callable[[], Result]) -> Result:
    _inside.pool = True
    return call()


def _run_at_once(call: Callable[[], Result]) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future


class Store(ABC):
    """A bucket, or a prefix of one. Safe to use from many threads."""

    _pool: ThreadPoolExecutor | None = None
    _pool_lock = Lock()

    @property
    @abstractmethod
    def url(self) -> str:
        """The address that `reef.connect` would take, without secrets."""

    @property
    def is_local(self) -> bool:
        """Whether requests are so quick that handing one to another thread costs more."""
        return False

    @property
    def has_steady_clock(self) -> bool:
        """Whether `modified` comes from a service's own clock, which nobody steps by hand."""
        return True

    @property
    def can_replace(self) -> bool:
        """Whether `replace` works on this store."""
        return True

    @abstractmethod
    def get(self, key: str) -> Blob:
        """The whole object, or `ObjectNotFound`."""

    @abstractmethod
    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """Those bytes of the range that exist: short at the object's end, empty past it."""

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        """Several (start, length) ranges, requested together, one request each."""
        return self.concurrently(
            [partial(self.get_range, key, start, length) for start, length in ranges]
        )

    @abstractmethod
    def put(self, key: str, data: Data) -> str:
        """Write unconditionally and return the new version. Large objects go in parts."""

    @abstractmethod
    def create(self, key: str, data: Data) -> str:
        """Write if absent and return the version, or `AlreadyExists`."""

    @abstractmethod
    def replace(self, key: str, data: Data, version: str) -> str:
        """Overwrite exactly that version and return the new one, or `PreconditionFailed`."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Size, time and version without the bytes, or `ObjectNotFound`."""

    def has_lost(self, key: str) -> bool:
        """Whether an object that was there is gone, asked only where time proves nothing.

        Collectors delete slots and generations in order, and never the newest. So whoever won one
        and finds the one before it gone may have won it for the second time. Where the clock is
        steady the retention rules that out for those who looked at the root a moment ago.
        """
        if self.has_steady_clock:
            return False
        try:
            self.head(key)
        except StoreError:  # or nobody can tell
            return True
        return False

    @abstractmethod
    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key starts with the prefix, in key order (by code point), lazily.

        With `start_after`, only keys that sort after it; it need not exist.
        """

    @abstractmethod
    def list_folders(self, prefix: str) -> builtins.list[str]:
        """The distinct next path components below a prefix that ends in a slash, sorted.

        A request a thousand of them, and one more at most. Where there are more than a thousand
        objects, a service that keeps real folders may show one that was emptied a moment ago.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; it is no error if it is not there."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remove many objects, in requests as large and as parallel as the store allows."""
        self.concurrently([partial(self.delete, key) for key in keys])

    def start(self, call: Callable[[], Result]) -> Pending[Result]:
        """Begin a request whose result is wanted later. It runs whether or not it is waited for."""
        return self._submit(call)

    def concurrently(self, calls: Sequence[Callable[[], Result]]) -> builtins.list[Result]:
        """Run independent requests together; results in order, the first failure raised.

        When it returns or raises, none of them is still under way; after a failure, those
        that had not begun never do.
        """
        if len(calls) < 2 or _inside.pool or self.is_local:
            return [call() for call in calls]
        # The caller's own thread takes the first: one hand-over less.
        others = [self._submit(call) for call in calls[1:]]
        try:
            return [calls[0](), *(other.result() for other in others)]
        except BaseException:
            wait([other for other in others if not other.cancel()])
            raise

    def without_retries(self) -> Store:
        """The same bucket, for requests whose failure is to be known at once."""
        return self

    def below(self, prefix: str) -> Store:
        """The objects under a prefix, as a store of their own that shares this one's threads.

        The prefix names a folder, with or without the last slash. Closing the view does nothing.
        """
        from reef.store.below import StoreBelow

        return StoreBelow(self, prefix)

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        if _inside.pool:
            return _run_at_once(call)
        with self._pool_lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_PARALLEL_REQUESTS, "reef-store")
            # Once the main thread has ended pools take nothing any more, but others may go on.
            with suppress(RuntimeError):
                return self._pool.submit(_run_inside, call)
        return _run_at_once(call)

    def close(self) -> None:
        """Let go of threads and connections. The bucket is not touched."""
        with self._pool_lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


def check_key(key: str) -> str:
    """The key itself, or `InvalidName` if it could not be a key on every store."""
    if not key or len(key.encode("utf-8", "surrogatepass")) > _LONGEST_KEY:
        raise InvalidName(f"an object key must have 1 to {_LONGEST_KEY} bytes")
    if not key.isprintable() or "\\" in key:
        raise InvalidName(f"object key {key!r} has characters that not every store takes")
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise InvalidName(f"object key {key!r} has an empty or relative path component")
    return key


def as_bytes(data: Data) -> Buffer:
    """One buffer out of one or several."""
    if isinstance(data, bytes | bytearray | memoryview):
        return data
    return data[0] if len(data) == 1 else b"".join(data)


def parts_of(data: Data) -> Sequence[Buffer]:
    """The buffers that a write carries."""
    return (data,) if isinstance(data, bytes | bytearray | memoryview) else data


def size_of(data: Data) -> int:
    """How many bytes a write carries."""
    if isinstance(data, memoryview):
        return data.nbytes
    if isinstance(data, bytes | bytearray):
        return len(data)
    return sum(size_of(part) for part in data)

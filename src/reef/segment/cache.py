"""The cache that readers share: parsed tails and row groups, within a limit of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Protocol


class Cacheable(Protocol):
    """Anything that knows how much memory it holds; the answer must not change."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""


class BlockCache:
    """At most `capacity_bytes` of values. Safe to use from many threads."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity = capacity_bytes
        self._entries: OrderedDict[Hashable, Any] = OrderedDict()
        self._used = 0
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """The value, now the most recently used, or None."""
        # Each of the two calls is atomic, so the path of a hit takes no lock.
        entry = self._entries.get(key)
        if entry is not None:
            # Another thread may have dropped it meanwhile; a `with` would cost more than the rest.
            try:  # noqa: SIM105
                self._entries.move_to_end(key)
            except KeyError:
                pass
        return entry

    def peek(self, key: Hashable) -> Any:
        """The value or None, without making it more recent."""
        return self._entries.get(key)

    def put(self, key: Hashable, value: Cacheable) -> None:
        """Keep a value, dropping the least recently used ones; not one larger than the cache."""
        size = value.nbytes
        with self._lock:
            replaced = self._entries.pop(key, None)
            if replaced is not None:
                self._used -= replaced.nbytes
            if size > self.capacity:
                return
            self._entries[key] = value
            self._used += size
            while self._used > self.capacity:
                _, dropped = self._entries.popitem(last=False)
                self._used -= dropped.nbytes

    def discard(self, key: Hashable) -> None:
        """Forget a value, if it is there."""
        with self._lock:
            dropped = self._entries.pop(key, None)
            if dropped is not None:
                self._used -= dropped.nbytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._used = 0

    @property
    def used(self) -> int:
        """Bytes held now."""
        return self._used

    def __len__(self) -> int:
        return len(self._entries)

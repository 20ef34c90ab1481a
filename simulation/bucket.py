"""The bucket: objects by key, stamped with true time, and somebody who sees every change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import NamedTuple, Protocol
from zlib import crc32

from reef.errors import AlreadyExists, ObjectNotFound


class Object(NamedTuple):
    """An object as it lies in the bucket."""

    data: bytes
    modified: float
    version: str


class Observer(Protocol):
    """Is told of every change the moment it happens."""

    def created(self, key: str, data: bytes, attempt: object) -> None:
        """An object appeared under a key that was free."""

    def overwritten(self, key: str, same: bool) -> None:
        """A put met an object in its place: the same, or another."""

    def deleted(self, key: str) -> None:
        """An object is gone."""


class Bucket:
    """What a store does, at once and without fail."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.objects: dict[str, Object] = {}
        self.keys: list[str] = []
        self.observer: Observer | None = None
        self._now = now
        self.fingerprint = 0

    def copy(self, now: Callable[[], float]) -> Bucket:
        """The same objects, to go another way."""
        other = Bucket(now)
        other.objects = dict(self.objects)
        other.keys = list(self.keys)
        other.fingerprint = self.fingerprint
        return other

    def get(self, key: str) -> Object:
        """The object, or `ObjectNotFound`."""
        found = self.objects.get(key)
        if found is None:
            raise ObjectNotFound(key)
        return found

    def put(self, key: str, data: bytes, attempt: object = None) -> str:
        """Write, whatever is there."""
        before = self.objects.get(key)
        if before is None:
            insort(self.keys, key)
        else:
            self.fingerprint ^= hash((key, before))
        made = Object(data, self._now(), f"{crc32(data):08x}")
        self.objects[key] = made
        self.fingerprint ^= hash((key, made))
        if self.observer is not None:
            if before is None:
                self.observer.created(key, data, attempt)
            else:
                self.observer.overwritten(key, before.data == data)
        return made.version

    def create(self, key: str, data: bytes, attempt: object = None) -> str:
        """Write if the key is free, or `AlreadyExists`."""
        if key in self.objects:
            raise AlreadyExists(key)
        return self.put(key, data, attempt)

    def delete(self, key: str) -> None:
        """Remove it, if it is there."""
        before = self.objects.pop(key, None)
        if before is not None:
            self.fingerprint ^= hash((key, before))
            del self.keys[bisect_left(self.keys, key)]
            if self.observer is not None:
                self.observer.deleted(key)

    def damage(self, key: str) -> None:
        """Let a byte of an object rot. Nobody sees it happen."""
        before = self.objects[key]
        middle = len(before.data) // 2
        rotten = bytes((before.data[middle] ^ 0xFF,))
        made = before._replace(data=before.data[:middle] + rotten + before.data[middle + 1 :])
        self.objects[key] = made
        self.fingerprint ^= hash((key, before)) ^ hash((key, made))

    def page(self, prefix: str, after: str, count: int) -> list[str]:
        """At most that many keys of a prefix, in order, behind the one given."""
        start = bisect_left(self.keys, prefix)
        if after >= prefix:
            start = bisect_right(self.keys, after)
        found = []
        for key in self.keys[start : start + count]:
            if not key.startswith(prefix):
                break
            found.append(key)
        return found

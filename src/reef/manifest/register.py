"""The register: read the newest root, publish the next one against it, one winner.

Generations are numbered objects, each won by put-if-absent. Beside them lies a hint, an
unconditional copy of some recent generation: whoever looks for the newest reads the hint and
lists only what came after it, so the cost does not grow with history. The hint may be old, or
damaged, or missing, and nothing but time is lost.

What a root says is the business of its type; where its generations lie is told by a layout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    CommitUncertain,
    ConcurrentPublication,
    Corruption,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
)
from reef.manifest.layout import Layout
from reef.manifest.root import Root
from reef.store.contract import ObjectInfo, Store

_ATTEMPTS = 64
_UNCERTAIN_ATTEMPTS = 6
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 1.0
_logger = logging.getLogger("reef")

R = TypeVar("R", bound=Root)
Edit = Callable[[R], R | None]
"""What a publication does: from a root to the next, or None if there is nothing to do. It is
given the root under the generation number that the next one will have. After a lost race it is
applied again to a newer root, so it must look at what it is given, and raise
`ConcurrentPublication` (or any other error) if it does not make sense any more."""


@dataclass(frozen=True, slots=True)
class Head(Generic[R]):
    """The newest root that could be read, and the highest generation number taken.

    They differ when the newest object is damaged. `confirmed` is when, on this process's own
    clock, this was known to be the newest.
    """

    root: R
    slot: int
    confirmed: float

    @property
    def manifest(self) -> R:
        """The root, as that of a namespace is called."""
        return self.root


class Register(Generic[R]):
    """The generations of a root, where `layout` says, below the store's prefix."""

    def __init__(
        self, store: Store, environment: Environment, publisher: str, layout: Layout[R]
    ) -> None:
        self.store = store
        self.environment = environment
        self.publisher = publisher
        self.layout = layout
        self._hint: tuple[bytes, R] | None = None

    def key(self, generation: int) -> str:
        """Where a generation lies."""
        return self.layout.key(generation)

    def read_generation(self, generation: int) -> R:
        """One generation; `ObjectNotFound` if it is not there, `Corruption` if damaged."""
        key = self.key(generation)
        root = self.layout.codec.decode(key, self.store.get(key).data)
        if root.generation != generation:
            raise Corruption(key, f"it says that it is generation {root.generation}")
        return root

    def generations(self, after: int = 0) -> list[tuple[int, ObjectInfo]]:
        """The generations that are in the bucket, oldest first."""
        found = []
        for info in self.store.list(self.layout.prefix, start_after=self.key(after)):
            generation = self.layout.generation_of(info.key)
            if generation is not None:
                found.append((generation, info))
        return found

    def read_hint(self) -> R | None:
        """The root that the hint holds: some generation, not necessarily the newest."""
        key = self.layout.hint
        if key is None:
            return None
        try:
            data = bytes(self.store.get(key).data)
            known = self._hint
            # Whoever follows the root meets the same bytes most of the time.
            if known is not None and known[0] == data:
                return known[1]
            root = self.layout.codec.decode(key, memoryview(data))
            self._hint = (data, root)
            return root
        except ObjectNotFound:
            return None
        except Corruption as damage:
            _logger.error("%s; looking for the newest generation without it", damage)
            return None

    def head(self) -> Head[R]:
        """The newest root that can be read, or the error for a register that has none.

        A damaged generation is passed over for the one before it, and logged.
        """
        for _ in range(_UNCERTAIN_ATTEMPTS):
            began = self.environment.monotonic()
            hint = self.read_hint()
            newer = self.generations(after=hint.generation if hint else 0)
            found = self._choose(hint, newer, began)
            if found is not None:
                return found
        raise StoreUnavailable("generations are collected faster than the newest one can be read")

    def _choose(
        self, hint: R | None, newer: list[tuple[int, ObjectInfo]], began: float
    ) -> Head[R] | None:
        """The head, given what the hint holds and the generations that came after it. None when
        one of those is gone again: whoever listed it slept, and there are newer ones by now."""
        slot = newer[-1][0] if newer else hint.generation if hint else 0
        for generation, _ in reversed(newer):
            try:
                return Head(self.read_generation(generation), slot, began)
            except Corruption as damage:
                _logger.error("%s; falling back to the generation before it", damage)
            except ObjectNotFound:
                return None
        if hint is None:
            if newer:
                word = self.layout.codec.word
                raise Corruption(self.key(slot), f"no {word} of this namespace can be read")
            raise self.layout.absent()
        return Head(hint, slot, began)

    def create(self, root: R) -> Head[R]:
        """Publish a first generation, or `AlreadyExists` if its number is taken already."""
        began = self.environment.monotonic()
        if not self._won(root):
            raise AlreadyExists(self.key(root.generation))
        self.write_hint(root)
        return Head(root, root.generation, began)

    def publish(self, edit: Edit[R], base: Head[R] | None = None) -> Head[R]:
        """Apply the edit to the newest root and publish the result as the next generation.

        After a lost race the edit is applied again to the winner's root. Returns the head
        it published, or the one it found if the edit had nothing to do.
        """
        for attempt in range(_ATTEMPTS):
            if base is None or attempt:
                base = self.head()
            edited = edit(msgspec.structs.replace(base.root, generation=base.slot + 1))
            if edited is None:
                return base
            root = msgspec.structs.replace(
                edited,
                created_at=self.environment.now(),
                publisher=self.publisher,
                nonce=self.environment.nonce(),
                previous=base.root.nonce,
                format=self.layout.codec.format,
            )
            began = self.environment.monotonic()
            if self._won(root) and self._stands(base, root):
                self.write_hint(root)
                return Head(root, root.generation, began)
            if attempt > 2:
                self.environment.sleep(min(_FIRST_WAIT * 2 ** (attempt - 2), _LONGEST_WAIT))
        raise ConcurrentPublication(f"{_ATTEMPTS} publications in a row were overtaken by others")

    def _won(self, root: R) -> bool:
        key = self.key(root.generation)
        data = self.layout.codec.encode(root)
        for attempt in range(_UNCERTAIN_ATTEMPTS):
            if attempt:
                self.environment.sleep(_FIRST_WAIT * 2**attempt)
            try:
                self.store.create(key, data)
                return True
            except (AlreadyExists, StoreUnavailable):
                pass
            try:
                holder = self.read_generation(root.generation)
            except (ObjectNotFound, StoreUnavailable):
                continue
            except Corruption:
                return False
            return holder.publisher == root.publisher and holder.nonce == root.nonce
        raise CommitUncertain(
            f"the store did not say whether {self.layout.codec.word} {root.generation} was written"
        )

    def _stands(self, base: Head[R], root: R) -> bool:
        """Whether the generation won is really the newest.

        A publisher that slept may win the number of a generation that was superseded and
        collected meanwhile. Nobody reads it then, and it must not think that it published. If
        there are newer ones, it stands only if the next was made from it.
        """
        if self.environment.monotonic() - base.confirmed < base.root.lease:
            return True
        newer = self.generations(after=root.generation)
        if not newer:
            return True
        try:
            return self.read_generation(newer[0][0]).previous == root.nonce
        except (ObjectNotFound, Corruption):
            return False

    def write_hint(self, root: R) -> None:
        """Leave a copy for those who look for the newest. Nothing relies on it."""
        key = self.layout.hint
        if key is None:
            return
        try:
            self.store.put(key, self.layout.codec.encode(root))
        except StoreError as failure:
            _logger.warning("the hint was not written: %s", failure)

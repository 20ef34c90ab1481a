"""The register: read the newest root, publish the next one against it, one winner.

Generations are numbered objects, each won by put-if-absent. Beside them lies a hint, an
unconditional copy of some recent generation: whoever looks for the newest reads the hint and
lists only from there on, so the cost does not grow with history. The hint may be old, or
damaged, or missing, and nothing but time is lost. What it says is not believed unless the
generation that it copies is listed, or the one listed last is the one that it was made from.

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
_WAITS_BEFORE_NEW_LOOKS = (0.005, 0.02, 0.05)
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

    def _completed(self, root: R) -> R:
        """A root that was just decoded, with what it names elsewhere."""
        return root

    def _prepared(self, root: R, base: R | None) -> R:
        """A root that is about to be published in place of `base`, when what it names elsewhere is
        in the bucket. If it is not published after all, that is left as orphans."""
        return root

    def key(self, generation: int) -> str:
        """Where a generation lies."""
        return self.layout.key(generation)

    def decode(self, key: str, data: memoryview) -> R:
        """The root in an object's bytes; `Corruption` if they are damaged, or of another name."""
        root = self.layout.codec.decode(key, data)
        name = self.layout.name
        if name and root.namespace != name:
            raise Corruption(key, f"it is of namespace {root.namespace!r}, and lies in {name!r}")
        return self._completed(root)

    def read_generation(self, generation: int) -> R:
        """One generation; `ObjectNotFound` if it is not there, `Corruption` if damaged.

        Damage is believed after several looks, some time apart: it may have been done on the way,
        and whoever passes over the newest generation publishes without what it says.
        """
        for wait in _WAITS_BEFORE_NEW_LOOKS:
            try:
                return self._look(generation)
            except Corruption:
                self.environment.sleep(wait)
        return self._look(generation)

    def _look(self, generation: int) -> R:
        key = self.key(generation)
        root = self.decode(key, self.store.get(key).data)
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
            root = self.decode(key, memoryview(data))
            self._hint = (data, root)
            return root
        except ObjectNotFound:
            return None
        except Corruption as damage:
            _logger.error("%s; looking for the newest generation without it", damage)
            return None

    def head(self, *, ended: bool = False, lone_hint: bool = False) -> Head[R]:
        """The newest root that can be read, or the layout's error if there is none, or if it says
        that it has ended (unless `ended`).

        A damaged generation is passed over for the one before it, and logged. If there is nothing
        but a hint, that is `Corruption`, unless `lone_hint` says to believe it.
        """
        for _ in range(_UNCERTAIN_ATTEMPTS):
            found = self._find(self.environment.monotonic(), lone_hint)
            if found is None:
                continue
            if found.root.ended and not ended:
                raise self.layout.ended()
            return found
        raise StoreUnavailable("generations are collected faster than the newest one can be read")

    def _find(self, began: float, lone_hint: bool) -> Head[R] | None:
        """The head. None when a generation that was listed is gone again: whoever listed it slept,
        and there are newer ones by now."""
        hint = self.read_hint()
        if hint is None:
            return self._choose(None, self.generations(), 0, began)
        listed = self.generations(after=hint.generation - 1)
        if listed:
            if listed[0][0] == hint.generation:
                return self._choose(hint, listed[1:], hint.generation, began)
            return self._choose(None, listed, 0, began)
        # What it copies is gone, and nothing came after: lost, or else all of it was deleted and
        # the hint is of a former life, written late. Its number is not used again in any case.
        older = self.generations()
        if not older and not lone_hint:
            raise Corruption(self.key(hint.generation), "it is missing; only the hint has it")
        if older:
            found = self._choose(None, older, hint.generation, began)
            if found is None or found.root.nonce != hint.previous:
                return found
        _logger.error("%s is missing; going by the hint's copy", self.key(hint.generation))
        return Head(hint, hint.generation, began)

    def _choose(
        self, known: R | None, newer: list[tuple[int, ObjectInfo]], slot: int, began: float
    ) -> Head[R] | None:
        """The newest of some generations that can be read, or else the one known before them."""
        slot = max(slot, newer[-1][0]) if newer else slot
        for generation, _ in reversed(newer):
            try:
                return Head(self.read_generation(generation), slot, began)
            except Corruption as damage:
                _logger.error("%s; falling back to the generation before it", damage)
            except ObjectNotFound:
                return None
        if known is not None:
            return Head(known, slot, began)
        if newer:
            word = self.layout.codec.word
            raise Corruption(self.key(slot), f"no {word} of this namespace can be read")
        raise self.layout.absent()

    def create(self, root: R) -> Head[R]:
        """Publish a first generation, or `AlreadyExists` if its number is taken already."""
        root = self._prepared(root, None)
        root = msgspec.structs.replace(root, format=root.least_format)
        began = self.environment.monotonic()
        if not self._won(root):
            raise AlreadyExists(self.key(root.generation))
        self.write_hint(root)
        return Head(root, root.generation, began)

    def publish(
        self, edit: Edit[R], base: Head[R] | None = None, *, ended: bool = False
    ) -> Head[R]:
        """Apply the edit to the newest root and publish the result as the next generation.

        After a lost race the edit is applied again to the winner's root. Returns the head
        it published, or the one it found if the edit had nothing to do. On a root that has ended
        nothing is published, unless `ended`.
        """
        for attempt in range(_ATTEMPTS):
            if base is None or attempt:
                base = self.head(ended=ended)
            edited = edit(msgspec.structs.replace(base.root, generation=base.slot + 1))
            if edited is None:
                return base
            root = msgspec.structs.replace(
                edited,
                created_at=self.environment.now(),
                publisher=self.publisher,
                nonce=self.environment.nonce(),
                previous=base.root.nonce,
            )
            root = self._prepared(root, base.root)
            root = msgspec.structs.replace(root, format=root.least_format)
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
        trouble: StoreUnavailable | None = None
        for attempt in range(_UNCERTAIN_ATTEMPTS):
            if attempt:
                self.environment.sleep(_FIRST_WAIT * 2**attempt)
            try:
                self.store.create(key, data)
                return True
            except AlreadyExists:
                pass
            except StoreUnavailable as failure:
                trouble = failure
            try:
                holder = self.read_generation(root.generation)
            except (ObjectNotFound, StoreUnavailable):
                continue
            except Corruption:
                return False
            return holder.publisher == root.publisher and holder.nonce == root.nonce
        raise CommitUncertain(
            f"the store did not say whether {self.layout.codec.word} {root.generation} was written"
            + (f": {trouble}" if trouble else "")
        ) from trouble

    def _stands(self, base: Head[R], root: R) -> bool:
        """Whether the generation won is really the newest.

        A publisher that slept may win the number of a generation that was superseded and
        collected meanwhile. Nobody reads it then, and it must not think that it published. If
        there are newer ones, it stands only if the next was made from it.
        """
        slept = self.environment.monotonic() - base.confirmed >= base.root.lease
        if not slept and not self.store.has_lost(self.key(base.slot)):
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

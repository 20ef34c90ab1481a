"""The register: read the newest manifest, publish the next one against it, one winner.

Generations are numbered objects, each won by put-if-absent. Beside them lies a hint, an
unconditional copy of some recent generation: whoever looks for the newest reads the hint and
lists only what came after it, so the cost does not grow with history. The hint may be old, or
damaged, or missing, and nothing but time is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    CommitUncertain,
    ConcurrentPublication,
    Corruption,
    NamespaceNotFound,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
)
from reef.manifest.codec import decode, encode
from reef.manifest.model import Manifest
from reef.store.contract import ObjectInfo, Store

PREFIX = "manifest/"
HINT = "hint.json"
_SUFFIX = ".manifest.json"
_DIGITS = 20
_ATTEMPTS = 64
_UNCERTAIN_ATTEMPTS = 6
_FIRST_WAIT = 0.01
_LONGEST_WAIT = 1.0
_logger = logging.getLogger("reef")

Edit = Callable[[Manifest], Manifest | None]
"""What a publication does: from a manifest to the next, or None if there is nothing to do. It is
given the manifest under the generation number that the next one will have. After a lost race it is
applied again to a newer manifest, so it must look at what it is given, and raise
`ConcurrentPublication` (or any other error) if it does not make sense any more."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest manifest that could be read, and the highest generation number taken.

    They differ when the newest object is damaged. `confirmed` is when, on this process's own
    clock, this was known to be the newest.
    """

    manifest: Manifest
    slot: int
    confirmed: float


class Register:
    """The manifests below a namespace's prefix."""

    def __init__(self, store: Store, environment: Environment, publisher: str) -> None:
        self.store = store
        self.environment = environment
        self.publisher = publisher
        self._hint: tuple[bytes, Manifest] | None = None

    @staticmethod
    def key(generation: int) -> str:
        """Where a generation lies: zero-padded, so that the newest is listed last."""
        return f"{PREFIX}{generation:0{_DIGITS}d}{_SUFFIX}"

    @staticmethod
    def generation_of(key: str) -> int | None:
        """The generation that a key names, or None if it is no manifest's key."""
        name = key.removeprefix(PREFIX).removesuffix(_SUFFIX)
        return int(name) if len(name) == _DIGITS and name.isdecimal() else None

    def read_generation(self, generation: int) -> Manifest:
        """One generation; `ObjectNotFound` if it is not there, `Corruption` if damaged."""
        key = self.key(generation)
        manifest = decode(key, self.store.get(key).data)
        if manifest.generation != generation:
            raise Corruption(key, f"it says that it is generation {manifest.generation}")
        return manifest

    def generations(self, after: int = 0) -> list[tuple[int, ObjectInfo]]:
        """The generations that are in the bucket, oldest first."""
        found = []
        for info in self.store.list(PREFIX, start_after=self.key(after)):
            generation = self.generation_of(info.key)
            if generation is not None:
                found.append((generation, info))
        return found

    def read_hint(self) -> Manifest | None:
        """The manifest that the hint holds: some generation, not necessarily the newest."""
        try:
            data = bytes(self.store.get(HINT).data)
            known = self._hint
            # Whoever follows the root meets the same bytes most of the time.
            if known is not None and known[0] == data:
                return known[1]
            manifest = decode(HINT, memoryview(data))
            self._hint = (data, manifest)
            return manifest
        except ObjectNotFound:
            return None
        except Corruption as damage:
            _logger.error("%s; looking for the newest manifest without it", damage)
            return None

    def head(self) -> Head:
        """The newest manifest that can be read, or `NamespaceNotFound`.

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
        self, hint: Manifest | None, newer: list[tuple[int, ObjectInfo]], began: float
    ) -> Head | None:
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
                raise Corruption(self.key(slot), "no manifest of this namespace can be read")
            raise NamespaceNotFound("there is no such namespace in this bucket")
        return Head(hint, slot, began)

    def create(self, manifest: Manifest) -> Head:
        """Publish generation 1, or `AlreadyExists` if the namespace is there already."""
        began = self.environment.monotonic()
        if not self._won(manifest):
            raise AlreadyExists(self.key(manifest.generation))
        self._write_hint(manifest)
        return Head(manifest, manifest.generation, began)

    def publish(self, edit: Edit, base: Head | None = None) -> Head:
        """Apply the edit to the newest manifest and publish the result as the next generation.

        After a lost race the edit is applied again to the winner's manifest. Returns the head
        it published, or the one it found if the edit had nothing to do.
        """
        for attempt in range(_ATTEMPTS):
            if base is None or attempt:
                base = self.head()
            edited = edit(msgspec.structs.replace(base.manifest, generation=base.slot + 1))
            if edited is None:
                return base
            manifest = msgspec.structs.replace(
                edited,
                created_at=self.environment.now(),
                publisher=self.publisher,
                nonce=self.environment.nonce(),
                previous=base.manifest.nonce,
            )
            began = self.environment.monotonic()
            if self._won(manifest) and self._stands(base, manifest):
                self._write_hint(manifest)
                return Head(manifest, manifest.generation, began)
            if attempt > 2:
                self.environment.sleep(min(_FIRST_WAIT * 2 ** (attempt - 2), _LONGEST_WAIT))
        raise ConcurrentPublication(f"{_ATTEMPTS} publications in a row were overtaken by others")

    def _won(self, manifest: Manifest) -> bool:
        key = self.key(manifest.generation)
        data = encode(manifest)
        for attempt in range(_UNCERTAIN_ATTEMPTS):
            if attempt:
                self.environment.sleep(_FIRST_WAIT * 2**attempt)
            try:
                self.store.create(key, data)
                return True
            except (AlreadyExists, StoreUnavailable):
                pass
            try:
                holder = self.read_generation(manifest.generation)
            except (ObjectNotFound, StoreUnavailable):
                continue
            except Corruption:
                return False
            return holder.publisher == manifest.publisher and holder.nonce == manifest.nonce
        raise CommitUncertain(
            f"the store did not say whether manifest {manifest.generation} was written"
        )

    def _stands(self, base: Head, manifest: Manifest) -> bool:
        """Whether the generation won is really the newest.

        A publisher that slept may win the number of a generation that was superseded and
        collected meanwhile. Nobody reads it then, and it must not think that it published. If
        there are newer ones, it stands only if the next was made from it.
        """
        if self.environment.monotonic() - base.confirmed < base.manifest.settings.lease:
            return True
        newer = self.generations(after=manifest.generation)
        if not newer:
            return True
        try:
            return self.read_generation(newer[0][0]).previous == manifest.nonce
        except (ObjectNotFound, Corruption):
            return False

    def _write_hint(self, manifest: Manifest) -> None:
        try:
            self.store.put(HINT, encode(manifest))
        except StoreError as failure:
            _logger.warning("the manifest hint was not written: %s", failure)

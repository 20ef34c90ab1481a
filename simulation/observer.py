"""The observer: sees every object appear and go, keeps the ledgers and models, and objects."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from reef.log import WAL
from reef.lsm.records import Ingest
from reef.manifest import MANIFESTS, Manifest
from reef.manifest.manifests import whole_manifest
from simulation.bucket import Bucket
from simulation.intent import Attempt
from simulation.ledger import LogLedger, RegisterLedger
from simulation.model import DocumentModel
from simulation.schema import Types
from simulation.world import Violation, World

PREFIX = "namespaces/"
_INGEST, _DROP = 2, 5
_CHANGING = ("hint.json", "clock")


class Slot(NamedTuple):
    """When a slot was won, and which segments it names."""

    time: float
    ingests: tuple[str, ...]


class Observer:
    """What happens to a bucket, told to whom it concerns: each tree has an observer of its own."""

    def __init__(self, world: World, bucket: Bucket, patience: float, declared: Types) -> None:
        self.world = world
        self.bucket = bucket
        self.patience = patience
        self.declared = declared
        self.trees: dict[str, TreeObserver] = {}

    def copy(self, world: World, bucket: Bucket) -> Observer:
        """The same, of a copy of the bucket."""
        other = Observer(world, bucket, self.patience, self.declared)
        other.trees = {name: tree.copy(world, bucket) for name, tree in self.trees.items()}
        return other

    def tree(self, name: str) -> TreeObserver:
        """That of a namespace."""
        tree = self.trees.get(name)
        if tree is None:
            tree = TreeObserver(self.world, self.bucket, name, self.patience, self.declared)
            self.trees[name] = tree
        return tree

    @property
    def fingerprint(self) -> int:
        """A hash of everything that later checks may look at."""
        return hash(tuple([tree.fingerprint for tree in self.trees.values()]))

    def created(self, key: str, data: bytes, attempt: object) -> None:
        """An object appeared."""
        tree, name = self._place(key)
        if tree is not None:
            tree.created(name, data, attempt)

    def overwritten(self, key: str, same: bool) -> None:
        """A put met an object in its place."""
        tree, name = self._place(key)
        if tree is not None:
            tree.overwritten(name, same)

    def deleted(self, key: str) -> None:
        """An object is gone."""
        tree, name = self._place(key)
        if tree is not None:
            tree.deleted(name)

    def _place(self, key: str) -> tuple[TreeObserver | None, str]:
        """Whose object it is, and its name there."""
        if not key.startswith(PREFIX):
            return None, key
        name, _, rest = key[len(PREFIX) :].partition("/")
        return self.tree(name), rest


class TreeObserver:
    """One namespace: its log, its manifests, and the model of its documents.

    A name may have several lives: `drops` are the slots that ended one, `there` says whether it is
    in use now, and `first_generation` and `first_slot` where the present life began.
    `damaged` are the objects that rotted where they lie; once a repair says that something was
    lost with them, the model does not know what must be readable any more.
    """

    def __init__(
        self, world: World, bucket: Bucket, name: str, patience: float, declared: Types
    ) -> None:
        self.world = world
        self.bucket = bucket
        self.name = name
        self.prefix = f"{PREFIX}{name}/"
        self.patience = patience
        self.log = LogLedger(world)
        self.roots = RegisterLedger(world, MANIFESTS)
        self.model = DocumentModel(declared)
        self.slots: list[Slot] = []
        self.named: list[frozenset[str]] = []
        self.drops: list[int] = []
        self.there = False
        self.first_generation = self.first_slot = 1
        self.damaged: set[str] = set()
        self.lost = False

    def copy(self, world: World, bucket: Bucket) -> TreeObserver:
        """The same, of a copy of the bucket."""
        other = TreeObserver(world, bucket, self.name, self.patience, {})
        other.log, other.roots = self.log.copy(world), self.roots.copy(world)
        other.model = self.model.copy()
        other.slots, other.named = list(self.slots), list(self.named)
        other.drops, other.there = list(self.drops), self.there
        other.first_generation, other.first_slot = self.first_generation, self.first_slot
        other.damaged, other.lost = set(self.damaged), self.lost
        return other

    @property
    def fingerprint(self) -> int:
        """A hash of everything that later checks may look at."""
        return hash(
            (
                self.log.fingerprint,
                self.roots.fingerprint,
                self.model.fingerprint,
                frozenset(self.ghosts),
                frozenset(self.damaged),
                self.lost,
            )
        )

    @property
    def newest(self) -> int:
        """The newest slot of the log."""
        return self.log.newest

    def life_of(self, lsn: int) -> int:
        """Which of its lives the name was in after a slot."""
        return bisect_left(self.drops, lsn + 1)

    @property
    def ghosts(self) -> set[str]:
        """Names that were won again after they had been collected."""
        return self.log.ghosts | self.roots.ghosts

    def created(self, name: str, data: bytes, attempt: object) -> None:
        """An object appeared."""
        if (lsn := WAL.lsn_of(name)) is not None:
            self._appended(name, lsn, data, attempt)
        elif (generation := MANIFESTS.generation_of(name)) is not None:
            self._published(name, generation, data)

    def overwritten(self, name: str, same: bool) -> None:
        """A put met an object in its place."""
        if not same and name not in _CHANGING:
            raise Violation(f"{name} was overwritten with something else")

    def _appended(self, name: str, lsn: int, data: bytes, attempt: object) -> None:
        entry = self.log.won(name, lsn, data)
        if entry is None:
            return
        if entry.header.skips and not self.damaged:
            raise Violation(f"slot {lsn} gives up {entry.header.skips}, and nothing is damaged")
        ingests: list[str] = []
        brings = bool(entry.header.batches)
        dropped = False
        for record in entry.records:
            if record[0] == _INGEST:
                found = msgspec.json.decode(record[1:], type=Ingest)
                ingests += [info.key for info in found.segments]
                brings = brings or not found.segments
            dropped = dropped or record[0] == _DROP
        self._must_exist(f"slot {lsn}", ingests)
        self.slots.append(Slot(self.world.time, tuple(ingests)))
        if dropped:
            self.drops.append(lsn)
            self.there = False
            self.model.began_anew()
        elif not brings:
            self.model.passed()
        elif not isinstance(attempt, Attempt):
            raise Violation(f"slot {lsn} holds a batch that no program wrote")
        elif attempt.life != len(self.drops) or not self.there:
            raise Violation(f"{attempt.intent.token} is in slot {lsn}, after the namespace's end")
        else:
            self.model.written(lsn, attempt)

    def _published(self, name: str, number: int, data: bytes) -> None:
        before = self.roots.head if self.roots.newest else None
        manifest = self.roots.published(name, number, data, self._whole_manifest)
        if manifest is None:
            return
        if before is not None:
            if manifest.wal_floor < before.wal_floor:
                raise Violation(f"generation {number} lowers the floor of the log")
            if manifest.orphan_floor < before.orphan_floor:
                raise Violation(f"generation {number} lowers the orphan floor")
        if not manifest.dropped and (before is None or before.dropped):
            self.there = True
            self.first_generation, self.first_slot = number, manifest.wal_floor
        listed = (*manifest.segments, *manifest.window, *manifest.lists)
        named = frozenset([info.key for info in listed])
        self._must_exist(f"generation {number}", named)
        self.named.append(named)

    def _whole_manifest(self, name: str, data: memoryview) -> Manifest:
        def get(key: str) -> memoryview:
            self._must_exist(name, [key])
            return memoryview(self.bucket.objects[self.prefix + key].data)

        return whole_manifest(name, data, get)

    def _must_exist(self, who: str, keys: Iterable[str]) -> None:
        for key in keys:
            if self.prefix + key not in self.bucket.objects:
                raise Violation(f"{who} names {key}, which is not there")

    def deleted(self, name: str) -> None:
        """An object is gone: was it needed?"""
        for ledger in (self.log, self.roots):
            if name in ledger.ghosts:
                ledger.ghosts.discard(name)
                return
        if name in self.damaged or not self.roots.newest:
            return
        lsn = WAL.lsn_of(name)
        number = MANIFESTS.generation_of(name)
        newest = self.roots.newest
        head = self.roots.head
        listed = any(gone.key == name for gone in head.superseded) or any(
            lsn is not None and span.first <= lsn <= span.last for span in head.folded
        )
        if listed:
            raise Violation(f"{name} was deleted though generation {newest} still lists it")
        for place in range(newest, 0, -1):
            if place < newest and self.superseded(place) <= self.world.time - self.patience:
                break
            manifest = self.roots.generations[place - 1].root
            why = f"though generation {place} is retained and needs it"
            needed = name in self.named[place - 1] or number == place
            if needed or (lsn is not None and lsn >= manifest.wal_floor):
                raise Violation(f"{name} was deleted {why}")
            if any(name in slot.ingests for slot in self.slots[manifest.wal_floor - 1 :]):
                raise Violation(f"{name} was deleted {why} for its log")

    def superseded(self, number: int) -> float:
        """When a generation ceased to be the newest; now, if it has not."""
        return self.roots.superseded(number)

"""The observer: sees every object appear and go, keeps the model, and objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

import reef
from reef.log import Log
from reef.log import decode as decode_entry
from reef.lsm.records import Ingest
from reef.manifest import MANIFESTS, Manifest
from reef.manifest.codec import decode as decode_manifest
from simulation.bucket import Bucket
from simulation.intent import Attempt, Document, Effect, State
from simulation.schema import SchemaModel, Types, fit
from simulation.world import Violation, World

PREFIX = "namespaces/n/"
_INGEST = 2


class Slot(NamedTuple):
    """What a slot of the log holds. `ingests` are keys of segments."""

    time: float
    attempt: Attempt | None
    effect: Effect | None
    ingests: tuple[str, ...]


class Generation(NamedTuple):
    """A published manifest, when it appeared, and the segments that it names."""

    manifest: Manifest
    time: float
    named: frozenset[str]


class Observer:
    """The model: `states[n]` is what must be readable after slot n.

    `damaged` are the objects that rotted where they lie; once a repair says that something was
    lost with them, the model does not know what must be readable any more.
    """

    def __init__(self, world: World, bucket: Bucket, patience: float, declared: Types) -> None:
        self.world = world
        self.bucket = bucket
        self.patience = patience
        self.slots: list[Slot] = []
        self.states: list[State] = [{}]
        self.generations: list[Generation] = []
        self.ghosts: set[str] = set()
        self.schema = SchemaModel(declared)
        self.damaged: set[str] = set()
        self.lost = False
        self._fates: dict[str, str] = {}
        self._log = self._register = 0

    def copy(self, world: World, bucket: Bucket) -> Observer:
        """The same, of a copy of the bucket."""
        other = Observer(world, bucket, self.patience, {})
        other.slots = list(self.slots)
        other.states = list(self.states)
        other.generations = list(self.generations)
        other.ghosts = set(self.ghosts)
        other.schema = self.schema.copy()
        other.damaged = set(self.damaged)
        return other

    @property
    def fingerprint(self) -> int:
        """A hash of everything that later checks may look at."""
        return hash(
            (
                self._log,
                self._register,
                frozenset(self.ghosts),
                frozenset(self.damaged),
                self.lost,
                tuple(sorted(self._fates.items())),
            )
        )

    @property
    def newest(self) -> int:
        """The newest slot of the log."""
        return len(self.slots)

    # What happens to the bucket

    def created(self, key: str, data: bytes, attempt: object) -> None:
        """An object appeared."""
        name = key.removeprefix(PREFIX)
        if (lsn := Log.lsn_of(name)) is not None:
            self._log = hash((self._log, lsn, data, self.world.time))
            self._appended(name, lsn, data, attempt)
        elif (generation := MANIFESTS.generation_of(name)) is not None:
            self._register = hash((self._register, generation, data, self.world.time))
            self._published(name, generation, data)

    def overwritten(self, key: str, same: bool) -> None:
        """A put met an object in its place."""
        name = key.removeprefix(PREFIX)
        if not same and name not in ("hint.json", "clock"):
            raise Violation(f"{name} was overwritten with something else")

    def _appended(self, name: str, lsn: int, data: bytes, attempt: object) -> None:
        if lsn <= self.newest:
            # A slot that was collected is won again, by somebody who slept. It counts for nothing.
            self.ghosts.add(name)
            return
        if lsn != self.newest + 1:
            raise Violation(f"slot {lsn} was written though slot {self.newest + 1} is free")
        entry = decode_entry(name, memoryview(data))
        if entry.header.skips:
            raise Violation(f"slot {lsn} gives up {entry.header.skips}, and nothing is damaged")
        ingests: list[str] = []
        declares = False
        for record in entry.records:
            if record[0] == _INGEST:
                found = msgspec.json.decode(record[1:], type=Ingest)
                ingests += [info.key for info in found.segments]
                declares = not found.segments
        self._must_exist(f"slot {lsn}", ingests)
        state = self.states[-1]
        effect = None
        if entry.header.batches or declares:
            if not isinstance(attempt, Attempt):
                raise Violation(f"slot {lsn} holds a batch that no program wrote")
            effect = self._admitted(lsn, attempt, state)
            state = effect.state
        self.slots.append(
            Slot(
                self.world.time,
                attempt if effect is not None and isinstance(attempt, Attempt) else None,
                effect,
                tuple(ingests),
            )
        )
        self.states.append(state)

    def _admitted(self, lsn: int, attempt: Attempt, state: State) -> Effect:
        intent = attempt.intent
        if attempt.refused:
            raise Violation(f"{intent.token} was refused ({attempt.refused}) and is in slot {lsn}")
        if attempt.slot is not None:
            raise Violation(f"one attempt at {intent.token} took slots {attempt.slot} and {lsn}")
        if intent.slot is not None:
            raise Violation(
                f"{intent.token} with key {intent.key} is in slots {intent.slot} and {lsn}"
            )
        effect = intent.on(state)
        if effect is None:
            raise Violation(f"the condition of {intent.token} does not hold before slot {lsn}")
        written = intent.written_kinds(state, effect)
        if not fit(self.schema.known, written):
            raise Violation(
                f"{intent.token} brings {written} into slot {lsn} against {self.schema.known}"
            )
        self.schema.add(written, intent.kinds())
        attempt.slot = intent.slot = lsn
        return effect

    def _published(self, name: str, number: int, data: bytes) -> None:
        if number <= len(self.generations):
            self.ghosts.add(name)
            return
        if number != len(self.generations) + 1:
            raise Violation(f"generation {number} was published without the one before it")
        manifest = decode_manifest(name, memoryview(data))
        if self.generations:
            before = self.generations[-1].manifest
            if manifest.previous != before.nonce:
                raise Violation(f"generation {number} was not made from the one before it")
            if manifest.wal_floor < before.wal_floor:
                raise Violation(f"generation {number} lowers the floor of the log")
            if manifest.orphan_floor < before.orphan_floor:
                raise Violation(f"generation {number} lowers the orphan floor")
        named = frozenset(info.key for info in (*manifest.segments, *manifest.window))
        self._must_exist(f"generation {number}", named)
        self.generations.append(Generation(manifest, self.world.time, named))

    def _must_exist(self, who: str, keys: Any) -> None:
        for key in keys:
            if PREFIX + key not in self.bucket.objects:
                raise Violation(f"{who} names {key}, which is not there")

    def deleted(self, key: str) -> None:
        """An object is gone: was it needed?"""
        name = key.removeprefix(PREFIX)
        if name in self.ghosts:
            self.ghosts.discard(name)
            return
        if name in self.damaged:
            return
        lsn = Log.lsn_of(name)
        number = MANIFESTS.generation_of(name)
        newest = len(self.generations)
        if newest:
            manifest = self.generations[-1].manifest
            listed = any(gone.key == name for gone in manifest.superseded) or any(
                lsn is not None and span.first <= lsn <= span.last for span in manifest.folded
            )
            if listed:
                raise Violation(f"{name} was deleted though generation {newest} still lists it")
        for place in range(newest, 0, -1):
            manifest, _, named = self.generations[place - 1]
            if place < newest:
                superseded = self.generations[place].time
                if superseded <= self.world.time - self.patience:
                    break
            why = f"though generation {place} is retained and needs it"
            if number == place or name in named or (lsn is not None and lsn >= manifest.wal_floor):
                raise Violation(f"{name} was deleted {why}")
            for slot in self.slots[manifest.wal_floor - 1 :]:
                if name in slot.ingests:
                    raise Violation(f"{name} was deleted {why} for its log")

    def superseded(self, number: int) -> float:
        """When a generation ceased to be the newest; now, if it has not."""
        later = self.generations[number:]
        return later[0].time if later else self.world.time

    # What programs are told

    def acknowledged(self, attempt: Attempt, receipt: reef.Receipt) -> None:
        """A write returned."""
        intent = attempt.intent
        intent.settled = True
        self._fates[intent.token] = "acknowledged"
        told = (
            receipt.upserted,
            receipt.patched,
            receipt.deleted,
            receipt.missing,
            frozenset(map(str, receipt.rejected)),
        )
        if receipt.lsn > self.newest:
            raise Violation(f"{intent.token} was acknowledged in slot {receipt.lsn}, still free")
        if any(told[:3]) or intent.key is not None:
            if intent.slot != receipt.lsn:
                raise Violation(
                    f"{intent.token} was acknowledged in slot {receipt.lsn},"
                    f" and is in slot {intent.slot}"
                )
            effect = self.slots[receipt.lsn - 1].effect
        else:
            effect = intent.on(self.states[receipt.lsn])
        if effect is None or effect.counts != told:
            raise Violation(f"{intent.token} was told {told}, and it came to {effect}")

    def declared(self, attempt: Attempt) -> None:
        """A declaration returned: the types are in the log, by this or by another slot."""
        attempt.intent.settled = True
        for name, kind in attempt.intent.declares.items():
            if self.schema.known.get(name) != kind:
                raise Violation(f"{name} was declared {kind}, and is {self.schema.known.get(name)}")

    def refused(self, attempt: Attempt, error: reef.ReefError, low: int) -> None:
        """A write was refused for good."""
        intent = attempt.intent
        attempt.refused = type(error).__name__
        self._fates[intent.token] = attempt.refused
        if attempt.slot is not None:
            raise Violation(f"{intent.token} was refused ({error}) and is in slot {attempt.slot}")
        if isinstance(error, reef.SchemaConflict):
            intent.settled = True
            if not self.schema.may_refuse(intent.kinds()):
                raise Violation(f"{intent.token} was refused, and its types fit: {error}")
        if isinstance(error, reef.ConditionFailed):
            intent.settled = True
            if all(intent.on(state) is not None for state in self.states[low:]):
                raise Violation(f"{intent.token} was refused, and its condition held: {error}")

    def read_document(self, id: str, found: Document | None, low: int, high: int) -> None:
        """A point read returned."""
        if all(state.get(id) != found for state in self.states[low : high + 1]):
            raise Violation(f"{id} was read as {found} between slots {low} and {high}")

    def read_all(self, found: State, low: int, high: int) -> None:
        """A scan returned."""
        if all(state != found for state in self.states[low : high + 1]):
            raise Violation(
                f"a scan between slots {low} and {high} differs from each state: "
                + difference(found, self.states[min(high, self.newest)])
            )

    def read_changes(self, after: int, feed: list[reef.Change], low: int) -> None:
        """A feed of changes ended: applied to the state before, it gives each state after."""
        state = dict(self.states[after])
        last = after
        for change in feed:
            if change.lsn < last:
                raise Violation(f"the feed goes back from slot {last} to {change.lsn}")
            if change.lsn != last:
                self._same_after(state, last, change.lsn - 1)
                last = change.lsn
            id = str(change.id)
            if change.kind == "truncate":
                state = {}
            elif change.kind == "delete":
                state.pop(id, None)
            elif change.kind == "patch":
                state[id] = {**state.get(id, {}), **(change.document or {})}
            else:
                state[id] = change.document or {}
        self._same_after(state, last, max(last, low))

    def _same_after(self, state: State, first: int, last: int) -> None:
        for lsn in (first, last):
            if state != self.states[lsn]:
                raise Violation(
                    f"the feed of changes differs after slot {lsn}: "
                    + difference(state, self.states[lsn])
                )


def difference(
    found: Mapping[str, Document | None], expected: Mapping[str, Document | None]
) -> str:
    """The ids where two states differ."""
    ids = sorted({*found, *expected})
    lines = [
        f"{id}: found {found.get(id)}, expected {expected.get(id)}"
        for id in ids
        if found.get(id) != expected.get(id)
    ]
    return "; ".join(lines) or "nothing"

"""The simulator can fail: each of these bugs is put in on purpose, and found within its seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import reef.lsm.read.history
import reef.lsm.repair.rebuild
import reef.lsm.repair.repair
import reef.lsm.retention.collector
import reef.lsm.retention.pinboard
import reef.lsm.retention.pins
import reef.lsm.upkeep.fold
import reef.lsm.upkeep.rewrite
import reef.lsm.write.writer
import simulation.programs
from reef.data.schema import Schema
from reef.errors import AlreadyExists, Fenced, ObjectNotFound, StoreUnavailable
from reef.log import Log, LogEntry, LogHeader
from reef.log.codec import encode
from reef.lsm.read.view import View
from reef.lsm.repair.health import needs
from reef.lsm.repair.restore import _log_is_whole
from reef.lsm.retention.pinboard import PinBoard
from reef.lsm.retention.reachability import Needs
from reef.lsm.tree import Tree
from reef.lsm.write.writer import Writer
from reef.manifest import Manifest, Register
from simulation.plan import plan_of
from simulation.run import simulate

Patch = pytest.MonkeyPatch


def acknowledge_before_the_put(patch: Patch) -> None:
    honest = Log.append

    def append(self: Log, header: LogHeader, records: Any) -> LogEntry | None:
        if not header.batches or header.guest:
            return honest(self, header, records)
        data = encode(header, records)
        self.store.start(lambda: self.store.create(self.key(header.lsn), data))
        return None

    patch.setattr(Log, "append", append)


def take_a_lost_answer_for_a_fence(patch: Patch) -> None:
    def append(self: Log, header: LogHeader, records: Any) -> LogEntry | None:
        for _ in range(4):
            try:
                self.store.create(self.key(header.lsn), encode(header, records))
                return None
            except (AlreadyExists, StoreUnavailable):
                pass
            try:
                holder = self.read(header.lsn)
            except (ObjectNotFound, StoreUnavailable):
                continue
            if holder.header.nonce == header.nonce:
                raise Fenced("somebody took my slot")
            return holder
        raise StoreUnavailable("no answer")

    patch.setattr(Log, "append", append)


def keep_the_decision_after_a_guest(patch: Patch) -> None:
    honest = Writer._commit

    def commit(self: Writer, group: Any) -> bool:
        while not honest(self, group):
            pass
        return True

    patch.setattr(Writer, "_commit", commit)


def collect_orphans_by_age_alone(patch: Patch) -> None:
    honest = reef.lsm.retention.collector.plan_collection

    def plan(manifest: Manifest, *others: Any) -> Any:
        return replace(honest(manifest, *others), orphan_floor=manifest.orphan_floor)

    patch.setattr(reef.lsm.retention.collector, "plan_collection", plan)


def acknowledge_from_a_collected_slot(patch: Patch) -> None:
    patch.setattr(Tree, "slept", lambda self: False)


def drop_the_newest_in_a_fold(patch: Patch) -> None:
    honest = reef.lsm.upkeep.fold.Gathered

    def gathered(batches: Any) -> Any:
        return honest(batches[:-1] if len(batches) > 1 else batches)

    patch.setattr(reef.lsm.upkeep.fold, "Gathered", gathered)


def drop_tombstones_too_early(patch: Patch) -> None:
    honest = reef.lsm.upkeep.rewrite.tombstone_filter
    patch.setattr(reef.lsm.upkeep.rewrite, "tombstone_filter", lambda older: honest(()))


def forget_the_window_at_a_restart(patch: Patch) -> None:
    recall = reef.lsm.write.writer.recall
    replay = Tree._replay

    def forgetful(self: Tree, unfolded: Any, skips: Any) -> None:
        replay(self, unfolded, skips)
        unfolded.keys = {}

    patch.setattr(Tree, "_replay", forgetful)
    patch.setattr(
        reef.lsm.write.writer,
        "recall",
        lambda key, unfolded, segments, *rest: recall(key, unfolded, [], *rest),
    )


def read_through_two_manifests(patch: Patch) -> None:
    honest = Tree.install

    def install(self: Tree, head: Any, unfolded: Any) -> None:
        before = self._head
        honest(self, head, unfolded)
        if before is not None:
            self._view = View(before.manifest, unfolded, self.readers, self.store)

    patch.setattr(Tree, "install", install)


def overwrite_a_concurrent_edit(patch: Patch) -> None:
    honest = Register.publish

    def publish(self: Register, edit: Any, base: Any = None, **more: Any) -> Any:
        first: list[Manifest | None] = []

        def once(newest: Manifest) -> Manifest | None:
            if not first:
                first.append(edit(newest))
            made = first[0]
            if made is None:
                return None
            return msgspec.structs.replace(made, generation=newest.generation)

        return honest(self, once, base, **more)

    patch.setattr(Register, "publish", publish)


def accept_a_schema_conflict(patch: Patch) -> None:
    def extended(self: Schema, attributes: Any, id_kind: str | None = None) -> Schema:
        if all(name in self.attributes for name in attributes) and self.id_kind:
            return self
        return Schema(id_kind or self.id_kind, {**attributes, **self.attributes})

    patch.setattr(Schema, "extended", extended)


def give_up_a_slot_in_a_repair(patch: Patch) -> None:
    honest = reef.lsm.repair.repair._plan_log

    def plan_log(tree: Tree, health: Any, plan: Any) -> None:
        honest(tree, health, plan)
        if health.log.unfolded.memtable.rows:
            plan.give_up = [health.log.next_lsn - 1]

    patch.setattr(reef.lsm.repair.repair, "_plan_log", plan_log)


def rebuild_without_the_newest_slot(patch: Patch) -> None:
    honest = reef.lsm.repair.rebuild.restore
    patch.setattr(
        reef.lsm.repair.rebuild,
        "restore",
        lambda tree, base, last, *rest: honest(tree, base, last - 1, *rest),
    )


def move_what_is_held(patch: Patch) -> None:
    patch.setattr(reef.lsm.read.history, "view_at_generation", lambda tree, generation: tree.view)


def collect_what_is_pinned(patch: Patch) -> None:
    nothing = Needs(0, frozenset())
    patch.setattr(
        reef.lsm.retention.collector, "_needs", lambda face, pins: [nothing for _ in pins]
    )


def pin_below_the_floor(patch: Patch) -> None:
    patch.setattr(reef.lsm.retention.pinboard, "_check_kept", lambda board, state: None)
    patch.setattr(reef.lsm.retention.pins, "_is_kept", lambda newest, view: True)


def collect_without_raising_the_floor(patch: Patch) -> None:
    """The board is read, and what is pinned while the collector sleeps is not in it."""
    honest = PinBoard.raise_floor

    def raise_floor(self: PinBoard, floor: int, lapsed: Any) -> Any:
        return honest(self, 0, lapsed)

    patch.setattr(PinBoard, "raise_floor", raise_floor)
    patch.setattr(reef.lsm.retention.pins, "_is_kept", lambda newest, view: True)


def believe_a_number_that_was_won_again(patch: Patch) -> None:
    patch.setattr(reef.lsm.read.history, "_is_genuine", lambda tree, manifest, newest: True)


def restore_from_the_past(patch: Patch) -> None:
    """No bug: repairs take the newest segments for damaged, and go back to the oldest base."""
    patch.setattr(simulation.programs, "MEDICAL", ("repair",))
    honest = reef.lsm.repair.repair._plan_segments

    def plan_segments(tree: Tree, health: Any, plan: Any) -> None:
        honest(tree, health, plan)
        head = health.head.manifest
        for manifest in health.generations.values():
            if manifest.wal_floor > head.wal_floor or needs(manifest) == needs(head):
                continue
            if health.is_sound(needs(manifest)) and _log_is_whole(health, manifest.wal_floor):
                plan.base = manifest
                return

    patch.setattr(reef.lsm.repair.repair, "_plan_segments", plan_segments)


def delete_what_a_repair_named_again(patch: Patch) -> None:
    restore_from_the_past(patch)
    patch.setattr(
        reef.lsm.retention.collector,
        "_unneeded",
        lambda face, published, doomed, pinned: list(doomed),
    )


# Bugs that only a long sleep at the wrong moment brings out are looked for among sleepers.
LONG: dict[str, Any] = {"quick": True, "steps": 20, "requests": 300}
SLEEPERS: dict[str, Any] = {
    "faults": ("pause",),
    "intensity": 0.05,
    "pace": 0.1,
    **LONG,
}
LOSSES: dict[str, Any] = {"faults": ("lose", "late"), "intensity": 0.06}
SLOW: dict[str, Any] = {
    "faults": ("slow", "pause"),
    "intensity": 0.2,
    **LONG,
    "steps": 30,
    "requests": 600,
}
TIDY = ("writer", "indexer", "indexer", "compactor", "compactor")
BUSY = ("writer", "writer", "indexer", "compactor", "worker", "collector")
LOADERS = ("writer", "writer", "loader", "loader")
DOCTORS = ("writer", "reader", "doctor", "doctor")
HISTORIANS = ("writer", "historian", "historian", "worker", "collector", "compactor")
WARD = ("writer", "worker", *6 * ("doctor",), "collector", "collector")
ARCHIVE = ("writer", *3 * ("historian",), "indexer", "indexer", "collector", "collector")
KEEPERS = ("writer", "indexer", "worker", "collector", "loader")

BUGS: list[tuple[Callable[[Patch], None], int, dict[str, Any]]] = [
    (acknowledge_before_the_put, 10, {}),
    (take_a_lost_answer_for_a_fence, 50, LOSSES),
    (keep_the_decision_after_a_guest, 200, {"roles": LOADERS}),
    (collect_orphans_by_age_alone, 200, {**SLEEPERS, "roles": KEEPERS}),
    (acknowledge_from_a_collected_slot, 200, {**SLEEPERS, "roles": ("writer", *KEEPERS)}),
    (drop_the_newest_in_a_fold, 50, {}),
    (drop_tombstones_too_early, 100, {**LONG, "roles": TIDY, "intensity": 0.0}),
    (forget_the_window_at_a_restart, 600, {}),
    (read_through_two_manifests, 20, {}),
    (overwrite_a_concurrent_edit, 50, {**LONG, "roles": BUSY}),
    (accept_a_schema_conflict, 200, {"roles": LOADERS}),
    (give_up_a_slot_in_a_repair, 50, {"roles": DOCTORS}),
    (rebuild_without_the_newest_slot, 50, {"roles": DOCTORS}),
    (move_what_is_held, 50, {"roles": ("writer", "indexer", "historian")}),
    (collect_what_is_pinned, 100, {**LONG, "roles": HISTORIANS}),
    (delete_what_a_repair_named_again, 1000, {**SLOW, "faults": ("pause",), "roles": WARD}),
    (pin_below_the_floor, 200, {**LONG, "roles": HISTORIANS}),
    (collect_without_raising_the_floor, 200, {**SLEEPERS, "roles": HISTORIANS}),
    (believe_a_number_that_was_won_again, 200, {**SLOW, "faults": ("late",), "roles": ARCHIVE}),
]


@pytest.mark.parametrize(
    ("bug", "seeds", "changes"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS]
)
def test_a_bug_is_found(
    bug: Callable[[Patch], None], seeds: int, changes: dict[str, Any], monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    assert first_failure(seeds, changes) is not None


def first_failure(seeds: int, changes: dict[str, Any]) -> tuple[int, str] | None:
    """The first seed that fails, and how."""
    for seed in range(seeds):
        violation = simulate(replace(plan_of(seed), **changes)).violation
        if violation is not None:
            return seed, violation
    return None

"""Repairing: whatever is damaged is put aside, and the namespace made whole without it.

First an examination, then a plan, which is all that a dry run does; then, in this order,

1. a copy of every damaged object into quarantine, for once they are not named any more the next
   repair would not find them,
2. an entry at the end of the log that gives up the slots that cannot be read,
3. one publication that names nothing damaged,
4. the damaged objects deleted where they were.

Dying in between leaves less to do for the next repair, and nothing that it would report is done
before the step that makes it so.

A damaged log object stays where it is, besides its copy, and a slot that is empty is filled with an
empty entry: a free slot could be won by a writer that slept, and what it then acknowledged would be
passed over. Collection removes them with their neighbours.

No writer is fenced. One at work on the tree meets the new entry in its slot and the new segments in
the root, and goes on: what it holds of the log stays true, since the floor never falls and segments
are only exchanged for others that read the same, as a compaction does. Slots that were given up may
still be in its memory: it reads all anew when it meets the entry, and a fold that was faster brings
them back for everybody.
Compactors are superseded: they chose what to drop by a list of segments that is no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from reef.commit import give_up, plug
from reef.errors import ConcurrentPublication, Corruption, ObjectNotFound
from reef.log import WAL
from reef.log.tail import MissingSlot
from reef.lsm.repair.health import (
    Health,
    ListsUnreadable,
    Progress,
    Unreadable,
    examine,
    needs,
)
from reef.lsm.repair.lists import actions, repair_lists
from reef.lsm.repair.quarantine import PREFIX as QUARANTINE
from reef.lsm.repair.quarantine import copy_aside, note_missing, quarantined
from reef.lsm.repair.restore import Restored, check_log_kept, find_base, restore
from reef.lsm.repair.salvage import Salvage, check_supported, rewrite, survey
from reef.lsm.tree import Tree
from reef.lsm.write.idempotency import KEYS_SCHEMA
from reef.lsm.write.upload import check_not_condemned
from reef.manifest import LogSpan, Manifest, Superseded
from reef.manifest.codec import encode
from reef.manifest.manifests import HINT
from reef.manifest.register import Head

Id = str | int


@dataclass(frozen=True)
class Repaired:
    """What a repair did, or would do if it is not `applied`.

    `lost_lsns`, `lost_ids` and `lost_keys` are inclusive ranges: what those log slots wrote, and
    what damaged segments held of documents in those id ranges, and of idempotency keys, is gone.
    `quarantined` are the original keys of the objects that were set aside. `generation` is the
    newest afterwards.
    """

    applied: bool
    generation: int
    actions: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    lost_lsns: tuple[tuple[int, int], ...] = ()
    lost_ids: tuple[tuple[Id, Id], ...] = ()
    lost_keys: tuple[tuple[str, str], ...] = ()


@dataclass
class _Plan:
    """`give_up` are the slots that the new entry names, `plug` those to fill, `copy` the keys of
    damaged log objects, `move` of all others, `note` of manifests that are gone. `base` is the
    generation that the new head is put together from, None if what it names may stay; with `fold`
    the whole log goes into it. `forget` are superseded segments, `forget_through` the last folded
    slot, that cannot be kept."""

    head: Head[Manifest]
    actions: list[str] = field(default_factory=list)
    lost_lsns: list[tuple[int, int]] = field(default_factory=list)
    lost_ids: list[tuple[Id, Id]] = field(default_factory=list)
    lost_keys: list[tuple[str, str]] = field(default_factory=list)
    give_up: list[int] = field(default_factory=list)
    plug: list[int] = field(default_factory=list)
    copy: list[str] = field(default_factory=list)
    move: list[str] = field(default_factory=list)
    note: list[str] = field(default_factory=list)
    base: Manifest | None = None
    fold: bool = False
    republish: bool = False
    salvages: list[Salvage] = field(default_factory=list)
    forget: set[str] = field(default_factory=set)
    forget_through: int = 0
    hint: bool = False


def repair(tree: Tree, *, apply: bool = False, progress: Progress | None = None) -> Repaired:
    """Make the namespace whole, losing nothing that is still there twice; report what is lost.

    Without `apply` nothing is changed, and the report says what would be done. Raises `Corruption`
    when no manifest can be read (`rebuild` may still help) and `ConcurrentPublication` when
    somebody else's publication came between: run it again then.
    """
    try:
        health = examine(tree, deep=True, left_over=True, progress=progress)
    except Unreadable as found:
        raise found.error from None
    except ListsUnreadable as found:
        done = tuple(actions(found.broken))
        if not apply:
            # What else may be wrong is seen when the lists can be read.
            return Repaired(False, found.broken.head.manifest.generation, done, (), (), (), ())
        lost = repair_lists(tree, found.broken)
        rest = repair(tree, apply=True, progress=progress)
        return replace(
            rest, actions=done + rest.actions, lost_lsns=_merged([*rest.lost_lsns, *lost])
        )
    if health.log.stop is not None:
        raise Corruption(health.log.stop.key, health.log.stop.meaning)
    plan = _plan(tree, health)
    generation = health.head.manifest.generation
    if apply:
        generation = _apply(tree, health, plan)
    return Repaired(
        apply,
        generation,
        tuple(plan.actions),
        tuple(sorted({*plan.copy, *plan.move})),
        _merged(plan.lost_lsns),
        tuple(dict.fromkeys(plan.lost_ids)),
        tuple(dict.fromkeys(plan.lost_keys)),
    )


def _plan(tree: Tree, health: Health) -> _Plan:
    plan = _Plan(health.head)
    _plan_log(tree, health, plan)
    _plan_manifests(health, plan)
    _plan_segments(tree, health, plan)
    _plan_history(health, plan)
    for problem in health.board_damage:
        # The board falls back to the one before it. Holders of pins that it lacks enter them anew.
        plan.move.append(problem.key)
        plan.actions.append(f"move {problem.key} to {QUARANTINE}{problem.key}: {problem.meaning}")
    return plan


def _plan_log(tree: Tree, health: Health, plan: _Plan) -> None:
    log = health.log
    plan.give_up = sorted(log.damaged)
    plan.lost_lsns += [(lsn, lsn) for lsn in plan.give_up]
    floor = health.head.manifest.wal_floor
    plan.plug = sorted(lsn for lsn in (*log.missing, *log.skipped_missing) if lsn >= floor)
    unreadable = (*log.damaged, *log.folded_damaged, *log.skipped_damaged)
    damaged = [WAL.key(lsn) for lsn in unreadable if lsn not in log.missing]
    there = quarantined(tree.store, damaged)
    plan.copy = [key for key in damaged if key not in there]
    for lsn, problem in sorted(log.damaged.items()):
        plan.actions.append(f"give up log slot {lsn}: {problem}; what it wrote is lost")
    for lsn in plan.plug:
        plan.actions.append(f"fill log slot {lsn} with an empty entry")
    for key in plan.copy:
        plan.actions.append(f"copy {key} to {QUARANTINE}{key}")


def _plan_manifests(health: Health, plan: _Plan) -> None:
    head = health.head
    present = {info.key for info in health.objects}
    gone = list(health.missing_generations.values())
    for _, problem in sorted(health.damaged_generations.items()):
        if problem.key in present:
            _move(health, plan, problem.key, f": {problem.meaning}")
        else:
            gone.append(problem)
    for problem in gone:
        plan.note.append(problem.key)
        plan.actions.append(f"note in {QUARANTINE} that {problem.key} is gone: {problem.meaning}")
    whole = head.manifest.generation in health.generations
    plan.republish = not whole or head.slot != head.manifest.generation
    if plan.republish:
        # The lost generations may have folded more than this one, and a writer that knows them
        # must never see the floor fall: so all of the log is folded with the publication.
        plan.base = head.manifest
        plan.fold = health.log.next_lsn > head.manifest.wal_floor
        plan.actions.append(
            f"publish the content of generation {head.manifest.generation} as generation"
            f" {head.slot + 1}"
            + (f", the log through slot {health.log.next_lsn - 1} folded" if plan.fold else "")
        )
    if health.hint is not None:
        plan.hint = True
        plan.actions.append(f"write {HINT} anew: {health.hint.meaning}")


def _plan_segments(tree: Tree, health: Health, plan: _Plan) -> None:
    manifest = health.head.manifest
    damaged = [info for info in needs(manifest) if health.segments[info.key]]
    brought = [info for info in health.log.unfolded.ingests if health.segments[info.key]]
    hidden = [info for info in health.log.unfolded.dropped if health.segments[info.key]]
    for info in (*damaged, *brought, *hidden):
        check_supported(tree.store, info)
    lossy = list(brought)
    if damaged:
        base = find_base(health)
        if base is not None:
            plan.base = base
            log = f" and log slots {base.wal_floor} through {manifest.wal_floor - 1}"
            plan.actions.append(
                f"put the segments together again from generation {base.generation}"
                f"{log if base.wal_floor < manifest.wal_floor else ''}; nothing is lost"
            )
        else:
            plan.base = manifest
            lossy = damaged + lossy
    if brought or hidden:
        # The log names them, and only folding takes them out of it.
        plan.fold = True
        plan.base = plan.base or manifest
    windows = {info.key for info in manifest.window}
    for info in lossy:
        schema = KEYS_SCHEMA if info.key in windows else health.log.unfolded.schema
        salvage = survey(tree.store, info, schema)
        plan.salvages.append(salvage)
        if info.key in windows:
            plan.lost_keys += [(str(first), str(last)) for first, last in salvage.lost_ids]
        else:
            plan.lost_lsns += salvage.lost_lsns
            plan.lost_ids += salvage.lost_ids
        what = "idempotency keys" if info.key in windows else "documents"
        plan.actions.append(
            f"salvage {salvage.rows} of {info.rows} rows of {info.key}"
            f" ({health.segments[info.key][0].meaning}); {what} of"
            f" {info.rows - salvage.rows} rows are lost, and older versions that they hid may show"
            if salvage.rows < info.rows
            else f"rewrite all {info.rows} rows of {info.key}"
            f" ({health.segments[info.key][0].meaning}); nothing is lost"
        )
    for info in hidden:
        plan.actions.append(
            f"fold the log, which hides {info.key} by a truncation:"
            f" {health.segments[info.key][0].meaning}; nothing but history is lost"
        )
    for info in (*damaged, *brought, *hidden):
        _move(health, plan, info.key)


def _plan_history(health: Health, plan: _Plan) -> None:
    """What only time travel needs: nothing of the present is lost with it."""
    live = {info.key for info in (*health.live, *health.log.unfolded.dropped)}
    for key, problems in health.segments.items():
        if problems and key not in live:
            plan.forget.add(key)
            plan.actions.append(
                f"forget {key}, which only older generations name: {problems[0].meaning}"
            )
            _move(health, plan, key)
    for key in health.left_over:
        _move(health, plan, key)
    if health.log.folded_damaged:
        plan.forget_through = max(health.log.folded_damaged)
        plan.actions.append(
            f"forget the folded log through slot {plan.forget_through}, of which"
            f" {len(health.log.folded_damaged)} slots are damaged; their rows are in segments"
        )


def _move(health: Health, plan: _Plan, key: str, why: str = "") -> None:
    if key not in plan.move and any(info.key == key for info in health.objects):
        plan.move.append(key)
        plan.actions.append(f"move {key} to {QUARANTINE}{key}{why}")


def _apply(tree: Tree, health: Health, plan: _Plan) -> int:
    for key in (*plan.copy, *plan.move):
        copy_aside(tree.store, key)
    last = health.log.next_lsn - 1
    if plan.give_up:
        last = give_up(tree, health.log.next_lsn, health.log.unfolded.epoch, plan.give_up)
    head = health.head
    if plan.base is not None or plan.forget or plan.forget_through:
        head = _publish(tree, health, plan, last)
    elif plan.hint:
        tree.store.put(HINT, encode(head.manifest))
    for lsn in plan.plug:
        plug(tree, lsn)
    for key in plan.note:
        note_missing(tree.store, key)
    for key in plan.move:
        tree.store.delete(key)
    return head.manifest.generation


def _publish(tree: Tree, health: Health, plan: _Plan, last: int) -> Head[Manifest]:
    seen = health.head.manifest
    birth = health.head.slot
    damaged = {key for key, problems in health.segments.items() if problems}
    restored: Restored | None = None
    if plan.base is not None:
        through = last if plan.fold else seen.wal_floor - 1
        try:
            replacements = {s.info.key: rewrite(tree, s, birth) for s in plan.salvages}
            restored = restore(tree, plan.base, through, birth, replacements)
        except (ObjectNotFound, MissingSlot) as gone:
            if tree.register.head().slot == birth:
                raise
            # It was there when it was examined: a slow repair was overtaken by a collector.
            raise ConcurrentPublication(f"{gone}; it was collected meanwhile, try again") from None
        fresh = [info for group in replacements.values() for info in group]
        fresh += restored.fresh

    def edit(newest: Manifest) -> Manifest:
        if restored is not None:
            assert plan.base is not None
            check_not_condemned(newest.orphan_floor, fresh)
            check_log_kept(newest, plan.base)
            written = {info.key for info in fresh}
            newest = _with_restored(newest, seen, restored, through, written, damaged)
        if plan.republish:
            # What the lost generations condemned is not known any more: so everything
            # that is not named yet is condemned, and whoever made it begins again.
            newest = msgspec.structs.replace(newest, orphan_floor=newest.generation)
        return _with_less_history(newest, plan)

    return tree.register.publish(edit, health.lone_head)


def _with_restored(
    newest: Manifest,
    seen: Manifest,
    restored: Restored,
    through: int,
    written: set[str],
    damaged: set[str],
) -> Manifest:
    before = (seen.segments, seen.window, seen.wal_floor)
    if before != (newest.segments, newest.window, newest.wal_floor):
        raise ConcurrentPublication("the tree was changed while it was being repaired; try again")
    was = {info.key for info in needs(newest)}
    was |= {info.key for info in restored.dropped if info.lsn >= newest.wal_floor}
    now = {info.key for info in (*restored.segments, *restored.window)}
    # What comes back must be kept from collection up to this publication: by the manifest, or
    # by the log above the floor that brings it.
    protected = was | written | {gone.key for gone in newest.superseded}
    protected |= {info.key for info in restored.segments if info.lsn >= newest.wal_floor}
    if not now <= protected:
        raise ConcurrentPublication(f"{min(now - protected)} may be collected by now; try again")
    schema = newest.parsed_schema().extended(restored.schema.attributes, restored.schema.id_kind)
    folded = newest.folded
    if through >= newest.wal_floor:
        folded = (*folded, LogSpan(newest.wal_floor, through, newest.generation))
    return msgspec.structs.replace(
        newest.with_schema(schema),
        compactor_epoch=newest.compactor_epoch + 1,
        segments=restored.segments,
        window=restored.window,
        wal_floor=through + 1,
        last_applied_lsn=through,
        orphan_floor=max(newest.orphan_floor, restored.orphan_floor),
        superseded=(
            *(gone for gone in newest.superseded if gone.key not in now),
            *(Superseded(key, newest.generation) for key in sorted(was - now - damaged)),
        ),
        folded=folded,
    )


def _with_less_history(newest: Manifest, plan: _Plan) -> Manifest:
    superseded = tuple(gone for gone in newest.superseded if gone.key not in plan.forget)
    folded = tuple(
        msgspec.structs.replace(span, first=max(span.first, plan.forget_through + 1))
        for span in newest.folded
        if span.last > plan.forget_through
    )
    return msgspec.structs.replace(newest, superseded=superseded, folded=folded)


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)

"""The shape of a namespace, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reef.lsm.read.view import View
from reef.lsm.retention.pinboard import Pins
from reef.lsm.upkeep.compaction import runs_by_level
from reef.manifest import Manifest


@dataclass(frozen=True)
class Level:
    """One level of the tree."""

    level: int
    runs: int
    segments: int
    rows: int
    tombstones: int
    bytes: int


@dataclass(frozen=True)
class Status:
    """What a manifest and the unfolded log above it amount to."""

    namespace: str
    generation: int
    writer_epoch: int
    compactor_epoch: int
    id_kind: str | None
    attributes: dict[str, str]
    levels: tuple[Level, ...]
    unfolded_objects: int
    unfolded_rows: int
    unfolded_bytes: int
    unfolded_ingests: int
    wal_floor: int
    last_applied_lsn: int
    lsn: int
    superseded_objects: int
    folded_slots: int
    orphan_floor: int
    window_segments: int
    pinned: tuple[str, ...]
    retention: float
    grace: float


def _pinned(manifest: Manifest, board: Pins) -> Iterator[tuple[str, int, int, str]]:
    for name, state in board.pins.items():
        yield name, state.generation, state.lsn, " for good" if state.seconds is None else ""
    for name, old in manifest.snapshots.items():
        yield name, old.generation, old.lsn, ""


def status_of(name: str, view: View, board: Pins) -> Status:
    """The shape of the state that a view reads from, and what is pinned."""
    manifest = view.manifest
    unfolded = view.unfolded
    levels = tuple(
        Level(
            level,
            len(runs),
            sum(len(run) for run in runs),
            sum(run.summary.rows for run in runs),
            sum(run.summary.tombstones for run in runs),
            sum(run.summary.size for run in runs),
        )
        for level, runs in runs_by_level(manifest.segments).items()
    )
    return Status(
        namespace=name,
        generation=manifest.generation,
        writer_epoch=manifest.writer_epoch,
        compactor_epoch=manifest.compactor_epoch,
        id_kind=view.schema.id_kind,
        attributes={name: str(kind) for name, kind in view.schema.attributes.items()},
        levels=levels,
        unfolded_objects=unfolded.objects,
        unfolded_rows=view.memtable.rows + sum(info.rows for info in view.ingests),
        unfolded_bytes=unfolded.nbytes,
        unfolded_ingests=len(view.ingests),
        wal_floor=manifest.wal_floor,
        last_applied_lsn=manifest.last_applied_lsn,
        lsn=unfolded.next_lsn - 1,
        superseded_objects=len(manifest.superseded),
        folded_slots=sum(span.last - span.first + 1 for span in manifest.folded),
        orphan_floor=manifest.orphan_floor,
        window_segments=len(manifest.window),
        pinned=tuple(
            f"generation {generation}, lsn {lsn}, as {name}{length}"
            for name, generation, lsn, length in sorted(_pinned(manifest, board))
        ),
        retention=manifest.settings.retention,
        grace=manifest.settings.grace,
    )

"""What a manifest says."""

from __future__ import annotations

from typing import Any

import msgspec

from reef.data.schema import Schema
from reef.manifest.root import Root
from reef.segment.info import SegmentInfo

FORMAT = 1


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What all programs that work on a namespace must agree on.

    `retention` is for how many seconds superseded state stays readable by time travel, `grace`
    how long anything unneeded is kept at least; the idempotency window is bounded by
    `window_keys` and `window_seconds`.
    """

    retention: float = 3600.0
    grace: float = 900.0
    window_keys: int = 10_000
    window_seconds: float = 86_400.0

    @property
    def lease(self) -> float:
        """For how many seconds a process may rely on what it read of the root without looking
        again: well under the grace period, so that nothing it relies on was collected."""
        return min(30.0, self.grace / 4)


class Superseded(msgspec.Struct, frozen=True, array_like=True):
    """An object that `generation` stopped naming: the one before it still did."""

    key: str
    generation: int


class LogSpan(msgspec.Struct, frozen=True, array_like=True):
    """Log slots `first` through `last`, which `generation` moved below the floor."""

    first: int
    last: int
    generation: int


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """A state that somebody reads: whatever `generation` and the log through `lsn` need is kept,
    for `seconds` since generation `renewed` appeared."""

    generation: int
    lsn: int
    renewed: int
    seconds: float


class Manifest(Root, frozen=True, omit_defaults=True):
    """One generation of a namespace's root.

    Who owns which fields: writers `writer_epoch`; indexers `segments` (adding), `window`,
    `schema`, `wal_floor`, `last_applied_lsn`; compactors `compactor_epoch` and `segments`
    (swapping); collectors `orphan_floor`, `superseded`, `folded`. Snapshot holders and
    branches own the maps named after them.

    `orphan_floor` condemns: a segment born before it can never be published any more,
    whoever made it and however long it slept, so whatever is unnamed and born before
    may be deleted.
    """

    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    fingerprint: str = ""
    settings: Settings = Settings()
    writer_epoch: int = 0
    compactor_epoch: int = 0
    wal_floor: int = 1
    last_applied_lsn: int = 0
    segments: tuple[SegmentInfo, ...] = ()
    window: tuple[SegmentInfo, ...] = ()
    orphan_floor: int = 0
    superseded: tuple[Superseded, ...] = ()
    folded: tuple[LogSpan, ...] = ()
    snapshots: dict[str, Pin] = msgspec.field(default_factory=dict)
    branches: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def lease(self) -> float:
        """As its settings say."""
        return self.settings.lease

    def parsed_schema(self) -> Schema:
        """The schema as its value type."""
        return Schema.from_dict(self.schema)

    def with_schema(self, schema: Schema) -> Manifest:
        """The same manifest with that schema and its fingerprint."""
        return msgspec.structs.replace(
            self, schema=schema.to_dict(), fingerprint=schema.fingerprint
        )

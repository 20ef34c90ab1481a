"""What a manifest says."""

from __future__ import annotations

from typing import Any

import msgspec

from reef.data.schema import Schema, format_of
from reef.manifest.lists import ListInfo
from reef.manifest.retired import LogSpan, Retired, RetiredList
from reef.manifest.root import Root
from reef.manifest.runs import Segments
from reef.segment.info import SegmentInfo

FORMAT = 2
"""The newest. A manifest is of the lowest that can say it."""
NO_SEGMENTS = Segments()
NOTHING_RETIRED = Retired()


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


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """A state that somebody reads, as former versions kept it in the manifest: whatever
    `generation` and the log through `lsn` need is kept, for `seconds` since generation `renewed`
    appeared. It is understood, and not written any more."""

    generation: int
    lsn: int
    renewed: int
    seconds: float


class Life(msgspec.Struct, frozen=True, array_like=True):
    """Since when there is a namespace of this name: `generation` created it, and `lsn` is the first
    slot of its log. What came before is of a namespace that was dropped, and no history of this
    one. `grace` is the longest grace period that programs of former lives may rely on."""

    generation: int = 1
    lsn: int = 1
    grace: float = 0.0


class Manifest(Root, frozen=True, omit_defaults=True):
    """One generation of a namespace's root.

    Who owns which fields: writers `writer_epoch`; indexers `segments` (adding), `window`,
    `schema`, `wal_floor`, `last_applied_lsn`; compactors `compactor_epoch` and `segments`
    (swapping); collectors `orphan_floor`, `oldest_generation`, `superseded`, `folded`.
    `snapshots` are pins of former versions.

    Of the live segments those of small runs are named by the manifest itself, and the others by the
    list objects that `lists` names; `segments` holds all of them, whoever names them. In the same
    way `superseded` holds all that the lists of `retired` stand for.

    `dropping` says that somebody set about to drop the namespace: whether it is still there, the
    log tells. With `dropped` it is not there; the register is kept, so that a namespace of the same
    name goes on with higher generations, slots and epochs, and `life` says where that began.

    `orphan_floor` condemns: a segment born before it can never be published any more,
    whoever made it and however long it slept, so whatever is unnamed and born before
    may be deleted. `oldest_generation` is the oldest one that is retained: the objects of those
    before it may be gone, and what lies in their place is believed only if a pin vouches for it.
    """

    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    fingerprint: str = ""
    settings: Settings = Settings()
    writer_epoch: int = 0
    compactor_epoch: int = 0
    wal_floor: int = 1
    last_applied_lsn: int = 0
    segments: Segments = NO_SEGMENTS
    lists: tuple[ListInfo, ...] = ()
    window: tuple[SegmentInfo, ...] = ()
    orphan_floor: int = 0
    superseded: Retired = NOTHING_RETIRED
    retired: tuple[RetiredList, ...] = ()
    folded: tuple[LogSpan, ...] = ()
    snapshots: dict[str, Pin] = msgspec.field(default_factory=dict)
    branches: dict[str, Any] = msgspec.field(default_factory=dict)
    oldest_generation: int = 0
    dropping: bool = False
    dropped: bool = False
    life: Life = Life()

    def __post_init__(self) -> None:
        if not isinstance(self.segments, Segments):
            msgspec.structs.force_setattr(self, "segments", Segments.of(self.segments))
        if not isinstance(self.superseded, Retired):
            msgspec.structs.force_setattr(self, "superseded", Retired.of(self.superseded))

    @property
    def ended(self) -> bool:
        """Whether the namespace was dropped."""
        return self.dropped

    @property
    def first_lsn(self) -> int:
        """The first slot of its log: what lies below was of another namespace of that name."""
        return self.life.lsn

    @property
    def patience(self) -> float:
        """For how many seconds what was superseded is kept. While some of a former life is left,
        as long as the programs of that life were told."""
        own = max(self.settings.retention, self.settings.grace)
        former = any(span.generation < self.life.generation for span in self.folded)
        return max(own, self.life.grace) if former else own

    @property
    def least_format(self) -> int:
        """Format 1 knows no lists: a program that reads no other would miss what they name. Nor
        does it know types that are not known yet, or that names are dropped: it would take a
        dropped namespace for an empty one."""
        was_dropped = self.dropping or self.dropped or self.life != Life()
        return 2 if self.lists or self.retired or was_dropped else format_of(self.schema)

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

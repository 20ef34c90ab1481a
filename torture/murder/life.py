"""A life: everything that a victim is told when it is born."""

from __future__ import annotations

from typing import Any

import msgspec

from reef.lsm.options import Options
from reef.manifest import Settings
from torture.murder.hostile_store import Hostility

NAMESPACE = "victim"
MEBIBYTE = 1024 * 1024


class LaneStart(msgspec.Struct, frozen=True):
    """Where a lane goes on: its next number, and the batch to try again, if there is one."""

    lane: str
    number: int
    again: tuple[int, str] | None = None


class Habits(msgspec.Struct, frozen=True):
    """What a round chooses for all its processes. Times are in seconds."""

    retention: float = 1.0
    grace: float = 1.5
    large_batch_bytes: int = 2 * MEBIBYTE
    segment_bytes: int = 64 * 1024
    fold_objects: int = 12
    pace: float = 0.01
    large: float = 0.08

    @property
    def settings(self) -> Settings:
        """The namespace's, at its creation."""
        return Settings(retention=self.retention, grace=self.grace)

    def options(self) -> Options:
        """Every process's."""
        return Options(
            fold_bytes=8 * MEBIBYTE,
            fold_objects=self.fold_objects,
            fold_segments=4,
            segment_bytes=self.segment_bytes,
            fan_in=2,
            most_inputs=4,
            cache_bytes=32 * MEBIBYTE,
            large_batch_bytes=self.large_batch_bytes,
            # Readers look when they say so, and at no other time.
            staleness=1e9,
            collect_seconds=0.3,
        )


class Life(msgspec.Struct, frozen=True):
    """One life of one process. `only` restricts the kinds of batches that its lanes write."""

    role: str
    url: str
    secrets: dict[str, str]
    habits: Habits
    hostility: Hostility
    seed: int
    lanes: tuple[LaneStart, ...] = ()
    only: tuple[str, ...] = ()
    maintain: bool = False
    namespace: str = NAMESPACE
    fresh: bool = True

    def encode(self) -> bytes:
        """As the nursery takes it."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Life:
        """The inverse of `encode`."""
        return msgspec.json.decode(data, type=Life)


Message = dict[str, Any]

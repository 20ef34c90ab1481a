"""The crash points: every step between two requests that a program of each role can die at.

A point is told by what the process is doing (its *phase*, one pass of which is one call), the
request it makes, and which requests of the pass came before it. Dying before a request is dying
between the one before and it; dying after it is dying before its answer was used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

BEFORE, AFTER = "before", "after"
Seen = Counter[tuple[str, str]]
"""How many requests of each kind on each folder were made in this pass."""


def _always(_: Seen) -> bool:
    return True


def _uploaded(seen: Seen) -> bool:
    return seen["put", "segments"] > 0


def _not_uploaded(seen: Seen) -> bool:
    return not _uploaded(seen)


def _published(seen: Seen) -> bool:
    return seen["create", "manifest"] > 0


def _deleted(seen: Seen) -> bool:
    return any(count for (kind, _), count in seen.items() if kind == "delete")


@dataclass(frozen=True)
class CrashPoint:
    """Where to die. `folder` is the first part of the key below the namespace; "" is any."""

    name: str
    role: str
    phase: str
    when: str
    kind: str
    folder: str
    given: Callable[[Seen], bool] = _always

    def meets(self, phase: str, kind: str, folder: str, seen: Seen) -> bool:
        """Whether this request is one to die at."""
        return (
            phase == self.phase
            and kind == self.kind
            and self.folder in ("", folder)
            and self.given(seen)
        )


def _point(
    name: str, role: str, phase: str, step: str, given: Callable[[Seen], bool] = _always
) -> CrashPoint:
    when, kind, folder = (*step.split(), "")[:3]
    return CrashPoint(name, role, phase, when, kind, folder, given)


CRASH_POINTS: tuple[CrashPoint, ...] = (
    _point("create: before the first manifest", "founder", "create", "before create manifest"),
    _point("create: manifest, no hint", "founder", "create", "after create manifest"),
    _point("create: after the hint", "founder", "create", "after put hint.json"),
    _point("open: before the epoch", "writer", "open", "before create manifest"),
    _point("open: epoch, no hint", "writer", "open", "after create manifest"),
    _point("open: epoch and hint, no fence", "writer", "open", "before create wal", _published),
    _point("open: after the fence", "writer", "open", "after create wal"),
    _point("write: before the log PUT", "writer", "write", "before create wal"),
    _point("write: after the log PUT, before it is applied", "writer", "write", "after create wal"),
    _point("large write: before the first segment", "writer", "large", "before put segments"),
    _point("large write: between segments", "writer", "large", "before put segments", _uploaded),
    _point("large write: segments, no record", "writer", "large", "before create wal", _uploaded),
    _point("large write: after its record", "writer", "large", "after create wal", _uploaded),
    _point("load: before the first segment", "loader", "load", "before put segments"),
    _point("load: between segments", "loader", "load", "before put segments", _uploaded),
    _point("load: segments, no ingest record", "loader", "load", "before create wal", _uploaded),
    _point("load: after the ingest record", "loader", "load", "after create wal", _uploaded),
    _point("fold: before the first segment", "indexer", "fold", "before put segments"),
    _point("fold: between segments", "indexer", "fold", "before put segments", _uploaded),
    _point("fold: segments, no manifest", "indexer", "fold", "before create manifest", _uploaded),
    _point("fold: manifest, no hint", "indexer", "fold", "after create manifest"),
    _point("fold: after the hint", "indexer", "fold", "after put hint.json"),
    _point(
        "compaction: before the epoch",
        "compactor",
        "compact",
        "before create manifest",
        _not_uploaded,
    ),
    _point("compaction: epoch, no hint", "compactor", "compact", "after create manifest"),
    _point("compaction: epoch, no segment", "compactor", "compact", "before put segments"),
    _point("compaction: mid-upload", "compactor", "compact", "before put segments", _uploaded),
    _point(
        "compaction: segments, no manifest",
        "compactor",
        "compact",
        "before create manifest",
        _uploaded,
    ),
    _point(
        "compaction: manifest, no hint", "compactor", "compact", "after create manifest", _uploaded
    ),
    _point("compaction: after the hint", "compactor", "compact", "after put hint.json", _uploaded),
    _point("collection: after the clock", "collector", "collect", "after put clock"),
    _point("collection: before forgetting", "collector", "collect", "before create manifest"),
    _point("collection: forgotten, no hint", "collector", "collect", "after create manifest"),
    _point("collection: before condemning in the log", "collector", "collect", "before create wal"),
    _point("collection: condemned, nothing deleted", "collector", "collect", "after create wal"),
    _point("collection: forgotten, nothing deleted", "collector", "collect", "before delete"),
    _point("collection: between deletes", "collector", "collect", "before delete", _deleted),
    _point("collection: after a delete", "collector", "collect", "after delete"),
    _point("upkeep: folded, no manifest", "writer", "own fold", "before create manifest"),
    _point("upkeep: folded, manifest, no hint", "writer", "own fold", "after create manifest"),
    _point(
        "upkeep: compaction, before a manifest", "writer", "own compact", "before create manifest"
    ),
    _point(
        "upkeep: compaction, manifest, no hint", "writer", "own compact", "after create manifest"
    ),
    _point("upkeep: between deletes", "writer", "own compact", "before delete", _deleted),
    _point("read: between the root and the log", "reader", "read", "before list wal"),
    _point("read: in the middle of a segment", "reader", "read", "after range segments"),
)
"""All of them; the first word tells whose step it is."""

BY_NAME = {point.name: point for point in CRASH_POINTS}

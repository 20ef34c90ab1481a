"""Patches of one document that follow each other in the log, merged into one.

A document that is patched again and again (a counter) would cost every reader a walk over all of
its patches. So the memtable's index merges them, a few at a time, and keeps what they were made
from at hand for the rare reader who needs to look between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reef.data.plain import Document, PlainRows, Rows, union_of
from reef.data.rows import PATCH

Version = tuple[int, Rows, int]
"""A version of an id: the LSN, and the row of some rows that holds it."""


_Older = tuple[Sequence[Version], Any] | None


class MergedPatches(PlainRows):
    """One patch that does what several did, the first of them in slot `first_lsn`."""

    __slots__ = ("_merged", "_older", "first_lsn")

    def __init__(self, merged: Sequence[Version], older: MergedPatches | None) -> None:
        """From plain versions, newest first, and what was merged below them."""
        rows: list[PlainRows] = [] if older is None else [older]
        changed: Document = {} if older is None else dict(older.rows[0])
        for _, batch, row in reversed(merged):
            assert isinstance(batch, PlainRows)
            changed.update(batch.rows[row])
            rows.append(batch)
        super().__init__([changed], bytes([PATCH]), union_of(batch.types for batch in rows))
        self.first_lsn: int = merged[-1][0] if older is None else older.first_lsn
        self._merged = merged
        # Not the older one itself: its row is not needed any more, and may be large.
        self._older: _Older = None if older is None else (older._merged, older._older)

    def versions(self) -> list[Version]:
        """What it was merged from, newest first."""
        found = list(self._merged)
        older = self._older
        while older is not None:
            merged, older = older
            found += merged
        return found

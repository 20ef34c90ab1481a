"""Where a campaign is: a line that outlives the process that wrote it."""

from __future__ import annotations

from typing import Any

LONGEST = 200
_note: Any = None


def keep_in(note: Any) -> None:
    """From now on `at` writes into that shared array of characters."""
    global _note
    _note = note


def at(what: str) -> None:
    """Say what is being tried now, with the command that repeats it: if this process dies of it,
    that is what will be told."""
    if _note is not None:
        _note.value = what.encode()[: LONGEST - 1]

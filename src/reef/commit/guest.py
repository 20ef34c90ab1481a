"""Appending to the log without being its writer: bulk loads and collectors do.

A guest takes the next slot like anybody, under the epoch it found, and fences nobody: the
writer that meets the entry in its slot applies it and goes on to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reef.commit.contents import Contents
from reef.commit.follower import Follower
from reef.commit.slot import win


def append_as_guest(
    follower: Follower[Any, Any], decide: Callable[[], Contents | None]
) -> int | None:
    """Append what `decide` makes of the newest state; the slot, whose entry the state has.

    `decide` is asked when the state has everything that comes before the slot, and again when
    another append came first. It returns None, or raises, to let it be: nothing is appended then.
    """
    with follower.lock:
        follower.refresh()
        while True:
            contents = decide()
            if contents is None:
                return None
            lsn = win(follower, contents)
            if lsn is not None:
                return lsn

"""A share: one worker's part of a campaign, and how it tells what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """A promise that was broken: which one, and the command that shows it again."""

    what: str
    repeat: str


@dataclass(frozen=True)
class Share:
    """Part `index` of `parts`. A campaign with a finite set of cases does those whose number is
    `index` modulo `parts`, one without end draws from `seed` and `index`."""

    index: int
    parts: int
    seed: int
    finished: Callable[[], bool]
    count: Callable[[str, int], None]
    fail: Callable[[Failure], None]

"""A figure of `bench.scale`, and how it is timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Figure:
    """What was measured, and what it should not exceed."""

    what: str
    value: float
    unit: str
    bar: float

    @property
    def met(self) -> bool:
        """Whether it did not."""
        return self.value <= self.bar

    def cells(self) -> tuple[str, ...]:
        """What the table shows."""
        verdict = "met" if self.met else "MISSED"
        return self.what, f"{self.value:.3g} {self.unit}", f"≤ {self.bar:g} {self.unit}", verdict


def timed(call: Callable[[], Any], rounds: int = 5) -> float:
    """The median of the seconds that a call takes."""
    taken = []
    for _ in range(rounds):
        start = perf_counter()
        call()
        taken.append(perf_counter() - start)
    return median(taken)

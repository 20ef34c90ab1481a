"""Timing: medians of alternating rounds, so that a machine's moods fall on both sides alike."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

__all__ = ["alternate", "median", "percentile", "seconds"]


def seconds(call: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = perf_counter()
    call()
    return perf_counter() - start


def alternate(rounds: int, *calls: Callable[[int], Any]) -> list[list[float]]:
    """Seconds of each call (it gets the round's number), taking turns; no garbage collection."""
    taken: list[list[float]] = [[] for _ in calls]
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            for call, times in zip(calls, taken, strict=True):
                start = perf_counter()
                call(number)
                times.append(perf_counter() - start)
    finally:
        gc.enable()
    return taken


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that `percent` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

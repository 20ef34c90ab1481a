"""Waiting for background work without sleeping, and without missing what was done already."""

from __future__ import annotations

from collections.abc import Callable

from reef.lsm.upkeep.loop import Task

PATIENCE = 60.0
"""Longer than anything takes that happens at all."""


def wait_until(task: Task | None, happened: Callable[[], bool]) -> None:
    """Wait until something has come true by a pass of the task."""
    assert task is not None
    with task._lane.lock:
        assert task._ended.wait_for(happened, PATIENCE)

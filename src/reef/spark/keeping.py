"""Keeping a state from collection for as long as a read of it runs.

What a namespace supersedes stays for its retention anyway, so a read is pinned only when it takes
a good part of that: the tasks that are running then see to it, all under one name, and nobody has
to take the pin away. Clocks only decide how early; a state that was collected all the same is an
error and never a wrong answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from reef.errors import AccessDenied, PastRetention
from reef.lsm.read.view import View
from reef.lsm.retention.pins import pin
from reef.lsm.tree import Tree

# A namespace may retain nothing at all: then the pin is all there is.
_SHORTEST = 900.0
_logger = logging.getLogger("reef")


@dataclass(frozen=True)
class Hold:
    """Under which name a read is pinned, and since when (by the driver's clock) it need not be."""

    name: str
    since: float


def hold(tree: Tree, view: View) -> Hold:
    """Begin to keep a state: pinned at once where the retention is short, otherwise once the
    read turns out to be long."""
    found = Hold(f"spark-{tree.environment.nonce()}", tree.environment.now())
    if view.manifest.settings.retention < _SHORTEST:
        _pin(tree, view, found)
    return found


def kept(
    batches: Iterable[pa.RecordBatch], tree: Tree, view: View, held: Hold
) -> Iterator[pa.RecordBatch]:
    """The batches; the pin is renewed as they go by, whenever a third of its time is over."""
    now = tree.environment.now
    patience = max(view.manifest.settings.retention, _SHORTEST) / 3
    due = held.since + patience
    for batch in batches:
        if now() >= due:
            _pin(tree, view, held)
            due = now() + patience
        yield batch


def _pin(tree: Tree, view: View, held: Hold) -> None:
    seconds = max(view.manifest.settings.retention, _SHORTEST)
    try:
        pin(tree, view, held.name, seconds)
    except AccessDenied:
        _logger.warning("the bucket may only be read, so the state being read is not pinned")
    except PastRetention as old:
        # It can be read for a while yet, and whoever comes too late is told.
        _logger.warning("the state being read is not kept any longer: %s", old)

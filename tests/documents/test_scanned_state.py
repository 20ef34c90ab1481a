"""What a scan shows when its state is collected, or when something is lost that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.documents.reading import _past
from reef.documents.scanned_state import ScannedState
from reef.errors import ObjectNotFound
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.read.view import View
from reef.store import MemoryStore
from support.faults import Clock

SETTINGS = Settings(retention=100, grace=100)


class World:
    """A bucket with documents in several segments, and whoever compacts and collects."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        self.writer = self.open("w")
        for number in range(3):
            self.write(number)

    def open(self, mode: str) -> Namespace:
        options = Options(cache_bytes=0)
        return Database(self.store, options, self.clock.environment()).namespace(
            "n", mode, maintain=False, settings=SETTINGS
        )

    def write(self, number: int) -> None:
        self.writer.write(upserts=[{"id": f"{number}", "n": number}])
        self.writer.index()

    def collect(self) -> None:
        """Compact everything away, and collect it."""
        self.writer.compact(full=True)
        for _ in range(2):
            self.clock.advance(1_000)
            self.writer.gc(apply=True)

    def lose(self) -> None:
        """Lose a segment that is live."""
        self.store.delete(next(self.store.list("namespaces/n/segments/")).key)


def ids(scan: reef.Scan) -> list[Any]:
    return [row["id"] for row in scan.documents()]


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_second_iteration_never_shows_another_state(mode: str) -> None:
    world = World()
    reader = world.open("r") if mode == "r" else world.writer
    scan = reader.scan()
    assert ids(scan) == ["0", "1", "2"]
    world.write(3)
    assert ids(scan) == ["0", "1", "2"]
    world.collect()
    for _ in range(2):
        with pytest.raises(reef.PastRetention):
            ids(scan)
    assert ids(reader.scan()) == ["0", "1", "2", "3"]


def test_before_anything_was_shown_a_newer_state_takes_its_place_for_good() -> None:
    world = World()
    reader = world.open("r")
    scan = reader.scan()
    world.write(3)
    world.collect()
    assert ids(scan) == ["0", "1", "2", "3"]
    world.write(4)
    reader.refresh()
    assert ids(scan) == ["0", "1", "2", "3"]
    world.collect()
    with pytest.raises(reef.PastRetention):
        ids(scan)


def test_that_nothing_was_found_is_shown_too() -> None:
    world = World()
    reader = world.open("r")
    scan = reader.scan(filter="n = 3")
    assert ids(scan) == []
    world.write(3)
    world.collect()
    with pytest.raises(reef.PastRetention):
        ids(scan)


def test_of_two_iterations_that_begin_together_both_show_the_same() -> None:
    """One of them finds the state gone before, or after, the other has shown some of it."""
    world = World()
    reader = world.open("r")
    old = reader._tree.view
    world.write(3)
    reader.refresh()
    new = reader._tree.view
    gone = ObjectNotFound("segments/x.seg")
    lost: set[View] = set()

    def read(view: View, memory: MemoryRuns) -> Iterator[pa.RecordBatch]:
        if view in lost:
            raise gone
        return view.scan()

    state = ScannedState(old, lambda gone: new, _past)
    one, other = state.batches(read), state.batches(read)
    next(one)
    lost.add(old)
    with pytest.raises(reef.PastRetention):
        next(other)

    lost.clear()
    state = ScannedState(old, lambda gone: new, _past)
    one, other = state.batches(read), state.batches(read)
    next(other)  # of the old state, which the other one has in hand already
    lost.add(old)
    with pytest.raises(reef.PastRetention):
        next(one)

    state = ScannedState(old, lambda gone: new, _past)
    one, other = state.batches(read), state.batches(read)
    assert sum(batch.num_rows for batch in one) == 4
    lost.clear()
    assert sum(batch.num_rows for batch in other) == 4


def test_a_scan_that_began_ends_with_its_state() -> None:
    world = World()
    rows = iter(world.open("r").scan().documents())
    next(rows)
    world.collect()
    # What is in hand is shown; what is not cannot be made up from another state.
    try:
        rest = [row["id"] for row in rows]
    except reef.PastRetention:
        rest = ["1", "2"]
    assert rest == ["1", "2"]


READS: dict[str, Callable[[Namespace, Path], Any]] = {
    "get": lambda ns, path: [ns.get(id) for id in "012"],
    "get_many": lambda ns, path: ns.get_many(["0", "1", "2"]),
    "scan": lambda ns, path: ids(ns.scan()),
    "count": lambda ns, path: ns.count(),
    "count of a filter": lambda ns, path: ns.count("n > 0"),
    "at a generation": lambda ns, path: ids(ns.at(generation=ns.generation).scan()),
    "at an lsn": lambda ns, path: ns.at(lsn=ns.lsn).get_many(["0", "1", "2"]),
    "delete_where": lambda ns, path: world_writer(ns).write(delete_where="n = 1"),
    "a condition": lambda ns, path: world_writer(ns).write(
        upserts=[{"id": id} for id in "012"], condition=reef.if_absent()
    ),
    "compact": lambda ns, path: ns.compact(full=True),
}


def world_writer(ns: Namespace) -> Namespace:
    if ns._writer is None:
        pytest.skip("a reader does not write")
    return ns


@pytest.mark.parametrize("mode", ["r", "w"])
@pytest.mark.parametrize("read", READS)
def test_a_live_segment_that_is_missing_is_told_as_damage(
    read: str, mode: str, tmp_path: Path
) -> None:
    world = World()
    ns = world.open("r") if mode == "r" else world.open("w")
    world.lose()
    with pytest.raises(reef.Corruption, match="missing"):
        READS[read](ns, tmp_path)

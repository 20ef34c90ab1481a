"""A namespace whose clocks are all in hand, for tests of pins and collectors."""

from __future__ import annotations

from typing import Any

import reef
from reef.documents.namespace import Namespace
from reef.lsm.read.history import Moment, view_of
from reef.lsm.retention.pinboard import PinnedState
from reef.lsm.tree import Tree
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore

PREFIX = "namespaces/n/"
SETTINGS = reef.Settings(retention=10.0, grace=10.0)
OLD = {"a": 1, "b": 1, "c": 1}
NEW = {"a": 2, "b": 1}


class Bench:
    """Three documents, two of them folded; `faulty` is what the actor who sleeps sees."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.environment = self.clock.environment()
        self.store = MemoryStore(self.environment)
        self.faulty = FaultyStore(self.store)
        self.ns = self.open("w")
        self.ns.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        self.ns.index()
        self.ns.write(upserts=[{"id": "c", "n": 1}])

    def open(self, mode: str = "r", store: Store | None = None) -> Namespace:
        database = reef.connect(store or self.store, environment=self.environment)
        return database.namespace("n", mode, settings=SETTINGS, maintain=False)

    def tree(self, store: Store | None = None) -> Tree:
        """The tree of a handle of its own."""
        return self.open("r", store)._tree

    def supersede(self) -> None:
        """Supersede every object that there is."""
        self.ns.write(upserts=[{"id": "a", "n": 2}], deletes=["c"])
        self.ns.index()
        self.ns.compact(full=True)

    def move_on(self) -> None:
        """Supersede every object that there is, and collect it when its retention has passed."""
        self.supersede()
        self.clock.advance(25)
        self.ns.gc(apply=True)
        self.ns.gc(apply=True)

    def pins(self) -> dict[str, PinnedState]:
        """What the board says."""
        return self.ns._tree.board.read().pins

    def keys(self, folder: str) -> set[str]:
        """The objects of one folder."""
        return {info.key.removeprefix(PREFIX) for info in self.store.list(f"{PREFIX}{folder}/")}


def rows(reading: Any) -> dict[str, int]:
    """What a reading shows."""
    return {row["id"]: row["n"] for row in reading.scan().documents()}


def rows_at(tree: Tree, moment: Moment) -> dict[str, int]:
    """What a moment shows."""
    return {
        id: n
        for batch in view_of(tree, moment).scan()
        for id, n in zip(batch.column("id").to_pylist(), batch.column("n").to_pylist(), strict=True)
    }

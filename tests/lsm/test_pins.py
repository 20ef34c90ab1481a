"""A pinned state outlives its retention; one that is let go, or not renewed, does not."""

from __future__ import annotations

import pytest

import reef
from reef.documents.namespace import Namespace
from reef.errors import Closed, InvalidInput, PastRetention
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.retention.pins import pin, unpin
from reef.store import Store
from reef.store.memory import MemoryStore
from support.faults import Clock

SETTINGS = reef.Settings(retention=10.0, grace=10.0)


class Bench:
    """A namespace whose clocks are all in hand."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.environment = self.clock.environment()
        self.store: Store = MemoryStore(self.environment)
        self.ns = self.open("w")
        self.ns.write(upserts=[{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        self.ns.index()
        self.ns.write(upserts=[{"id": "c", "n": 1}])

    def open(self, mode: str) -> Namespace:
        database = reef.connect(self.store, environment=self.environment)
        return database.namespace("n", mode, settings=SETTINGS, maintain=False)

    def move_on(self) -> None:
        """Supersede every object that there is, and let its retention pass."""
        self.ns.write(upserts=[{"id": "a", "n": 2}], deletes=["c"])
        self.ns.index()
        self.ns.compact(full=True)
        self.clock.advance(25)
        self.ns.gc(apply=True)
        self.ns.gc(apply=True)


OLD = {"a": 1, "b": 1, "c": 1}
NEW = {"a": 2, "b": 1}


def rows(reading: object) -> dict[str, int]:
    return {row["id"]: row["n"] for row in reading.scan().documents()}  # type: ignore[attr-defined]


def test_without_a_pin_the_state_goes() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    moment = moment_of(tree.view)
    assert rows_of_view(tree, moment) == OLD
    bench.move_on()
    with pytest.raises(PastRetention):
        view_of(tree, moment)


def rows_of_view(tree: object, moment: object) -> dict[str, int]:
    view = view_of(tree, moment)  # type: ignore[arg-type]
    return {
        id: n
        for batch in view.scan()
        for id, n in zip(batch.column("id").to_pylist(), batch.column("n").to_pylist(), strict=True)
    }


def test_a_pinned_state_stays_until_it_is_let_go() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    moment = moment_of(tree.view)
    pin(tree, tree.view, "mine", 1000.0)
    bench.move_on()
    assert rows_of_view(bench.open("r")._tree, moment) == OLD
    assert rows(bench.ns) == NEW
    assert bench.ns.verify(deep=True).sound
    unpin(tree, "mine")
    unpin(tree, "mine")
    bench.clock.advance(25)
    assert bench.ns.gc(apply=True).deleted > 0
    with pytest.raises(PastRetention):
        view_of(tree, moment)


def test_a_pin_that_is_not_renewed_lapses() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    moment = moment_of(tree.view)
    pin(tree, tree.view, "mine", 60.0)
    view = tree.view
    for _ in range(4):
        bench.clock.advance(20)
        bench.move_on()
        pin(tree, view, "mine", 60.0)
    assert rows_of_view(tree, moment) == OLD
    bench.clock.advance(100)
    waiting = bench.ns.gc().plan
    assert "mine" in waiting.lapsed
    bench.move_on()
    assert bench.ns._tree.register.head().manifest.snapshots == {}
    with pytest.raises(PastRetention):
        view_of(tree, moment)
    with pytest.raises(PastRetention):
        pin(tree, view, "mine", 60.0)


def test_the_dry_run_says_who_holds_it() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    pin(tree, tree.view, "mine", 1000.0)
    bench.move_on()
    waiting = bench.ns.gc().plan.waiting
    assert any("pinned as mine" in item.reason for item in waiting)


def test_a_pin_made_while_a_collector_plans_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.ns.write(upserts=[{"id": "a", "n": 2}], deletes=["c"])
    bench.ns.index()
    bench.ns.compact(full=True)
    bench.clock.advance(25)
    tree = bench.open("r")._tree
    moment, view = moment_of(tree.view), tree.view
    collector = bench.open("r")
    publish = collector._tree.register.publish
    calls: list[str] = []

    def pinned_first(*arguments: object) -> object:
        calls.append("publish")
        if len(calls) == 1:
            pin(tree, view, "late", 1000.0)
        return publish(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(collector._tree.register, "publish", pinned_first)
    assert collector.gc(apply=True).deleted > 0
    # The first plan did not know of the pin, and was not carried out.
    assert len(calls) == 2
    bench.move_on()
    assert rows_of_view(tree, moment) == NEW


def test_a_state_whose_manifest_is_nearly_due_cannot_be_pinned() -> None:
    """Manifests are deleted without a publication: a collector may have decided on it already."""
    bench = Bench()
    tree = bench.open("r")._tree
    view = tree.view
    bench.ns.index()
    bench.clock.advance(8)
    with pytest.raises(PastRetention):
        pin(tree, view, "mine", 1000.0)
    assert bench.ns._tree.register.head().manifest.snapshots == {}


def test_a_name_in_use_does_not_vouch_for_an_older_state() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    old = tree.view
    bench.move_on()
    newer = bench.open("r")._tree
    pin(newer, newer.view, "mine", 1000.0)
    with pytest.raises(PastRetention):
        pin(newer, old, "mine", 1000.0)


def test_snapshot() -> None:
    bench = Bench()
    with bench.ns.snapshot(seconds=1000) as held:
        assert rows(held) == OLD
        bench.move_on()
        assert rows(held) == OLD
        assert rows(bench.ns) == NEW
        assert held.get("c") == {"id": "c", "n": 1}
        name = held.name
        assert name in bench.ns._tree.register.head().manifest.snapshots
        (shown,) = bench.open("r").status().pinned
        assert name in shown
    assert bench.ns._tree.register.head().manifest.snapshots == {}
    with pytest.raises(Closed):
        held.get("c")
    held.close()


@pytest.mark.parametrize("seconds", [0, -1, "x", float("inf"), float("nan")])
def test_snapshots_are_kept_for_some_seconds(seconds: float) -> None:
    with pytest.raises(InvalidInput):
        Bench().ns.snapshot(seconds=seconds)

"""A pinned state outlives its retention; one that is let go, or not renewed, does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lsm.pinning import NEW, OLD, PREFIX, Bench, rows, rows_at
from reef.errors import Closed, Corruption, InvalidInput, InvalidName, PastRetention
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.retention.pinboard import BOARDS, PINS
from reef.lsm.retention.pins import pin, unpin
from support.faults import FaultyStore


def test_without_a_pin_the_state_goes() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    moment = moment_of(tree.view)
    assert rows_at(tree, moment) == OLD
    bench.move_on()
    with pytest.raises(PastRetention):
        view_of(tree, moment)


def test_a_pinned_state_stays_until_it_is_let_go() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    moment = moment_of(tree.view)
    pin(tree, tree.view, "mine", 1000.0)
    bench.move_on()
    assert rows_at(bench.open("r")._tree, moment) == OLD
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
    assert rows_at(tree, moment) == OLD
    bench.clock.advance(100)
    assert bench.ns.gc().lapsed == ("mine",)
    bench.move_on()
    assert bench.pins() == {}
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


def test_a_state_can_be_pinned_as_long_as_it_is_retained() -> None:
    bench = Bench()
    tree = bench.open("r")._tree
    view = tree.view
    bench.ns.write(upserts=[{"id": "a", "n": 2}], deletes=["c"])
    bench.ns.index()
    bench.ns.compact(full=True)
    bench.clock.advance(9.9)
    bench.ns.gc(apply=True)
    pin(tree, view, "mine", 1000.0)
    bench.clock.advance(25)
    bench.ns.gc(apply=True)
    assert rows_at(bench.open("r")._tree, moment_of(view)) == OLD


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
        assert list(bench.pins()) == [name]
        (shown,) = bench.open("r").status().pinned
        assert name in shown
    assert bench.pins() == {}
    with pytest.raises(Closed):
        held.get("c")
    held.close()


@pytest.mark.parametrize("seconds", [0, -1, "x", float("inf"), float("nan")])
def test_snapshots_are_kept_for_some_seconds(seconds: float) -> None:
    with pytest.raises(InvalidInput):
        Bench().ns.snapshot(seconds=seconds)


def test_a_pin_without_end_needs_no_heartbeat() -> None:
    bench = Bench()
    tree = bench.tree()
    moment = moment_of(tree.view)
    pin(tree, tree.view, "branch")
    pin(tree, tree.view, "branch")
    assert bench.keys("heartbeats") == set()
    assert len(bench.keys("pins")) == 1
    bench.clock.advance(10_000_000)
    bench.move_on()
    assert rows_at(bench.tree(), moment) == OLD
    (shown,) = bench.open().status().pinned
    assert shown.endswith("as branch for good")
    assert any(item.due is None for item in bench.ns.gc().plan.waiting)
    unpin(tree, "branch")
    bench.move_on()
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)


def test_a_name_goes_on_to_another_state() -> None:
    bench = Bench()
    tree = bench.tree()
    moment = moment_of(tree.view)
    pin(tree, tree.view, "mine", 1000.0)
    bench.supersede()
    newer = bench.tree()
    pin(newer, newer.view, "mine", 1000.0)
    bench.move_on()
    bench.move_on()
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)
    assert rows_at(bench.tree(), moment_of(newer.view)) == NEW


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129, "..", 7])
def test_names_that_no_pin_can_have(name: str) -> None:
    bench = Bench()
    with pytest.raises(InvalidName):
        pin(bench.tree(), bench.tree().view, name)


def test_a_long_pin_keeps_what_its_state_names_and_nothing_else() -> None:
    """Ten rounds of writing, folding and merging above a pinned row: it used to keep 21 segments
    and 10 log objects."""
    bench = Bench()
    bench.ns.index()
    bench.ns.compact(full=True)
    bench.clock.advance(25)
    bench.ns.gc(apply=True)
    tree = bench.tree()
    moment = moment_of(tree.view)
    pin(tree, tree.view, "long")
    (pinned,) = tree.view.manifest.segments
    for number in range(10):
        bench.ns.write(upserts=[{"id": "a", "n": number}])
        bench.ns.index()
        bench.ns.compact(full=True)
        bench.clock.advance(25)
        bench.ns.gc(apply=True)
    bench.clock.advance(25)
    bench.ns.gc(apply=True)
    (live,) = bench.tree().view.manifest.segments
    assert bench.keys("segments") == {pinned.key, live.key}
    assert bench.keys("wal") == set()
    root = bench.tree().head.root
    assert [gone.key for gone in root.superseded] == [pinned.key]
    assert root.folded == ()
    assert len(bench.keys("manifest")) <= 3
    assert rows_at(bench.tree(), moment) == OLD
    assert bench.open().verify(deep=True).sound
    unpin(tree, "long")
    bench.ns.gc(apply=True)
    assert bench.keys("segments") == {live.key}
    assert bench.tree().head.root.superseded == ()


def test_a_pin_keeps_its_part_of_the_log_and_the_loads_in_it() -> None:
    bench = Bench()
    bench.ns.load([{"id": "d", "n": 1}])
    tree = bench.tree()
    moment = moment_of(tree.view)
    (load,) = tree.view.unfolded.ingests
    pin(tree, tree.view, "mine", 10_000.0)
    bench.ns.write(upserts=[{"id": "e", "n": 1}])
    bench.move_on()
    bench.move_on()
    first = tree.view.manifest.wal_floor
    assert bench.keys("wal") == {bench.ns._tree.log.key(n) for n in range(first, moment.lsn + 1)}
    assert load.key in bench.keys("segments")
    assert rows_at(bench.tree(), moment) == {**OLD, "d": 1}
    assert bench.open().verify(deep=True).sound


def test_a_thousand_readers_renew_without_any_publication() -> None:
    bench = Bench()
    faulty = FaultyStore(bench.store)
    tree = bench.tree(faulty)
    for number in range(1000):
        pin(tree, tree.view, f"{number:026d}", 60.0)
    assert len(bench.pins()) == 1000
    assert len(bench.keys("pins")) == BOARDS
    newest = max(bench.keys("pins"))
    assert bench.store.head(PREFIX + newest).size < 256 * 1024
    made = len(faulty.requests)
    before = bench.tree().head.root.generation
    for _ in range(3):
        bench.clock.advance(20)
        for number in range(1000):
            pin(tree, tree.view, f"{number:026d}", 60.0)
    renewals = faulty.requests[made:]
    assert {kind for kind, _ in renewals} == {"put"}
    assert len(renewals) == 3000
    assert all("/heartbeats/" in key for _, key in renewals)
    assert not [key for _, key in faulty.requests if "manifest/" in key]
    assert bench.tree().head.root.generation == before


def test_a_damaged_board_falls_back_and_is_repaired() -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    pin(tree, view, "one", 1000.0)
    pin(tree, view, "two", 1000.0)
    key = PREFIX + PINS.key(2)
    data = bytearray(bench.store.get(key).data)
    data[len(data) // 2] ^= 0x20
    bench.store.put(key, bytes(data))
    report = bench.open().verify()
    assert {problem.key for problem in report.problems} == {PINS.key(2)}
    done = bench.open().repair(apply=True)
    assert done.quarantined == (PINS.key(2),)
    assert bench.open().verify().sound
    assert bench.open().repair(apply=True).actions == ()
    assert list(bench.pins()) == ["one"]
    # Its holder enters it anew when it is renewed.
    pin(tree, view, "two", 1000.0)
    assert list(bench.pins()) == ["one", "two"]


def test_a_board_that_lost_its_floor_does_not_vouch_for_what_is_gone() -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    bench.move_on()
    for key in bench.keys("pins"):
        bench.store.delete(PREFIX + key)
    with pytest.raises(PastRetention):
        pin(tree, view, "mine", 1000.0)
    assert bench.pins() == {}


def test_no_board_that_can_be_read_is_an_error_and_not_an_empty_one() -> None:
    bench = Bench()
    tree = bench.tree()
    pin(tree, tree.view, "mine", 1000.0)
    bench.store.put(PREFIX + PINS.key(1), b"damaged")
    bench.supersede()
    bench.clock.advance(25)
    with pytest.raises(Corruption):
        bench.open().gc(apply=True)


def test_verification_misses_a_pinned_generation() -> None:
    bench = Bench()
    tree = bench.tree()
    pin(tree, tree.view, "mine")
    key = tree.register.key(tree.view.manifest.generation)
    bench.move_on()
    bench.store.delete(PREFIX + key)
    (problem,) = bench.open().verify().problems
    assert problem.key == key
    assert "pinned" in problem.meaning
    bench.open().repair(apply=True)
    assert bench.open().verify().sound


def test_an_idle_writer_takes_a_snapshot_and_exports_though_others_collected(
    tmp_path: Path,
) -> None:
    """What the writer knows of the root was collected meanwhile: it looks again."""
    bench = Bench()
    for number in range(3):
        other = bench.open()
        other.index()
        other.compact(full=True)
        bench.clock.advance(25)
        other.gc(apply=True)
        bench.clock.advance(25)
        other.gc(apply=True)
        with bench.ns.snapshot() as held:
            assert rows(held) == {**OLD, **({"d": number - 1} if number else {})}
        bench.ns.write(upserts=[{"id": "d", "n": number}])
    idle = bench.open("r")
    view = bench.ns._tree.view
    other = bench.open()
    other.index()
    other.compact(full=True)
    bench.clock.advance(25)
    other.gc(apply=True)
    bench.ns._tree.cache.clear() if hasattr(bench.ns._tree.cache, "clear") else None
    assert view is bench.ns._tree.view
    exported = bench.ns.export(tmp_path / "out")
    assert exported.rows == 4
    assert idle.count() == 4

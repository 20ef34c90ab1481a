"""Pins, collectors, folds and sleepers: every order of two of them that matters, made exact."""

from __future__ import annotations

from threading import Barrier, Event, Thread
from typing import Any

import msgspec
import pytest

from lsm.pinning import NEW, OLD, PREFIX, Bench, rows, rows_at
from reef.errors import PastRetention
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.repair.health import examine
from reef.lsm.retention.pinboard import BOARDS, HEARTBEATS, PINS
from reef.lsm.retention.pins import pin, unpin
from reef.manifest import MANIFESTS, Manifest, Pin
from support.faults import Crash, FaultyStore, request


def sound(bench: Bench) -> None:
    report = bench.open().verify(deep=True)
    assert report.sound, report.problems


# The pinner and the collector

STEPS = {
    "before the root is read": request("get", "hint.json"),
    "before the listing": request("list", "segments/"),
    "before the floor is raised": request("create", "pins/"),
}
LATER = {
    "before the root forgets": request("create", "manifest/"),
    "before the deletes": request("delete", ""),
}


@pytest.mark.parametrize("step", STEPS)
def test_what_is_pinned_before_the_floor_rises_stays(step: str) -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    bench.supersede()
    bench.clock.advance(25)
    collector = bench.open("r", bench.faulty)
    bench.faulty.pause_before(STEPS[step], lambda: pin(tree, view, "mine", 1000.0))
    assert collector.gc(apply=True).deleted > 0
    assert rows_at(bench.tree(), moment_of(view)) == OLD
    sound(bench)


@pytest.mark.parametrize("step", LATER)
def test_below_the_floor_nothing_is_pinned_any_more(step: str) -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    bench.supersede()
    bench.clock.advance(25)
    refused: list[str] = []

    def late() -> None:
        with pytest.raises(PastRetention) as told:
            pin(tree, view, "mine", 1000.0)
        refused.append(str(told.value))

    collector = bench.open("r", bench.faulty)
    bench.faulty.pause_before(LATER[step], late)
    assert collector.gc(apply=True).deleted > 0
    assert refused
    assert bench.pins() == {}
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment_of(view))
    sound(bench)


def test_a_pinner_that_sleeps_behind_its_heartbeat_is_refused() -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    bench.supersede()

    def collect() -> None:
        bench.clock.advance(25)
        assert bench.open().gc(apply=True).deleted > 0

    bench.faulty.pause_before(request("create", "pins/"), collect)
    with pytest.raises(PastRetention):
        pin(tree, tree.view, "mine", 1000.0)
    assert bench.pins() == {}
    # What it left behind goes with the next collection.
    bench.clock.advance(25)
    bench.open().gc(apply=True)
    assert bench.keys("heartbeats") == set()


@pytest.mark.parametrize("answer", ["lost", "twice"])
def test_an_answer_that_is_lost_pins_once(answer: str) -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    match = request("create", "pins/")
    if answer == "lost":
        bench.faulty.lose_answer(match)
    else:
        bench.faulty.duplicate(match)
    pin(tree, tree.view, "mine", 1000.0)
    assert list(bench.pins()) == ["mine"]
    assert len(bench.keys("pins")) == 1


def test_new_snapshots_do_not_disturb_a_collector() -> None:
    """A snapshot before each of its requests: it lists once, plans once, and publishes once."""
    bench = Bench()
    bench.supersede()
    bench.clock.advance(25)
    collector = bench.open("r", bench.faulty)
    reader = bench.open()
    listings: list[str] = []
    bench.faulty.pause_before(request("list", "segments/"), lambda: listings.append("listed"))
    for nth in range(1, 40):
        bench.faulty.pause_before(
            lambda kind, key: True,
            lambda nth=nth: pin(reader._tree, reader._tree.view, f"s{nth}", 1000.0),  # type: ignore[misc]
            nth,
        )
    before = len(bench.keys("manifest"))
    assert collector.gc(apply=True).deleted > 0
    assert listings == ["listed"]
    published = [key for kind, key in bench.faulty.requests if kind == "create"]
    assert len([key for key in published if "manifest/" in key]) == 1
    assert len(bench.keys("manifest")) < before
    assert len(bench.pins()) > 5
    assert rows(bench.open()) == NEW
    sound(bench)


def test_a_collector_that_dies_after_it_raised_the_floor_leaves_a_sound_namespace() -> None:
    for nth in range(1, 30):
        bench = Bench()
        tree = bench.tree()
        pin(tree, tree.view, "mine", 1000.0)
        bench.supersede()
        bench.clock.advance(25)
        collector = bench.open("r", bench.faulty)
        bench.faulty.crash_before(nth=nth)
        try:
            collector.gc(apply=True)
        except Crash:
            pass
        else:
            break
        sound(bench)
        assert rows_at(bench.tree(), moment_of(tree.view)) == OLD
        assert bench.open().gc(apply=True).applied
        assert rows(bench.open()) == NEW
        sound(bench)
    else:
        raise AssertionError("it never ended")


# Renewals and lapses


def test_a_late_renewal_is_not_lost_to_a_collector_that_saw_the_pin_lapse() -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    pin(tree, view, "mine", 30.0)
    bench.supersede()
    bench.clock.advance(40)
    collector = bench.open("r", bench.faulty)
    bench.faulty.pause_before(request("create", "pins/"), lambda: pin(tree, view, "mine", 30.0))
    collector.gc(apply=True)
    assert list(bench.pins()) == ["mine"]
    assert rows_at(bench.tree(), moment_of(view)) == OLD


def test_a_holder_that_slept_is_told_once_its_pin_was_taken() -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    view = tree.view
    pin(tree, view, "mine", 30.0)
    bench.supersede()

    def collect() -> None:
        bench.clock.advance(40)
        assert bench.open().gc(apply=True).lapsed == ("mine",)

    # It looks at its heartbeat, sleeps, and writes it.
    bench.faulty.pause_before(request("put", HEARTBEATS), collect)
    with pytest.raises(PastRetention):
        pin(tree, view, "mine", 30.0)
    assert bench.pins() == {}


def test_a_holder_that_slept_goes_on_if_nobody_collected() -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    pin(tree, view, "mine", 30.0)
    bench.supersede()
    bench.clock.advance(4000)
    pin(tree, view, "mine", 30.0)
    assert bench.open().gc(apply=True).lapsed == ()
    assert rows_at(bench.tree(), moment_of(view)) == OLD


def test_a_lapsed_pin_is_entered_anew_while_its_state_is_retained() -> None:
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    pin(tree, view, "mine", 1.0)
    bench.clock.advance(5)
    assert bench.open().gc(apply=True).lapsed == ("mine",)
    assert bench.pins() == {}
    pin(tree, view, "mine", 1000.0)
    bench.move_on()
    assert rows_at(bench.tree(), moment_of(view)) == OLD


def test_a_snapshot_whose_pin_lapsed_says_so_and_shows_nothing_else() -> None:
    bench = Bench()
    with bench.open().snapshot(seconds=1000) as held:
        assert rows(held) == OLD
        bench.supersede()
        # The bucket's clock leaps, and comes back.
        bench.clock.advance(5000)
        bench.open().gc(apply=True)
        bench.clock.advance(-5000)
        with pytest.raises(PastRetention):
            held.renew()
        with pytest.raises(PastRetention):
            held.get("a")
        with pytest.raises(PastRetention):
            rows(held)


def test_a_heartbeat_that_is_gone_counts_from_its_entry() -> None:
    bench = Bench()
    tree = bench.tree()
    pin(tree, tree.view, "mine", 30.0)
    bench.store.delete(f"{PREFIX}{HEARTBEATS}mine")
    bench.clock.advance(29)
    assert bench.open().gc(apply=True).lapsed == ()
    bench.clock.advance(2)
    assert bench.open().gc(apply=True).lapsed == ("mine",)


# Pinner and fold, two collectors


@pytest.mark.parametrize("step", ["heartbeats/", "pins/", "pins/0"])
def test_a_fold_between_any_two_steps_of_a_pin(step: str) -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    moment = moment_of(tree.view)
    bench.faulty.pause_before(lambda kind, key: step in key, bench.supersede)
    pin(tree, tree.view, "mine", 1000.0)
    bench.move_on()
    assert rows_at(bench.tree(), moment) == OLD
    sound(bench)


def test_a_pin_between_any_two_steps_of_a_fold() -> None:
    bench = Bench()
    tree = bench.tree()
    moment = moment_of(tree.view)
    folder = bench.open("r", bench.faulty)
    bench.faulty.pause_before(
        request("create", "manifest/"), lambda: pin(tree, tree.view, "mine", 1000.0)
    )
    folder.index()
    bench.ns.refresh()
    bench.move_on()
    assert rows_at(bench.tree(), moment) == OLD
    sound(bench)


@pytest.mark.parametrize("where", ["pins/0", "manifest/0", "segments/", "wal/"])
def test_two_collectors_and_a_pin_that_is_released_between_them(where: str) -> None:
    bench = Bench()
    tree = bench.tree()
    moment = moment_of(tree.view)
    pin(tree, tree.view, "mine", 1000.0)
    other = bench.tree()
    bench.supersede()
    bench.clock.advance(25)
    kept = bench.tree()
    pin(kept, kept.view, "kept", 1000.0)
    bench.supersede()
    bench.clock.advance(25)

    def second() -> None:
        unpin(other, "mine")
        bench.open().gc(apply=True)

    collector = bench.open("r", bench.faulty)
    bench.faulty.pause_before(
        lambda kind, key: kind in ("create", "delete") and where in key, second
    )
    collector.gc(apply=True)
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)
    assert rows_at(bench.tree(), moment_of(kept.view)) == NEW
    assert rows(bench.open()) == NEW
    sound(bench)


def test_what_is_pinned_twice_stays_until_both_let_go() -> None:
    """A state below the floor can be pinned again while a pin keeps it, and only that state."""
    bench = Bench()
    tree = bench.tree()
    view = tree.view
    moment = moment_of(view)
    pin(tree, view, "one", 1000.0)
    bench.move_on()
    pin(tree, view_of(bench.tree(), moment), "two", 1000.0)
    unpin(tree, "one")
    bench.move_on()
    assert rows_at(bench.tree(), moment) == OLD
    unpin(tree, "two")
    bench.move_on()
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)
    with pytest.raises(PastRetention):
        pin(tree, view, "three", 1000.0)


# The publisher that slept, and the collector


def asleep(bench: Bench) -> int:
    """A generation's number that was collected and won again by a publisher that slept: a fold
    under way since then. Returns the number."""
    slow = bench.open("r", bench.faulty)
    number = slow.generation + 1
    asleep = bench.faulty

    def others() -> None:
        bench.supersede()
        bench.clock.advance(25)
        bench.ns.gc(apply=True)
        bench.clock.advance(25)
        bench.ns.write(upserts=[{"id": "z", "n": 9}])
        bench.ns.index()
        bench.ns.gc(apply=True)
        assert MANIFESTS.key(number) not in bench.keys("manifest")

    asleep.pause_before(request("create", "manifest/"), others)
    asleep.crash_after(request("create", "manifest/"))
    with pytest.raises(Crash):
        slow.index()
    assert MANIFESTS.key(number) in bench.keys("manifest")
    return number


def test_a_generation_won_again_after_it_was_collected_is_not_believed() -> None:
    bench = Bench()
    number = asleep(bench)
    with pytest.raises(PastRetention):
        bench.open().at(generation=number)
    sound(bench)
    assert number not in examine(bench.tree(), deep=False).generations
    assert bench.open().repair(apply=True).actions == ()
    expected = {**NEW, "z": 9}
    assert rows(bench.open()) == expected
    bench.open().gc(apply=True)
    assert MANIFESTS.key(number) not in bench.keys("manifest")
    assert rows(bench.open()) == expected


def test_a_moment_of_a_generation_won_again_is_past_its_retention() -> None:
    bench = Bench()
    genuine: list[object] = []
    slow = bench.open("r", bench.faulty)

    def others() -> None:
        bench.ns.index()
        genuine.append(moment_of(bench.tree().view))
        bench.supersede()
        for _ in range(2):
            bench.clock.advance(25)
            bench.ns.gc(apply=True)

    bench.faulty.pause_before(request("create", "manifest/"), others)
    bench.faulty.crash_after(request("create", "manifest/"))
    with pytest.raises(Crash):
        slow.index()
    (moment,) = genuine
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)  # type: ignore[arg-type]


def test_a_pinned_generation_below_the_oldest_is_read_by_its_number() -> None:
    bench = Bench()
    tree = bench.tree()
    pin(tree, tree.view, "mine")
    generation = tree.view.manifest.generation
    bench.move_on()
    newest = bench.tree().head.root
    assert newest.oldest_generation > generation
    assert rows(bench.open().at(generation=generation)) == {"a": 1, "b": 1}
    unpin(tree, "mine")
    with pytest.raises(PastRetention):
        bench.open().at(generation=generation)
    bench.clock.advance(25)
    bench.move_on()
    assert MANIFESTS.key(generation) not in bench.keys("manifest")


def test_a_generation_that_a_repair_moved_away_and_a_sleeper_put_back_is_not_believed() -> None:
    bench = Bench()
    bench.ns.index()
    number = bench.ns.generation
    bench.ns.compact(full=True)
    bench.supersede()
    genuine = bench.ns._tree.register.read_generation(number)
    bench.store.delete(PREFIX + MANIFESTS.key(number))
    ghost = msgspec.structs.replace(genuine, nonce="f" * 16, segments=())
    bench.store.put(PREFIX + MANIFESTS.key(number), MANIFESTS.codec.encode(ghost))
    with pytest.raises(PastRetention):
        bench.open().at(generation=number)


def test_a_sleeping_pinner_that_wins_a_collected_board_is_not_believed() -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    other = bench.tree()
    pin(other, other.view, "first", 5.0)

    def others() -> None:
        for number in range(BOARDS + 2):
            pin(other, other.view, f"s{number}", 5.0)
        assert PINS.key(2) not in bench.keys("pins")

    bench.faulty.pause_before(request("create", "pins/"), others)
    pin(tree, tree.view, "mine", 1000.0)
    assert len(bench.pins()) == BOARDS + 4
    assert "mine" in bench.pins()


def test_a_pinner_that_slept_before_there_was_any_board_is_on_the_newest() -> None:
    bench = Bench()
    tree, other = bench.tree(bench.faulty), bench.tree()

    def others() -> None:
        for number in range(BOARDS + 2):
            pin(other, other.view, f"s{number}", 1000.0)
        assert PINS.key(1) not in bench.keys("pins")

    bench.faulty.pause_before(request("create", "pins/"), others)
    pin(tree, tree.view, "mine", 1000.0)
    assert len(bench.pins()) == BOARDS + 3
    assert "mine" in bench.pins()


# What is in the manifest since former versions


def test_pins_of_former_versions_are_heeded_and_none_are_written() -> None:
    bench = Bench()
    tree = bench.tree()
    moment = moment_of(tree.view)

    def old(newest: Manifest) -> Manifest:
        held = Pin(moment.generation, moment.lsn, newest.generation, 60.0)
        return msgspec.structs.replace(newest, snapshots={"old": held})

    bench.ns._tree.register.publish(old)
    pin(tree, tree.view, "new", 1.0)
    assert list(bench.tree().head.root.snapshots) == ["old"]
    bench.supersede()
    bench.clock.advance(25)
    collected = bench.open().gc(apply=True)
    assert any("pinned as old" in item.reason for item in collected.plan.waiting)
    assert rows_at(bench.tree(), moment) == OLD
    assert any("as old" in shown for shown in bench.open().status().pinned)
    sound(bench)
    bench.clock.advance(60)
    bench.open().gc(apply=True)
    assert bench.tree().head.root.snapshots == {}
    with pytest.raises(PastRetention):
        view_of(bench.tree(), moment)
    sound(bench)


# Many at once


@pytest.mark.parametrize("handles", [1, 16])
def test_sixteen_threads_pin_at_once(handles: int) -> None:
    bench = Bench()
    stores = [FaultyStore(bench.store) for _ in range(handles)]
    trees = [bench.tree(store) for store in stores]
    together = Barrier(16)

    def run(number: int) -> None:
        tree = trees[number % handles]
        together.wait()
        pin(tree, tree.view, f"p{number}", 1000.0)

    threads = [Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.pins()) == 16
    for store in stores:
        asked = [key for kind, key in store.requests if kind == "create"]
        assert not [key for key in asked if "manifest/" in key]
        # Each of the others can overtake it once; those of one handle publish together.
        assert len(asked) <= 16


class _Queue(list[Any]):
    """Tells when fifteen are in it."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self.full = Event()
        self._look()

    def append(self, item: Any) -> None:
        super().append(item)
        self._look()

    def _look(self) -> None:
        if len(self) == 15:
            self.full.set()


def test_threads_of_one_handle_publish_together() -> None:
    bench = Bench()
    tree = bench.tree(bench.faulty)
    board = tree.board

    def wait_for_the_others() -> None:
        with board._mutex:
            queue = board._waiting = _Queue(board._waiting)
        queue.full.wait()

    bench.faulty.pause_before(request("create", "pins/"), wait_for_the_others)
    threads = [
        Thread(target=pin, args=(tree, tree.view, f"p{number}", 1000.0)) for number in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.pins()) == 16
    assert len(bench.keys("pins")) == 2


def test_one_that_is_refused_does_not_spoil_the_publication_of_others() -> None:
    bench = Bench()
    old = bench.tree()
    view = old.view
    bench.move_on()
    tree = bench.tree(bench.faulty)
    refused: list[BaseException] = []

    def try_the_old_one() -> None:
        with pytest.raises(PastRetention) as told:
            pin(tree, view, "old", 1000.0)
        refused.append(told.value)

    thread = Thread(target=try_the_old_one)

    def meanwhile() -> None:
        thread.start()

    bench.faulty.pause_before(request("create", "pins/"), meanwhile)
    pin(tree, tree.view, "new", 1000.0)
    thread.join()
    assert refused
    assert list(bench.pins()) == ["new"]

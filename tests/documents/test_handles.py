"""Handles: many threads, many of them, and what their own upkeep does meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

import reef
from reef import Options
from reef.documents import Database, Namespace
from reef.lsm.upkeep.fold import fold_from_memory
from reef.store import MemoryStore
from support.faults import Clock, FaultyStore, request
from support.waiting import PATIENCE, wait_until


class World:
    """A bucket, a writer, and a reader whose looks at the bucket are counted."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.never = Event()
        environment = self.clock.environment()
        self.store = MemoryStore(environment)
        self.faulty = FaultyStore(self.store)
        self.writer = Database(self.store, Options(), environment).namespace("n", maintain=False)
        self.writer.write(upserts=[{"id": "a", "n": 0}])
        self.reader = Database(self.faulty, Options(), environment).namespace("n", "r")
        self.looks = 0
        self.after_look: Callable[[], None] = lambda: None
        self._refresh = self.reader._tree.refresh
        self.reader._tree.refresh = self._look  # type: ignore[method-assign]

    def _look(self) -> None:
        self.looks += 1
        self._refresh()
        self.after_look()

    def have_all_wait(self, count: int) -> None:
        """Waits until so many threads wait for the look that is under way."""
        look = self.reader._following._under_way
        assert look is not None
        while len(look.gates) < count:
            assert not self.never.wait(0.001)


def together(count: int, call: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    threads = [Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == count
    return found


def test_threads_that_find_the_state_old_look_once() -> None:
    world = World()
    world.writer.write(upserts=[{"id": "a", "n": 1}])
    world.clock.advance(2)
    world.faulty.pause_before(request("get", "hint"), lambda: world.have_all_wait(15))
    found = together(16, lambda: world.reader.get("a"))
    assert found == [{"id": "a", "n": 1}] * 16
    assert world.looks == 1


def test_a_look_that_takes_long_serves_all_that_waited_for_it() -> None:
    """It is old when it comes back, but not for those who asked before it began."""
    world = World()
    world.writer.write(upserts=[{"id": "a", "n": 1}])
    world.clock.advance(2)

    def slowly() -> None:
        world.have_all_wait(7)
        world.clock.advance(100)

    world.faulty.pause_before(request("get", "hint"), slowly)
    together(8, lambda: world.reader.get("a"))
    assert world.looks == 1
    world.reader.get("a")
    assert world.looks == 2


def test_a_look_that_fails_fails_for_all_that_waited_for_it() -> None:
    world = World()
    world.clock.advance(2)
    world.faulty.pause_before(request("get", "hint"), lambda: world.have_all_wait(7))
    world.faulty.refuse(request("get", "hint"))
    world.faulty.refuse(request("list", "manifest"), times=1000)
    found = together(8, lambda: world.reader.get("a"))
    assert all(isinstance(each, reef.StoreError) for each in found)
    assert world.looks == 1
    world.faulty._state.faults.clear()
    assert world.reader.get("a") == {"id": "a", "n": 0}


def test_a_refresh_that_is_asked_for_sees_what_was_there_before() -> None:
    """One that was under way already may have read too early."""
    world = World()
    looking, go = Event(), Event()

    def hold() -> None:
        looking.set()
        assert go.wait(PATIENCE)

    world.after_look = hold
    early = Thread(target=world.reader.refresh)
    early.start()
    assert looking.wait(PATIENCE)
    world.writer.write(upserts=[{"id": "b"}])
    late = Thread(target=world.reader.refresh)
    late.start()
    go.set()
    for thread in (early, late):
        thread.join(PATIENCE)
    assert world.looks == 2
    assert world.reader._tree.view.get("b") == {"id": "b"}


def test_an_interrupted_look_is_done_again_by_whoever_waits() -> None:
    world = World()
    world.writer.write(upserts=[{"id": "a", "n": 1}])
    world.clock.advance(2)
    found: list[Any] = []
    waiting = Thread(target=lambda: found.append(world.reader.get("a")))

    def interrupt() -> None:
        waiting.start()
        look = world.reader._following._under_way
        while not (look and look.gates):
            assert waiting.is_alive()
        raise KeyboardInterrupt

    world.faulty.pause_before(request("get", "hint"), interrupt)
    with pytest.raises(KeyboardInterrupt):
        world.reader.get("a")
    waiting.join(PATIENCE)
    assert found == [{"id": "a", "n": 1}]


def _interrupt() -> None:
    raise KeyboardInterrupt


# Folding by hand beside the handle's own upkeep


def folding(ns: Namespace, faulty: FaultyStore, more: bool) -> None:
    """Have what is left of the log folded in the middle of the next fold, as by another thread."""

    def overtake() -> None:
        assert fold_from_memory(ns._tree) is not None
        if more:
            ns.write(upserts=[{"id": "more"}])

    faulty.pause_before(request("put", "segments/"), overtake)


@pytest.mark.parametrize("maintain", [True, False])
def test_index_when_others_of_the_process_are_faster(maintain: bool) -> None:
    faulty = FaultyStore(MemoryStore())
    with reef.connect(faulty).namespace("n", maintain=maintain) as ns:
        ns.write(upserts=[{"id": "a"}])
        folding(ns, faulty, more=False)
        assert ns.index() is None
        ns.write(upserts=[{"id": "b"}])
        folding(ns, faulty, more=True)
        folded = ns.index()
        assert folded is not None
        assert folded.rows == 1
        assert {row["id"] for row in ns.scan().documents()} == {"a", "b", "more"}
        assert ns.status().unfolded_objects == 0
        assert ns.verify(deep=True).sound


def test_index_waits_for_the_pass_that_is_under_way() -> None:
    """It folds nothing twice: what both would write, one of them writes for nothing."""
    faulty = FaultyStore(MemoryStore())
    with reef.connect(faulty, options=Options(fold_objects=3)).namespace("n") as ns:
        begun, go = Event(), Event()

        def hold() -> None:
            begun.set()
            assert go.wait(PATIENCE)

        faulty.pause_before(request("put", "segments/"), hold)
        ns.write(upserts=[{"id": "a"}])
        ns.write(upserts=[{"id": "b"}])
        assert begun.wait(PATIENCE)
        found: list[Any] = []
        indexing = Thread(target=lambda: found.append(ns.index()))
        indexing.start()
        go.set()
        indexing.join(PATIENCE)
        assert found == [None]
        puts = [key for kind, key in faulty.requests if kind == "put" and "segments/" in key]
        assert len(puts) == 1


# Many handles


def test_three_hundred_writers_have_a_handful_of_threads() -> None:
    """Each of them folds and compacts all the same."""
    before = set(threading.enumerate())
    options = Options(fold_objects=3, fan_in=2, most_inputs=2)
    database = reef.connect("memory://", options=options)
    handles = [database.namespace(f"n{number:03}") for number in range(300)]
    most = 0
    for number in range(4):
        for ns in handles:
            ns.write(upserts=[{"id": "a", "n": number}])
        most = max(most, len(set(threading.enumerate()) - before))
    for ns in handles:
        upkeep = ns._upkeep
        assert upkeep is not None
        wait_until(upkeep.folding, lambda ns=ns: ns.status().wal_floor > 1)  # type: ignore[misc]
    # Four for upkeep; the store's own requests have a pool for all of them.
    started = set(threading.enumerate()) - before
    assert len([each for each in started if each.name.startswith("reef-upkeep")]) <= 4
    assert most <= 4 + 32
    for ns in handles:
        ns.close()
    for ns in handles[::50]:
        assert database.namespace(ns.name, "r").get("a") == {"id": "a", "n": 3}


def test_closing_one_does_not_wait_for_the_passes_of_others() -> None:
    faulty = FaultyStore(MemoryStore())
    database = reef.connect(faulty, options=Options(fold_objects=2))
    begun, go = Event(), Event()

    def hold() -> None:
        begun.set()
        assert go.wait(PATIENCE)

    busy, idle = database.namespace("busy"), database.namespace("idle")
    faulty.pause_before(request("put", "busy/segments/"), hold)
    busy.write(upserts=[{"id": "a"}])
    assert begun.wait(PATIENCE)
    idle.write(upserts=[{"id": "a"}])
    idle.close()
    assert not go.is_set()
    go.set()
    busy.close()


def test_a_namespace_whose_upkeep_fails_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faulty = FaultyStore(MemoryStore())
    database = reef.connect(faulty, options=Options(fold_objects=2))
    bad, good = database.namespace("bad"), database.namespace("good")
    faulty.refuse(request("put", "bad/segments/"), times=1_000_000)
    for ns in (bad, good):
        ns.write(upserts=[{"id": "a"}])
    wait_until(good._upkeep.folding, lambda: good.status().wal_floor > 1)  # type: ignore[union-attr]
    good.close()
    bad.close()
    assert bad._tree.head.manifest.wal_floor == 1


def test_a_handle_that_was_let_go_leaves_nothing_at_work() -> None:
    database = reef.connect("memory://")
    ns = database.namespace("n")
    task = ns._upkeep.folding  # type: ignore[union-attr]
    assert task is not None
    assert not task.orphaned
    del ns
    assert task.orphaned


# Closed handles


def test_every_call_on_a_closed_handle_says_so() -> None:
    database = reef.connect("memory://")
    for mode in ("w", "r"):
        ns = database.namespace("n", mode)
        scan = ns.scan()
        ns.close()
        ns.close()
        calls: list[Callable[[], Any]] = [
            lambda ns=ns: ns.write(upserts=[{"id": "a"}]),  # type: ignore[misc]
            lambda ns=ns: ns.write(delete_where="n = 1"),  # type: ignore[misc]
            lambda ns=ns: ns.load([{"id": "a"}]),  # type: ignore[misc]
            lambda ns=ns: ns.get("a"),  # type: ignore[misc]
            lambda ns=ns: ns.get_many(["a"]),  # type: ignore[misc]
            lambda ns=ns: ns.scan(),  # type: ignore[misc]
            lambda ns=ns: ns.count(),  # type: ignore[misc]
            lambda ns=ns: ns.index(),  # type: ignore[misc]
            lambda ns=ns: ns.compact(),  # type: ignore[misc]
            lambda ns=ns: ns.gc(),  # type: ignore[misc]
            lambda ns=ns: ns.refresh(),  # type: ignore[misc]
            lambda ns=ns: ns.snapshot(),  # type: ignore[misc]
            lambda ns=ns: ns.changes(),  # type: ignore[misc]
            lambda ns=ns: ns.status(),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(reef.Closed):
                call()
        assert list(scan) == []  # it was made before, and reads its own state


# Interruptions


def _ids(ns: Namespace) -> list[Any]:
    return [row["id"] for row in ns.scan().documents()]


CALLS: dict[str, Callable[[Namespace], Any]] = {
    "get": lambda ns: ns.get("2"),
    "get_many": lambda ns: ns.get_many(["0", "2", "4"]),
    "scan": _ids,
    "count": lambda ns: ns.count("n > 0"),
    "refresh": lambda ns: ns.refresh(),
    "at": lambda ns: ns.at(lsn=2).get("0"),
    "verify": lambda ns: ns.verify(deep=True).sound,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mode", ["r", "w"])
def test_an_interrupted_call_can_be_made_again(call: str, mode: str) -> None:
    """At whatever request Ctrl-C comes, nothing is left locked."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    writer = Database(store, Options(), clock.environment()).namespace("n", maintain=False)
    for number in range(5):
        writer.write(upserts=[{"id": f"{number}", "n": number}])
        if number < 4:
            writer.index()
    writer.close()
    for nth in range(1, 40):
        faulty = FaultyStore(store)
        database = Database(faulty, Options(staleness=1.0), clock.environment())
        with database.namespace("n", mode, maintain=False) as ns:
            clock.advance(2)
            faulty.pause_before(lambda kind, key: True, _interrupt, nth=nth)
            interrupted = False
            try:
                expected = CALLS[call](ns)
            except KeyboardInterrupt:
                interrupted = True
            faulty._state.faults.clear()
            found: list[Any] = []
            again = Thread(target=lambda ns=ns, found=found: found.append(CALLS[call](ns)))  # type: ignore[misc]
            again.start()
            again.join(PATIENCE)
            assert found, "it hangs"
        if not interrupted:
            assert found == [expected]
            return


def test_closing_frees_those_who_wait_for_upkeep() -> None:
    faulty = FaultyStore(MemoryStore())
    options = Options(fold_objects=2, backlog_objects=3, backlog_wait=1e6)
    ns = reef.connect(faulty, options=options).namespace("n")
    begun, go = Event(), Event()

    def hold() -> None:
        begun.set()
        assert go.wait(PATIENCE)

    faulty.pause_before(request("put", "segments/"), hold)
    ns.write(upserts=[{"id": "a"}])
    assert begun.wait(PATIENCE)
    ns.write(upserts=[{"id": "b"}])
    told: list[Any] = []

    def write() -> None:
        try:
            told.append(ns.write(upserts=[{"id": "c"}]))
        except reef.ReefError as error:
            told.append(error)

    waiting, closing = Thread(target=write), Thread(target=ns.close)
    waiting.start()
    closing.start()
    waiting.join(PATIENCE)
    assert [type(each) for each in told] == [reef.Closed]
    go.set()
    closing.join(PATIENCE)
    assert not closing.is_alive()


def test_snapshots_are_renewed_by_the_threads_of_upkeep() -> None:
    clock = Clock()  # the bucket's time stands still: no pin lapses, however slow the machine
    environment = clock.environment()
    database = Database(MemoryStore(environment), Options(), environment)
    with database.namespace("n", maintain=False) as ns:
        ns.write(upserts=[{"id": "a"}])
        before = set(threading.enumerate())
        snapshots = [ns.snapshot(seconds=0.03) for _ in range(40)]
        for snapshot in snapshots:
            wait_until(snapshot._renewal, lambda each=snapshot: each._renewal.passes > 1)  # type: ignore[misc]
        started = set(threading.enumerate()) - before
        assert len([each for each in started if each.name.startswith("reef-")]) <= 4
        for snapshot in snapshots:
            assert snapshot._renewal.failure is None
            snapshot.close()
        assert not any(snapshot._renewal.alive for snapshot in snapshots)

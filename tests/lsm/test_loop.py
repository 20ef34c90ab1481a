"""The loop of background work: few threads, many tasks, none of them in another's way."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from math import inf
from threading import Barrier, Event, Thread

import pytest

from reef.errors import Closed, ConcurrentPublication, Fenced, StoreUnavailable
from reef.lsm.upkeep import loop
from reef.lsm.upkeep.loop import Task, Upkeeper
from support.waiting import PATIENCE, wait_until


class Owner:
    """Somebody whose work it is."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.001)


def of(work: Callable[[], float]) -> Callable[[Owner], float]:
    return lambda owner: work()


def threads() -> list[Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("reef-upkeep")]


def test_a_task_runs_when_woken_and_then_rests() -> None:
    owner, done = Owner(), []
    task = Upkeeper().add("t", owner, of(lambda: done.append(1) or inf))  # type: ignore[func-returns-value]
    assert not done
    for times in range(1, 4):
        task.wake()
        wait_until(task, lambda times=times: task.passes == times)  # type: ignore[misc]
        assert len(done) == times
    task.stop()


def test_a_wake_during_a_pass_makes_another_one() -> None:
    owner, begun, go, passes = Owner(), Event(), Event(), []

    def work() -> float:
        passes.append(1)
        begun.set()
        assert go.wait(PATIENCE)
        return inf

    task = Upkeeper().add("t", owner, of(work))
    task.wake()
    assert begun.wait(PATIENCE)
    task.wake()
    go.set()
    wait_until(task, lambda: task.passes == 2)
    task.stop()
    assert len(passes) == 2


def test_hundreds_of_tasks_share_a_handful_of_threads() -> None:
    upkeeper, owner = Upkeeper(), Owner()
    counted: list[int] = []
    tasks = []
    done = Event()

    def work() -> float:
        counted.append(1)
        if len(counted) >= 600:
            done.set()
        return inf

    for _ in range(300):
        tasks += [upkeeper.add("t", owner, of(work), long=long) for long in (False, True)]
    before = len(threads())
    for task in tasks:
        task.wake()
    assert done.wait(PATIENCE)
    assert len(threads()) - before <= 4
    assert len(counted) == 600
    for task in tasks:
        task.stop()


def test_tasks_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that always has something to do does not keep another waiting."""
    monkeypatch.setattr(loop, "_SHORT_THREADS", 1)
    upkeeper, owner = Upkeeper(), Owner()
    order: list[str] = []
    queued, done = Event(), Event()

    def busy(name: str) -> Callable[[], float]:
        def work() -> float:
            order.append(name)
            if len(order) < 60:
                return 0.0
            done.set()
            return inf

        return work

    first = upkeeper.add("first", owner, of(lambda: 0.0 if not queued.wait(PATIENCE) else inf))
    tasks = [upkeeper.add(name, owner, of(busy(name))) for name in "abc"]
    for task in (first, *tasks):
        task.wake()
    queued.set()
    assert done.wait(PATIENCE)
    for task in (first, *tasks):
        task.stop()
    assert order[:60] == ["a", "b", "c"] * 20


def test_one_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    upkeeper, owner = Upkeeper(), Owner()
    failed, went_well = Event(), Event()
    tries: list[int] = []

    def fail() -> float:
        tries.append(1)
        if len(tries) < 3:
            raise StoreUnavailable("on purpose")
        if len(tries) == 3:
            raise ValueError("not foreseen")
        failed.set()
        return inf

    bad = upkeeper.add("bad", owner, of(fail), wait=0)
    good = upkeeper.add("good", owner, of(lambda: went_well.set() or inf), wait=0)  # type: ignore[func-returns-value]
    assert went_well.wait(PATIENCE)
    assert failed.wait(PATIENCE)
    for task in (bad, good):
        task.stop()
    assert bad.failure is None
    assert len(tries) == 4
    told = [record for record in caplog.records if record.name == "reef"]
    assert [record.exc_info is not None and bool(record.exc_info) for record in told] == [
        False,
        False,
        True,
    ]


def test_a_failing_task_waits_longer_each_time_whatever_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 1000.0)
    owner, tries = Owner(), []

    def fail() -> float:
        tries.append(1)
        raise StoreUnavailable("on purpose")

    upkeeper = Upkeeper()
    task = upkeeper.add("t", owner, of(fail), wait=0)
    wait_until(task, lambda: task.passes == 1)
    task.wake()
    other = upkeeper.add("other", owner, of(lambda: inf), wait=0)
    wait_until(other, lambda: other.passes == 1)
    assert len(tries) == 1
    assert task._due > 500
    for each in (task, other):
        each.stop()


@pytest.mark.parametrize("end", [Fenced("f"), Closed("c")])
def test_being_superseded_ends_it(end: Exception) -> None:
    owner = Owner()

    def work() -> float:
        raise end

    task = Upkeeper().add("t", owner, of(work), wait=0)
    wait_until(task, lambda: not task.alive)
    assert task.failure is end
    assert not task.wait_for_pass(PATIENCE)


def test_being_overtaken_is_no_failure() -> None:
    owner, tries = Owner(), []

    def work() -> float:
        tries.append(1)
        if len(tries) == 1:
            raise ConcurrentPublication("somebody was faster")
        return inf

    task = Upkeeper().add("t", owner, of(work), wait=0)
    wait_until(task, lambda: task.failure is not None or task.passes == 2)
    assert task.failure is None
    task.stop()


def test_stopping_one_waits_for_its_own_pass_only() -> None:
    upkeeper, owner = Upkeeper(), Owner()
    begun, go = Event(), Event()

    def slow() -> float:
        begun.set()
        assert go.wait(PATIENCE)
        return inf

    asked = Event()
    busy = upkeeper.add("busy", owner, of(slow), wait=0, give_up=lambda owner: asked.set())
    idle = upkeeper.add("idle", owner, of(lambda: inf))
    assert begun.wait(PATIENCE)
    idle.stop()
    stopper = Thread(target=busy.stop)
    stopper.start()
    assert asked.wait(PATIENCE)
    assert stopper.is_alive()
    go.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()


def test_long_passes_do_not_hold_short_ones_up() -> None:
    upkeeper, owner = Upkeeper(), Owner()
    begun, go = Barrier(3), Event()

    def slow() -> float:
        begun.wait(PATIENCE)
        assert go.wait(PATIENCE)
        return inf

    long = [upkeeper.add("long", owner, of(slow), wait=0, long=True) for _ in range(2)]
    begun.wait(PATIENCE)
    waiting = upkeeper.add("waits", owner, of(lambda: inf), wait=0, long=True)
    short = upkeeper.add("short", owner, of(lambda: inf), wait=0)
    wait_until(short, lambda: short.passes == 1)
    assert waiting.passes == 0
    go.set()
    wait_until(waiting, lambda: waiting.passes == 1)
    for task in (*long, waiting, short):
        task.stop()


def test_every_so_often() -> None:
    owner, times, enough = Owner(), [], Event()

    def work(owner: Owner) -> None:
        times.append(1)
        if len(times) == 5:
            enough.set()

    task = Upkeeper().every(0.001, owner, work, name="renewing")
    assert enough.wait(PATIENCE)
    task.stop()


def test_threads_end_with_the_last_task() -> None:
    upkeeper, owner = Upkeeper(), Owner()
    before = set(threads())
    tasks = [upkeeper.add("t", owner, of(lambda: 0.01), wait=0, long=long) for long in (0, 1)]
    for task in tasks:
        wait_until(task, lambda task=task: task.passes > 0)  # type: ignore[misc]
    own = set(threads()) - before
    assert own
    for task in tasks:
        task.stop()
    for thread in own:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_an_owner_who_is_gone_takes_the_task_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LONGEST_IDLE", 0.01)
    upkeeper, owner = Upkeeper(), Owner()
    before = set(threads())
    task = upkeeper.add("t", owner, of(lambda: inf), wait=0)
    (thread,) = set(threads()) - before
    wait_until(task, lambda: task.passes == 1)
    del owner
    gc.collect()
    wait_until(task, lambda: not task.alive)
    assert task.orphaned
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_does_no_upkeep_and_does_not_hang() -> None:
    upkeeper, owner = Upkeeper(), Owner()
    begun, go = Event(), Event()

    def slow() -> float:
        begun.set()
        assert go.wait(PATIENCE)
        return inf

    task: Task = upkeeper.add("t", owner, of(slow), wait=0)
    assert begun.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        task.wake()
        task.stop()
        os._exit(0 if not task.alive and not upkeeper.add("u", owner, of(slow)).alive else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert task.alive
    go.set()
    task.stop()

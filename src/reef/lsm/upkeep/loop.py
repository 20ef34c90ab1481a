"""The loop of background work: a few threads that do passes for any number of tasks.

A task is a function that does one pass and says how long the next can wait. Tasks take turns: one
that always has something to do goes to the end of the queue after each pass. No task runs twice at
the same time. One that fails is logged and tried again after a growing pause of its own.

Long passes have threads of their own, so that short ones (folding, which writers wait for, and the
renewal of what would lapse) never wait behind them. Threads are started when they are needed, and
end when no task is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import inf
from threading import Condition, Lock, Thread
from typing import Any, TypeVar
from weakref import ref

from reef.errors import Closed, ConcurrentPublication, Fenced, ReefError
from reef.lsm.upkeep.ending import is_shutdown, join_at_exit

Owner = TypeVar("Owner")

_logger = logging.getLogger("reef")
_SHORT_THREADS = 2
_LONG_THREADS = 2
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 30.0
_LONGEST_IDLE = 60.0


class Task:
    """Work that a loop does for an owner, one pass after the other, until either is gone.

    `passes` counts those that have ended, and `failure` is what the last one raised, None if it
    went well. Being `Fenced` or `Closed` stops the task.
    """

    def __init__(
        self,
        lane: Lane,
        name: str,
        owner: Any,
        work: Callable[[Any], float],
        give_up: Callable[[Any], None] | None,
    ) -> None:
        self.name = name
        self.failure: Exception | None = None
        self.passes = 0
        self._lane = lane
        self._owner = ref(owner)
        self._work = work
        self._give_up = give_up
        self._ended = Condition(lane.lock)
        self._entry = -1
        self._due = inf
        self._running = False
        self._woken = False
        self._stopped = False
        self._pause = _FIRST_PAUSE
        self._not_before = -inf

    def wake(self) -> None:
        """There is something to do. It shortens no pause after a failure."""
        if not self._woken:
            with self._lane.lock:
                self._woken = True
                if not self._running:
                    self._lane.put(self, -inf)

    def wait_for_pass(self, timeout: float, since: int | None = None) -> bool:
        """Wait until a pass has ended since there were that many `passes`, or from now on. False if
        none did in time or the task has stopped."""
        with self._lane.lock:
            before = self.passes if since is None else since
            self._ended.wait_for(lambda: self.passes > before or self._stopped, timeout)
            return self.passes > before

    @property
    def alive(self) -> bool:
        """Whether there can be further passes."""
        return not self._stopped

    @property
    def orphaned(self) -> bool:
        """Whether its owner is gone."""
        return self._owner() is None

    def stop(self) -> None:
        """No further passes. One under way is asked to give up, and waited for."""
        self.ask_to_stop()
        with self._lane.lock:
            self._ended.wait_for(lambda: not self._running)

    def ask_to_stop(self) -> None:
        """As `stop`, without waiting."""
        with self._lane.lock:
            self._lane.drop(self)
        owner = self._owner()
        if owner is not None and self._give_up is not None:
            self._give_up(owner)

    def _do(self) -> float | None:
        """One pass. Returns the seconds until the next; None if there is to be none."""
        owner = self._owner()
        if owner is None:
            return None
        try:
            wait = self._work(owner)
        except (Fenced, Closed) as end:
            self.failure = end
            return None
        except ConcurrentPublication as overtaken:
            _logger.info("%s: %s", self.name, overtaken)
            return self._after_pause()
        except Exception as failure:
            if self._lane.ending or is_shutdown(failure):
                return None
            self.failure = failure
            unforeseen = not isinstance(failure, ReefError)
            _logger.warning("%s will try again: %s", self.name, failure, exc_info=unforeseen)
            return self._after_pause()
        self.failure = None
        self._pause = _FIRST_PAUSE
        self._not_before = -inf
        return wait

    def _after_pause(self) -> float:
        wait, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        self._not_before = time.monotonic() + wait
        return wait


class Lane:
    """Some threads, and the tasks that they serve in the order in which those become ready.

    Its methods, and what it touches of a task, are for whoever holds the lock.
    """

    def __init__(self, name: str, most: int) -> None:
        self.lock = Lock()
        self.ending = False
        self._name = name
        self._most = most
        self._tasks: set[Task] = set()
        self._running: set[Task] = set()
        self._queue: list[tuple[float, int, Task]] = []
        self._numbers = count()
        self._something = Condition(self.lock)
        self._threads = 0
        self._idle = 0

    def add(self, task: Task, due: float) -> None:
        """Serve the task from now on."""
        if self.ending:
            task._stopped = True
        else:
            self._tasks.add(task)
            self.put(task, due)

    def put(self, task: Task, due: float) -> None:
        """Have a pass at that time, if there is not to be one earlier already."""
        due = max(due, task._not_before)
        if task._stopped or due == inf or (task._entry >= 0 and task._due <= due):
            return
        task._due = due
        task._entry = next(self._numbers)
        # Ready means to stand in line from now on, however long ago it was due.
        heappush(self._queue, (max(due, time.monotonic()), task._entry, task))
        if self._idle:
            self._something.notify()
        else:
            self._start_thread()

    def drop(self, task: Task) -> None:
        """Have no further passes."""
        task._stopped = True
        task._entry = -1
        self._tasks.discard(task)
        task._ended.notify_all()
        if not self._tasks:
            self._queue.clear()
            self._something.notify_all()

    def _start_thread(self) -> None:
        if self._threads < self._most and not self.ending:
            with suppress(RuntimeError):  # at the interpreter's end there are no new ones
                Thread(target=self._serve, name=self._name, daemon=True).start()
                self._threads += 1

    def _serve(self) -> None:
        with self.lock:
            while self._tasks and not self.ending:
                task = self._next()
                if task is not None:
                    self._pass(task)
            self._threads -= 1

    def _next(self) -> Task | None:
        """The task whose turn it is; None after having waited for one."""
        while self._queue and self._queue[0][1] != self._queue[0][2]._entry:
            heappop(self._queue)
        wait = _LONGEST_IDLE
        if self._queue:
            wait = min(wait, self._queue[0][0] - time.monotonic())
            if wait <= 0:
                return heappop(self._queue)[2]
        self._idle += 1
        told = self._something.wait(wait)
        self._idle -= 1
        if not told and not self._queue:
            for task in [task for task in self._tasks if task.orphaned]:
                self.drop(task)
        return None

    def _pass(self, task: Task) -> None:
        task._entry = -1
        task._woken = False
        task._running = True
        self._running.add(task)
        if self._queue and not self._idle:
            self._start_thread()  # somebody must watch the queue meanwhile
        self.lock.release()
        try:
            wait = task._do()
        finally:
            self.lock.acquire()
            task._running = False
            self._running.discard(task)
            task.passes += 1
            task._ended.notify_all()
        if wait is None:
            self.drop(task)
        else:
            self.put(task, time.monotonic() + (0.0 if task._woken else wait))

    def end(self) -> None:
        """Have no further passes of any task, and ask those under way to give up."""
        with self.lock:
            self.ending = True
            tasks = list(self._tasks | self._running)
        for task in tasks:
            task.ask_to_stop()

    def join(self, deadline: float) -> None:
        """Wait, after `end`, until no pass is under way, but not longer than that."""
        with self.lock:
            for task in list(self._running):
                task._ended.wait_for(
                    lambda task=task: not task._running,  # type: ignore[misc]
                    max(0.0, deadline - time.monotonic()),
                )

    def abandon(self) -> None:
        """The threads are not there any more: this is the child of a fork."""
        self.lock = Lock()
        self.ending = True
        self._something = Condition(self.lock)
        for task in self._tasks | self._running:
            task._stopped = True
            task._running = False
            task._ended = Condition(self.lock)
        self._tasks.clear()
        self._running.clear()
        self._queue.clear()
        self._threads = self._idle = 0


class Upkeeper:
    """Does the background work of everything that one process has open in a database."""

    def __init__(self) -> None:
        self._short = Lane("reef-upkeep", _SHORT_THREADS)
        self._long = Lane("reef-upkeep-long", _LONG_THREADS)
        join_at_exit(self)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Its threads, by the length of the passes that they do."""
        return (self._short, self._long)

    def add(
        self,
        name: str,
        owner: Owner,
        work: Callable[[Owner], float],
        *,
        wait: float = inf,
        long: bool = False,
        give_up: Callable[[Owner], None] | None = None,
    ) -> Task:
        """Do this work for the owner, who is not kept alive by it.

        `work` does one pass and returns the seconds until the next: 0 for at once, infinity for
        when it is woken. The first comes after `wait`. `long` passes, of seconds and more, do not
        hold the others up. `give_up` is called when the task is stopped, to cut a pass short.
        """
        lane = self._long if long else self._short
        task = Task(lane, name, owner, work, give_up)
        with lane.lock:
            lane.add(task, time.monotonic() + wait)
        return task

    def every(
        self, seconds: float, owner: Owner, work: Callable[[Owner], object], *, name: str
    ) -> Task:
        """Do some short work for the owner again and again, for the first time after that many
        seconds. Stop the task, or let go of the owner, to end it."""

        def once(owner: Owner) -> float:
            work(owner)
            return seconds

        return self.add(name, owner, once, wait=seconds)

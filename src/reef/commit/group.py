"""Group commit: threads that commit at the same time share one log object.

The first that finds nobody at work leads: it does the work of those who wait. What arrives
meanwhile waits for the next leader, who is named before the others are woken, so that the next PUT
starts at once. A lone thread never waits for anybody.

An interruption (Ctrl-C, or any exception that comes out of nowhere) can strike after every call.
So each step leaves something that the next thread can go on from: a ticket is in the queue until
it is done, the leader is known by its ticket, and whoever leaves, for whatever reason, passes the
lead on and wakes those who are done before it does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

from reef.environment import Environment
from reef.errors import CommitUncertain, Fenced, ReefError

Request = TypeVar("Request")
Answer = TypeVar("Answer")

_LONGEST_WINDOW = 0.005


class Ticket(Generic[Request, Answer]):
    """A request in the queue. `admitted` is what admission makes of it; `answer` or `error` is
    the outcome once it is `done`. `wake` is held until its thread, if it waits, is to go on."""

    __slots__ = ("admitted", "answer", "done", "error", "finished", "request", "wake")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.admitted: Any = None
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.done = False
        self.finished: Sequence[Ticket[Request, Answer]] = ()
        self.wake = Lock()
        self.wake.acquire()

    def fail(self, error: BaseException) -> None:
        """It is over, and this is why."""
        self.error = error
        self.done = True


class Group(Generic[Request, Answer]):
    """Lets one thread at a time do the work of all that wait.

    `work` is given the tickets that wait, in order, and makes at least the first of them done.
    Before it sends anything it puts those that it sends into `sent`, and takes them out when
    their outcome is known. An error that it raises is told to those sent, or else to all.
    """

    def __init__(
        self,
        environment: Environment,
        work: Callable[[list[Ticket[Request, Answer]]], None],
    ) -> None:
        self.sent: Sequence[Ticket[Request, Answer]] = ()
        self.failure: ReefError | None = None
        self._environment = environment
        self._work = work
        self._queue: deque[Ticket[Request, Answer]] = deque()
        self._mutex = Lock()
        self._leader: Ticket[Request, Answer] | None = None
        self._last_size = 0
        self._window = 0.0

    def commit(self, request: Request) -> Answer:
        """Have the request done, by this thread or another; its answer, or its error raised."""
        ticket: Ticket[Request, Answer] = Ticket(request)
        interruption: BaseException | None = None
        try:
            with self._mutex:
                if self.failure is not None:
                    raise self.failure
                self._queue.append(ticket)
                if self._leader is None:
                    self._leader = ticket
            if self._leader is not ticket:
                ticket.wake.acquire()
                if not ticket.done:
                    self._wait_for_company()
            while not ticket.done:
                self._lead()
        finally:
            # Nothing can strike here before it is inside of the inner `try`.
            while self._leader is ticket or ticket.finished or not ticket.done:
                try:
                    self._leave(ticket)
                except BaseException as again:
                    interruption = again
            if interruption is not None:
                raise interruption
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self._queue)

    def close(self, failure: ReefError) -> None:
        """Refuse further requests with that error, unless there is one already."""
        with self._mutex:
            self.failure = self.failure or failure

    def committed(self, size: int, seconds: float) -> None:
        """Tell how many went together, and how long it took: the next leader waits by that."""
        self._last_size = size
        if size > 1:
            self._window = min(seconds / 4, _LONGEST_WINDOW)

    def _wait_for_company(self) -> None:
        """Under load, let those whom the last leader has just woken join: a fraction of the time
        that a PUT takes, and only while there are fewer waiting than it had."""
        if len(self._queue) < self._last_size:
            self._environment.sleep(self._window)

    def _lead(self) -> None:
        """Do the work of those at the front of the queue, as far as they go together."""
        with self._mutex:
            waiting = [ticket for ticket in self._queue if not ticket.done]
        try:
            self._work(waiting)
        except Exception as failure:
            if isinstance(failure, Fenced):
                self.failure = failure
            self._tell(self.sent or waiting, failure)
            self.sent = ()

    def _tell(self, tickets: Sequence[Ticket[Request, Answer]], failure: BaseException) -> None:
        if self.sent and not isinstance(failure, ReefError):
            failure = _interrupted(failure)
        for ticket in tickets:
            if not ticket.done:
                ticket.fail(failure)

    def _leave(self, ticket: Ticket[Request, Answer]) -> None:
        """Take the ticket back if it is not done. If it led: those whose request was sent are in
        doubt, the first that still waits leads from here, and those that are done are woken."""
        with self._mutex:
            if self._leader is ticket:
                if self.sent:
                    self._tell(self.sent, _Stopped("its thread was stopped"))
                    self.sent = ()
                self._withdraw(ticket)
                queue = self._queue
                if len(queue) > 1 or (queue and queue[0] is not ticket):
                    done = [other for other in queue if other.done and other is not ticket]
                    ticket.finished = [*ticket.finished, *done]
                while queue and queue[0].done:
                    queue.popleft()
                # From here to the end of `release` nothing can strike.
                successor = queue[0] if queue else None
                self._leader = successor
                if successor is not None:
                    successor.wake.release()
            else:
                self._withdraw(ticket)
        for other in ticket.finished:
            if other.wake.locked():
                other.wake.release()
        ticket.finished = ()

    def _withdraw(self, ticket: Ticket[Request, Answer]) -> None:
        if not ticket.done:
            with suppress(ValueError):
                self._queue.remove(ticket)
            ticket.fail(_Stopped("it was taken back"))


class _Stopped(Exception):
    """The thread of a ticket left before it was done."""


def _interrupted(failure: BaseException) -> CommitUncertain:
    uncertain = CommitUncertain(f"the commit was interrupted by {failure!r}")
    uncertain.__cause__ = failure
    return uncertain

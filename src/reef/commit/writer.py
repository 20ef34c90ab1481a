"""The one writer of a log: takes requests, makes them durable one slot after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from reef.commit.contents import Contents
from reef.commit.follower import Follower
from reef.commit.group import Group, Ticket
from reef.commit.slot import win
from reef.errors import Closed, CommitUncertain, InvalidInput, ReefError, StoreUnavailable
from reef.log import LogHeader, encode
from reef.manifest import take_over

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Writer(ABC, Generic[Request, Answer]):
    """The one writer of what a follower follows, until another one opens it.

    A face says what becomes of requests: `admit` and `contents`, both called with the follower's
    lock held, and `answer`. Its root keeps the writer's epoch in the field of that name.
    """

    def __init__(self, follower: Follower[Any, Any], epoch_field: str = "writer_epoch") -> None:
        self._follower = follower
        self._epoch_field = epoch_field
        self._group: Group[Request, Answer] = Group(follower.environment, self._work)
        self.epoch = 0

    @abstractmethod
    def admit(
        self, waiting: Sequence[Ticket[Request, Answer]]
    ) -> tuple[list[Ticket[Request, Answer]], list[Ticket[Request, Answer]]]:
        """Of the first of those that wait: the ones that go together into the next slot, and the
        ones decided already, whose `answer` or `error` is set. Neither if it has to be asked anew.

        What is decided without a slot, by this state alone, may be asked again too.
        """

    @abstractmethod
    def contents(self, group: Sequence[Ticket[Request, Answer]]) -> Contents:
        """What goes into the log object for those that were admitted together."""

    @abstractmethod
    def answer(self, ticket: Ticket[Request, Answer], lsn: int) -> Answer:
        """What is told to one that was committed in that slot."""

    def open(self) -> None:
        """Take over: read the log, raise the epoch, and fence at the log's end."""
        follower = self._follower
        follower.recover()
        self.epoch, head = take_over(
            follower.register,
            self._epoch_field,
            follower.head,
            above=follower.state.epoch,
            also=self.taken_over,
        )
        follower.advance(head)
        while self.append(self.fence()) is None:
            pass

    def taken_over(self, root: Any) -> Any:
        """What the publication that raises the epoch makes of the newest root besides."""
        self._follower.check_root(root)
        return root

    def fence(self) -> Contents:
        """What the entry that fences holds."""
        return Contents()

    def commit(self, request: Request) -> Answer:
        """Make the request durable and visible, and return its answer.

        Raises what admission refuses it with, with nothing written; `Fenced` when another writer
        took over; `CommitUncertain` if the store did not say.
        """
        return self._group.commit(request)

    def append(self, contents: Contents) -> int | None:
        """Put contents into the next slot; None if they must be decided anew."""
        return win(self._follower, contents, self.epoch)

    @property
    def waiting(self) -> int:
        """How many commits are not done yet."""
        return len(self._group)

    def check_open(self) -> None:
        """Raise why it does not write any more, if it does not."""
        if self._group.failure is not None:
            raise self._group.failure

    def close(self) -> None:
        """Refuse further commits. What was committed is durable already."""
        self._group.close(Closed("the namespace was closed"))

    def _work(self, waiting: list[Ticket[Request, Answer]]) -> None:
        """One log object: whoever is at the front of the queue, as far as they go together."""
        follower = self._follower
        with follower.lock:
            while waiting:
                self.check_open()
                try:
                    group, decided = self.admit(waiting)
                except Exception as error:
                    # One of them cannot be decided: alone, each answers for itself.
                    if len(waiting) == 1:
                        waiting[0].fail(refusal(error))
                    waiting = waiting[:1] if len(waiting) > 1 else []
                    continue
                if decided:
                    if follower.unsettled:
                        for ticket in decided:
                            ticket.answer = ticket.error = None
                        self._settle()
                        continue
                    for ticket in decided:
                        ticket.done = True
                if not group or self._commit(group):
                    return
                waiting = [ticket for ticket in group if not ticket.done]

    def _commit(self, group: list[Ticket[Request, Answer]]) -> bool:
        """Put the group into the next slot. False when somebody else held that slot: whoever it
        was has been taken in, and the group must be admitted anew."""
        now = self._follower.environment.monotonic
        began = now()
        try:
            contents = self.contents(group)
        except Exception as error:
            return self._one_by_one(group, error)
        self._group.sent = group
        try:
            lsn = self.append(contents)
        except InvalidInput as error:
            self._group.sent = ()
            return self._one_by_one(group, error)
        if lsn is None:
            self._group.sent = ()
            return False
        for ticket in group:
            ticket.answer = self.answer(ticket, lsn)
            ticket.done = True
        self._group.sent = ()
        self._group.committed(len(group), now() - began)
        return True

    def _one_by_one(self, group: list[Ticket[Request, Answer]], error: Exception) -> bool:
        """Find out who brought what cannot be written; nobody else is to suffer for it. As
        `_commit` for the others."""
        if len(group) == 1:
            group[0].fail(refusal(error))
            return True
        for ticket in group:
            try:
                contents = self.contents([ticket])
                encode(LogHeader(0, "", 0, "", 0.0, batches=tuple(contents.batches)), [])
            except Exception as own:
                ticket.fail(refusal(own))
        sound = [ticket for ticket in group if not ticket.done]
        # If each of them is, they do not go together, and the first goes alone.
        return not sound or self._commit(sound if len(sound) < len(group) else sound[:1])

    def _settle(self) -> None:
        """After a commit whose fate nobody could tell: claim its slot, or take in what is there.

        Until then the state is not known, and what takes no PUT must not be decided against it:
        neither that a condition fails nor that there is nothing to write. A PUT finds out itself.
        """
        while self._follower.unsettled:
            try:
                self.append(Contents())
            except CommitUncertain as still:
                raise StoreUnavailable(
                    f"nothing was written: the commit before is not settled yet ({still})"
                ) from still


def refusal(error: Exception) -> Exception:
    """What is told to the one whose request failed like this before anything was sent."""
    if isinstance(error, ReefError | MemoryError):
        return error
    refused = InvalidInput(f"it cannot be written ({error!r})")
    refused.__cause__ = error
    return refused

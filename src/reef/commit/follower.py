"""A state as one process sees it: the newest root that it knows, and the log above it.

Recovery (and every refresh) is one way: take the newest root, replay the log from its floor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar

from reef.environment import Environment
from reef.errors import NamespaceDropped
from reef.log import Log, LogEntry, LogTail
from reef.log.tail import GivenUp, MissingSlot, heeding_skips
from reef.manifest import Head, Register, Root


class State(Protocol):
    """What the log above a root amounts to: slots `floor` up to, and without, `next_lsn`.

    `epoch` is the highest among the writers of its entries.
    """

    floor: int
    next_lsn: int
    epoch: int

    def apply(self, entry: LogEntry, records: Any = None) -> None:
        """Take the entry of the next slot in; `records` is what it decodes to, if that is known.
        `Corruption` if it cannot come next."""


R = TypeVar("R", bound=Root)
S = TypeVar("S", bound=State)


class Follower(ABC, Generic[R, S]):
    """Follows a root and a log, and holds the state that was last read of them.

    What a face says of its roots and its state is in the abstract methods. `identity` tells this
    process's appends and publications from everybody else's. The lock guards the state.

    `discarded` are slots at the end of the log that were found damaged and taken as never
    committed: the next append says so, or else they are looked at again. `skips` are slots that
    entries of the log give up. `unsettled` says that an append of this process ended without
    anybody knowing whether it is in its slot, so that the state may lack it.
    """

    def __init__(
        self, register: Register[R], log: Log, environment: Environment, identity: str
    ) -> None:
        self.register = register
        self.log = log
        self.environment = environment
        self.identity = identity
        self.lock = RLock()
        self.discarded: tuple[int, ...] = ()
        self.skips: frozenset[int] = frozenset()
        self.unsettled = False
        self._head: Head[R] | None = None
        self._state: S | None = None
        self._looked = 0.0
        self._fresh_until = 0.0

    # What a face says

    @abstractmethod
    def floor_of(self, root: R) -> int:
        """The first slot that is not in the root."""

    @abstractmethod
    def first_retained(self, root: R) -> int:
        """The slot from which on the whole log is retained."""

    @abstractmethod
    def is_retained(self, root: R, lsn: int) -> bool:
        """Whether a slot is above the floor, or below it but still retained."""

    @abstractmethod
    def epoch_of(self, root: R) -> int:
        """The epoch of the writer that the root knows."""

    @abstractmethod
    def start(self, root: R) -> S:
        """The state on top of a root, before anything of the log."""

    @abstractmethod
    def rest(self, state: S, root: R) -> S:
        """What is left of a state on top of a root that has taken its beginning in."""

    def check_root(self, root: R) -> None:
        """Raise if that root is not of what was read here: that has ended."""
        return

    def check_state(self, state: S) -> None:
        """Raise if the log says that what it is the log of has ended."""
        return

    def check_entry(self, entry: LogEntry) -> None:
        """Raise if it ended with that entry, which somebody else put into the next slot."""
        return

    # What is known

    @property
    def head(self) -> Head[R]:
        """The newest root known to this process."""
        assert self._head is not None
        return self._head

    @property
    def state(self) -> S:
        """The state known to this process."""
        state = self._state
        return state if state is not None else self._restored()

    def _restored(self) -> S:
        """The state read anew, if it was lost: half of an entry may have been in it."""
        with self.lock:
            if self._state is None:
                assert self._head is not None
                self.recover()
            assert self._state is not None
            return self._state

    # Following

    def recover(self, head: Head[R] | None = None) -> None:
        """Read the whole state anew from the bucket."""
        with self.lock:
            head = head or self.register.head()
            while True:
                try:
                    state = heeding_skips(partial(self._read, head.root))
                    if self.confirmed(head, self.floor_of(head.root)) is not None:
                        break
                    head = self.register.head()
                except (MissingSlot, NamespaceDropped) as gap:
                    head = self.past(gap)
            self.install(head, state)

    def _read(self, root: R, skips: frozenset[int]) -> S:
        state = self.start(root)
        self._replay(state, skips)
        return state

    def refresh(self) -> None:
        """Catch up with the bucket: a newer root, and what was appended to the log."""
        if self._state is None or self.discarded:
            # A slot that was passed over must be skipped by the entry behind it, or else it is
            # one that was damaged only on its way here.
            self.recover()
            return
        with self.lock:
            current, seen = self.state, self.state.next_lsn
            try:
                self._catch_up()
            except BaseException:
                # Entries that were taken in are shown, or the state would go by another slot than
                # it names.
                if self.state is current and current.next_lsn != seen:
                    self.install(self.head, current)
                raise

    def _catch_up(self) -> None:
        head = self.register.head()
        if head.root.generation < self.head.root.generation:
            head = self.head
        while True:
            try:
                state = self._caught_up(head.root)
                first = state.next_lsn
                self._replay(state, self.skips)
                if self.confirmed(head, first) is not None:
                    break
                head = self.register.head()
            except (MissingSlot, NamespaceDropped) as gap:
                head = self.past(gap)
            except GivenUp:
                self.recover(head)
                return
        self.install(head, state)

    def _caught_up(self, root: R) -> S:
        current = self.state
        floor = self.floor_of(root)
        if floor < current.floor or floor > current.next_lsn:
            return self.start(root)
        return current if floor <= current.floor else self.rest(current, root)

    def past(self, gap: MissingSlot | NamespaceDropped) -> Head[R]:
        """The newest head: a slot that is gone was folded and collected, or else it was lost, and
        the gap is raised. So it is with a drop, unless the name is in use again."""
        head = self.register.head()
        if self.floor_of(head.root) <= gap.lsn:
            raise gap
        return head

    def confirmed(self, head: Head[R], first: int) -> Head[R] | None:
        """The head, or a newer one, if the log that was just read from that slot on belongs to
        it. None if not: after a long sleep in between, a slot may have been collected and won
        again by somebody who slept even longer."""
        if self.environment.monotonic() - head.confirmed < head.root.lease:
            return head
        newest = self.register.head()
        return newest if self.first_retained(newest.root) <= first else None

    def _replay(self, state: S, skips: frozenset[int]) -> None:
        tail = LogTail(self.log, state.next_lsn, skips=skips, held=state.floor)
        for entry in tail:
            self._apply(state, entry)
            self.check_state(state)
        self.check_state(state)
        state.next_lsn = max(state.next_lsn, tail.next_lsn)
        self.discarded = tuple(tail.discarded)
        self.skips = frozenset(lsn for lsn in tail.skips if lsn >= state.floor)

    def install(self, head: Head[R], state: S) -> None:
        """Make this the state that is known."""
        with self.lock:
            self._head, self._state = head, state
            self._looked_at(head)

    def apply(self, entry: LogEntry) -> None:
        """Take in what somebody else put into the next slot."""
        with self.lock:
            state = self.state
            skips = entry.header.skips
            if skips or self.discarded:
                known = self.skips.union(self.discarded)
                held = any(
                    state.floor <= lsn < state.next_lsn and lsn not in known for lsn in skips
                )
                if held or not set(self.discarded) <= set(skips):
                    # It gives up what is in this state, or counts on what is not.
                    self.recover()
                    return
                self.skips = known.union(skips)
                self.discarded = ()
            self.take(entry)
            self.check_state(self.state)

    def take(self, entry: LogEntry, records: Any = None) -> None:
        """Take in the entry of the next slot, which fits."""
        with self.lock:
            self._apply(self.state, entry, records)

    def _apply(self, state: S, entry: LogEntry, records: Any = None) -> None:
        try:
            state.apply(entry, records)
        except BaseException:
            # A part of it may be in: whoever looks next reads all of it anew.
            self._state = None
            raise

    def advance(self, head: Head[R]) -> None:
        """Take in a root that was just published or read, without reading the log (unless the
        root fell back, past damage, to an older floor)."""
        with self.lock:
            if self._head is not None and head.slot < self._head.slot:
                return
            self.check_root(head.root)
            current = self._state
            floor = self.floor_of(head.root)
            if current is None or floor < current.floor:
                # The root fell back behind what was folded away here: that is needed again.
                self.recover(head)
                return
            if floor > current.next_lsn:
                # Slots that were never read here were folded: only the root knows their schema.
                epoch = current.epoch
                current = self.start(head.root)
                current.epoch = epoch
            elif floor > current.floor:
                current = self.rest(current, head.root)
            self.install(head, current)

    # Standing

    def slept(self) -> bool:
        """Whether it is so long since this process looked at the root that anything may be gone."""
        return self.environment.monotonic() >= self._fresh_until

    def look(self) -> R:
        """Look at the root, and take it in."""
        head = self.register.head()
        self._looked_at(head)
        self.advance(head)
        return head.root

    def _looked_at(self, head: Head[R]) -> None:
        self._looked = max(self._looked, head.confirmed)
        self._fresh_until = self._looked + head.root.lease

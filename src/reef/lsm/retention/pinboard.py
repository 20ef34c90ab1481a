"""The pin board: which states must be kept, in a small register of their own, with a floor.

A pin names a generation of some root, and the log above it. It is entered and taken away by
publication. Its holder says that it is alive by writing an empty object over and over, its
*heartbeat*, which contends with nobody and publishes nothing; the bucket's time on it decides
when the pin has lapsed, and a collector's publication makes it so. A pin without end has none.

The *floor* is a generation below which nothing can be pinned any more, except what a pin keeps
already. A collector raises it before it decides what to forget: from then on the pins below it can
only become fewer, so whatever is pinned meanwhile does not disturb the plan, and whoever was
pinned before is seen. No clock is needed for that, neither the bucket's nor anybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

import msgspec

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    InvalidName,
    ObjectNotFound,
    PastRetention,
    StoreError,
)
from reef.lsm.retention.reachability import Needs
from reef.manifest import Head, Register, Root
from reef.manifest.codec import RootCodec
from reef.manifest.layout import Layout
from reef.store.contract import ObjectInfo, Store, check_key

PREFIX = "pins/"
HEARTBEATS = "heartbeats/"
BOARDS = 16
"""How many boards are kept: whoever publishes one deletes the one that many before it, so they are
few to list, and the newest is found without a hint. Nobody relies on an old one: a publisher that
slept looks again, whatever number it wins."""
_LONGEST_NAME = 128


class PinnedState(msgspec.Struct, frozen=True, array_like=True):
    """A state that is kept: the generation with that nonce, and the log above it through `lsn`.

    `ingests` says whether that part of the log brings segments of its own. `entered` is the
    board's generation that entered it last, and `seconds` how long it is kept after each heartbeat;
    None: until it is released.
    """

    generation: int
    lsn: int
    nonce: str
    ingests: bool = False
    seconds: float | None = None
    entered: int = 0

    def keeps(self, other: PinnedState) -> bool:
        """Whether whatever the other state needs is kept by this pin."""
        mine, theirs = (self.generation, self.nonce), (other.generation, other.nonce)
        return mine == theirs and other.lsn <= self.lsn


class Pins(Root, frozen=True, omit_defaults=True):
    """One generation of the board."""

    floor: int = 0
    pins: dict[str, PinnedState] = msgspec.field(default_factory=dict)


def _absent() -> ObjectNotFound:
    return ObjectNotFound(PREFIX)


PINS: Layout[Pins] = Layout(PREFIX, ".json", RootCodec(Pins, "pins"), _absent)
Edit = Callable[[Pins], Pins | None]


@dataclass(frozen=True)
class Lapses:
    """When each pin of a board lapses, by the bucket's clock; None: never by itself."""

    board: Pins
    due: Mapping[str, float | None]

    def by(self, now: float) -> dict[str, PinnedState]:
        """The pins that have lapsed by then."""
        gone = (name for name, due in self.due.items() if due is not None and due <= now)
        return {name: self.board.pins[name] for name in gone}


class _Ticket:
    __slots__ = ("board", "edit", "error")

    def __init__(self, edit: Edit) -> None:
        self.edit = edit
        self.board: Pins | None = None
        self.error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.board is not None or self.error is not None


class PinBoard:
    """The pins below a prefix. Threads that publish at the same time publish together. `known` is
    what collectors of this process know of the needs of pinned states."""

    def __init__(
        self, store: Store, environment: Environment, publisher: str, name: str = ""
    ) -> None:
        self.store = store
        self.name = name
        self.register = Register(store, environment, publisher, PINS)
        self.known: dict[PinnedState, Needs] = {}
        self._waiting: list[_Ticket] = []
        self._mutex = Lock()
        self._turn = Lock()

    def read(self) -> Pins:
        """The board as it is; an empty one if nothing was ever pinned or collected."""
        head = self._head()
        return _nothing() if head is None else head.root

    def _head(self) -> Head[Pins] | None:
        try:
            return self.register.head()
        except ObjectNotFound:
            return None

    def pin(self, name: str, state: PinnedState) -> bool:
        """Enter a state under a name, or renew it; False if it was there and needed no entry.

        A name that holds another state is given to this one. `PastRetention` if the state is below
        the floor, and no pin keeps it.
        """
        check_name(name)
        # The heartbeat comes first: an entry that anybody sees is alive.
        in_time = state.seconds is None or self._beat(name, state.seconds)
        head = self._head()
        held = None if head is None else head.root.pins.get(name)
        if in_time and held is not None and _same(held, state):
            return False

        def enter(newest: Pins) -> Pins:
            _check_kept(newest, state)
            # The number makes it another entry than the one that a collector saw lapse.
            entered = msgspec.structs.replace(state, entered=newest.generation)
            return msgspec.structs.replace(newest, pins={**newest.pins, name: entered})

        self._publish(enter, head)
        return True

    def release(self, name: str) -> bool:
        """Let a state go. False if it was not pinned under that name, or has lapsed."""
        check_name(name)
        found = False

        def drop(newest: Pins) -> Pins | None:
            nonlocal found
            found = name in newest.pins
            return _without(newest, {name}) if found else None

        self._publish(drop)
        self.store.delete(HEARTBEATS + name)
        return found

    def lapses(self, board: Pins) -> Lapses:
        """When each pin of a board lapses. One whose heartbeat is gone counts from its entry,
        or from the oldest board after that."""
        beats: dict[str, float] = {}
        if any(pin.seconds is not None for pin in board.pins.values()):
            for info in self.store.list(HEARTBEATS):
                beats[info.key.removeprefix(HEARTBEATS)] = info.modified
        due: dict[str, float | None] = {}
        boards: list[tuple[int, ObjectInfo]] | None = None
        for name, pin in board.pins.items():
            if pin.seconds is None:
                due[name] = None
                continue
            since = beats.get(name)
            if since is None:
                if boards is None:
                    boards = self.register.generations()
                later = (info.modified for number, info in boards if number >= pin.entered)
                since = next(later, float("-inf"))
            due[name] = since + pin.seconds
        return Lapses(board, due)

    def raise_floor(self, floor: int, lapsed: Mapping[str, PinnedState]) -> Pins:
        """Forbid new pins below a generation, and take away pins that lapsed, unless they were
        entered anew since. The board as it is from then on: below the floor, only fewer come."""

        def settle(newest: Pins) -> Pins | None:
            gone = {name for name, pin in lapsed.items() if newest.pins.get(name) == pin}
            if not gone and newest.floor >= floor:
                return None
            rest = _without(newest, gone)
            return msgspec.structs.replace(rest, floor=max(newest.floor, floor))

        return self._publish(settle)

    def tidy(self, board: Pins, before: float) -> None:
        """Delete old boards, and heartbeats without a pin that are older than a time."""
        oldest = board.generation - BOARDS
        doomed = [info.key for number, info in self.register.generations() if number <= oldest]
        doomed += [
            info.key
            for info in self.store.list(HEARTBEATS)
            if info.modified <= before and info.key.removeprefix(HEARTBEATS) not in board.pins
        ]
        if doomed:
            self.store.delete_many(doomed)

    def _beat(self, name: str, seconds: float) -> bool:
        """Write the heartbeat; whether the one before it had not lapsed by then. Whoever lists it
        after that finds the new one, so no collector can have seen this pin lapse."""
        before = self._last_beat(name)
        self.store.put(HEARTBEATS + name, b"")
        # It may be gone again: taken for an old one by a collector that met none of its pins.
        now = None if before is None else self._last_beat(name)
        return before is not None and now is not None and now - before < seconds

    def _last_beat(self, name: str) -> float | None:
        try:
            return self.store.head(HEARTBEATS + name).modified
        except ObjectNotFound:
            return None

    def _publish(self, edit: Edit, head: Head[Pins] | None = None) -> Pins:
        ticket = _Ticket(edit)
        with self._mutex:
            self._waiting.append(ticket)
        with self._turn:
            if not ticket.done:
                with self._mutex:
                    together, self._waiting = self._waiting, []
                try:
                    self._publish_all(together, head)
                finally:
                    with self._mutex:
                        self._waiting += [t for t in together if t is not ticket and not t.done]
        if ticket.error is not None:
            raise ticket.error
        assert ticket.board is not None
        return ticket.board

    def _publish_all(self, tickets: list[_Ticket], head: Head[Pins] | None) -> None:
        def edit(newest: Pins) -> Pins | None:
            edited = newest
            for ticket in tickets:
                ticket.error = None
                try:
                    edited = ticket.edit(edited) or edited
                except Exception as refused:
                    ticket.error = refused
            return None if edited is newest else edited

        try:
            board = self._published(edit, head)
        except Exception as failure:
            for ticket in tickets:
                ticket.error = ticket.error or failure
            return
        for ticket in tickets:
            ticket.board = board
        if board.publisher == self.register.publisher and board.generation > BOARDS:
            with suppress(StoreError):
                self.store.delete(PINS.key(board.generation - BOARDS))

    def _published(self, edit: Edit, head: Head[Pins] | None) -> Pins:
        while True:
            try:
                return self.register.publish(edit, head).root
            except ObjectNotFound:
                first = edit(msgspec.structs.replace(_nothing(), generation=1))
            if first is None:
                return _nothing()
            register = self.register
            first = msgspec.structs.replace(
                first,
                namespace=self.name,
                created_at=register.environment.now(),
                publisher=register.publisher,
                nonce=register.environment.nonce(),
            )
            try:
                created = register.create(first).root
            except AlreadyExists:
                continue
            # Whoever slept may win the first number once it was deleted: there are newer boards.
            if not register.generations(after=created.generation):
                return created


def check_name(name: str) -> str:
    """The name itself, or `InvalidName` if no pin can have it."""
    if not isinstance(name, str) or "/" in name or len(name) > _LONGEST_NAME:
        raise InvalidName(
            f"a pin's name is text of 1 to {_LONGEST_NAME} characters without slashes, not {name!r}"
        )
    check_key(HEARTBEATS + name)
    return name


def _nothing() -> Pins:
    return Pins(0, "", 0.0, "", "")


def _same(held: PinnedState, state: PinnedState) -> bool:
    return held == msgspec.structs.replace(state, entered=held.entered)


def _without(board: Pins, names: set[str]) -> Pins:
    rest = {name: pin for name, pin in board.pins.items() if name not in names}
    return msgspec.structs.replace(board, pins=rest)


def _check_kept(board: Pins, state: PinnedState) -> None:
    if state.generation >= board.floor:
        return
    if any(pin.keeps(state) for pin in board.pins.values()):
        return
    raise PastRetention(
        f"generation {state.generation} is no longer retained, and cannot be pinned: what was"
        f" superseded by generation {board.floor} may be gone"
    )

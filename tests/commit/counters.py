"""The smallest face: counters by name, in a root, a log and nothing else.

A request adds to a counter, which never falls below zero; its answer is the slot and what the
counter is then. A fold moves counts from the log into the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from reef.commit import Contents, Follower, Ticket, Writer
from reef.environment import Environment
from reef.errors import ConditionFailed, Corruption
from reef.log import BatchHeader, Lineage, Log, LogEntry, Naming
from reef.log.naming import Bucketed
from reef.manifest import Register, Root
from reef.manifest.codec import RootCodec
from reef.manifest.layout import Layout
from reef.store.contract import Store


class CountersRoot(Root, frozen=True, omit_defaults=True):
    """Counts through the slot before `floor`; slots from `retained` on are kept."""

    writer_epoch: int = 0
    master_epoch: int = 0
    floor: int = 1
    retained: int = 1
    counts: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def lease(self) -> float:
        """As `Root` says."""
        return 10.0


ROOTS: Layout[CountersRoot] = Layout(
    "roots/", ".root", RootCodec(CountersRoot, "root", 1), lambda: LookupError("no counters")
)

LOG = Bucketed("log/")


class Counts:
    """What the log above a root amounts to."""

    def __init__(self, floor: int, counts: dict[str, int]) -> None:
        self.floor = floor
        self.next_lsn = floor
        self.epoch = 0
        self.counts = dict(counts)

    def apply(self, entry: LogEntry, records: Any = None) -> None:
        """Take the entry of the next slot in."""
        header = entry.header
        if header.lsn < self.next_lsn or (header.epoch < self.epoch and not header.guest):
            raise Corruption(str(header.lsn), "it cannot come next")
        for name, amount in records or map(msgspec.json.decode, entry.records):
            self.counts[name] = self.counts.get(name, 0) + amount
        self.epoch = max(self.epoch, header.epoch)
        self.next_lsn = header.lsn + 1


class Counters(Follower[CountersRoot, Counts]):
    """Counters as one process sees them."""

    def __init__(
        self,
        store: Store,
        environment: Environment,
        naming: Naming = LOG,
        lineage: Lineage | None = None,
    ) -> None:
        identity = environment.unique_id()
        register = Register(store, environment, identity, ROOTS)
        log = Log(store, environment, naming, lineage)
        super().__init__(register, log, environment, identity)

    def create(self, **more: Any) -> Counters:
        """Publish the first root."""
        self.register.create(CountersRoot(1, "counters", 0.0, "p", "n", **more))
        return self

    def floor_of(self, root: CountersRoot) -> int:
        return root.floor

    def first_retained(self, root: CountersRoot) -> int:
        return root.retained

    def is_retained(self, root: CountersRoot, lsn: int) -> bool:
        return lsn >= root.retained

    def epoch_of(self, root: CountersRoot) -> int:
        return root.writer_epoch

    def start(self, root: CountersRoot) -> Counts:
        return Counts(root.floor, root.counts)

    def rest(self, state: Counts, root: CountersRoot) -> Counts:
        rest = Counts(root.floor, state.counts)
        rest.next_lsn, rest.epoch = state.next_lsn, state.epoch
        return rest

    def fold(self, *, forget: bool = False) -> None:
        """Put the counts of now into the root; with `forget` the slots before it are not kept."""
        with self.lock:
            state = self.state
            floor, counts = state.next_lsn, dict(state.counts)

        def edit(newest: CountersRoot) -> CountersRoot:
            retained = floor if forget else newest.retained
            return msgspec.structs.replace(newest, floor=floor, counts=counts, retained=retained)

        self.advance(self.register.publish(edit))


@dataclass(frozen=True)
class Add:
    """Add to a counter; `note` goes into the log's header."""

    name: str
    amount: Any = 1
    note: Any = None


Answer = tuple[int, int]


class CountersWriter(Writer[Add, Answer]):
    """The one writer of the counters."""

    def __init__(self, counters: Counters) -> None:
        super().__init__(counters)
        self.counters = counters

    def admit(
        self, waiting: Sequence[Ticket[Add, Answer]]
    ) -> tuple[list[Ticket[Add, Answer]], list[Ticket[Add, Answer]]]:
        state = self.counters.state
        counts = dict(state.counts)
        group: list[Ticket[Add, Answer]] = []
        decided: list[Ticket[Add, Answer]] = []
        for ticket in waiting:
            add = ticket.request
            total = counts.get(add.name, 0) + add.amount
            if total < 0:
                if group:
                    break
                ticket.error = ConditionFailed(f"{add.name} would be {total}")
                decided.append(ticket)
            elif not add.amount:
                if group:
                    break
                ticket.answer = (state.next_lsn - 1, total)
                decided.append(ticket)
            else:
                counts[add.name] = ticket.admitted = total
                group.append(ticket)
        return group, decided

    def contents(self, group: Sequence[Ticket[Add, Answer]]) -> Contents:
        adds = [(ticket.request.name, ticket.request.amount) for ticket in group]
        return Contents(
            [BatchHeader(1, condition={"note": ticket.request.note}) for ticket in group],
            [[msgspec.json.encode(add)] for add in adds],
            adds,
        )

    def answer(self, ticket: Ticket[Add, Answer], lsn: int) -> Answer:
        return lsn, ticket.admitted

    def add(self, name: str, amount: Any = 1, note: Any = None) -> Answer:
        """Add to a counter."""
        return self.commit(Add(name, amount, note))


def added(name: str, amount: int) -> Contents:
    """What a guest appends to add to a counter."""
    return Contents([BatchHeader(1)], [[msgspec.json.encode((name, amount))]])

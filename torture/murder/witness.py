"""The witness: records what every process says that it does, and judges what they read.

For each lane it keeps the states that the acknowledgements allow. A batch that was announced may
have happened or not until it is acknowledged or refused; one whose process died, or was told
nothing, stays open until somebody reads a state that decides it, for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torture.murder.batch import Batch, Counts, Row, State


class Violation(Exception):
    """A promise was broken."""


@dataclass(eq=False)
class Node:
    """A state that a lane may be in: what `batch` made of the one before. `lsn` is None while
    the slot is not known, or when the batch changed nothing; `latest` is the last it can be."""

    state: State
    before: Node | None = None
    batch: Batch | None = None
    counts: Counts = (0, 0, 0, 0)
    lsn: int | None = None
    latest: int | None = None
    acknowledged: bool = False

    def line(self) -> Iterator[Node]:
        """This one and those before it, newest first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.before


@dataclass(frozen=True)
class Acknowledged:
    """A batch that counts: it was acknowledged, and the witness knows."""

    batch: Batch
    lsn: int


@dataclass
class Lane:
    """What is known of one lane. `ends` are the states it may be in now."""

    name: str
    ends: list[Node] = field(default_factory=lambda: [Node({})])
    number: int = 1
    open: Batch | None = None
    retry: Batch | None = None
    attempt: list[Node] = field(default_factory=list)

    # A batch is announced, and something becomes of it.

    def intent(self, batch: Batch) -> None:
        """It is about to be written."""
        self.settle()
        self.number = max(self.number, batch.number + 1)
        self.open = batch
        self.retry = None
        self.attempt = []
        for end in self.ends:
            if _node_of(end, batch) is not None:
                continue  # a key tried again, and here it had happened
            effect = batch.effect(end.state)
            if effect is not None:
                self.attempt.append(Node(effect[0], end, batch, effect[1]))
        self.ends = self.ends + self.attempt

    def acknowledged(self, number: int, lsn: int, counts: Counts) -> Acknowledged:
        """It happened."""
        batch = self._opened(number)
        kept = [
            end
            for end in self.ends
            if (node := _node_of(end, batch)) is not None
            and node.counts == counts
            and node.lsn in (None, lsn)
        ]
        if not kept:
            possible = [node.counts for end in self.ends if (node := _node_of(end, batch))]
            raise Violation(
                f"{_name(batch)} was acknowledged in slot {lsn} with counts {counts};"
                f" possible were {possible or 'none, its condition cannot hold'}"
            )
        self.ends = kept
        for end in kept:
            node = _node_of(end, batch)
            assert node is not None
            node.acknowledged = True
            if node.before is None or node.before.state != node.state:
                node.lsn = node.latest = lsn
        self.open = None
        return Acknowledged(batch, lsn)

    def refused(self, number: int, outcome: str) -> None:
        """This attempt did nothing, and never will. (One before it, under the same key, may have;
        but then the condition was not asked again.)"""
        batch = self._opened(number)
        kept = [end for end in self.ends if end not in self.attempt]
        if outcome == "failed":
            kept = [
                end
                for end in kept
                if _node_of(end, batch) is None and batch.effect(end.state) is None
            ]
        if not kept:
            raise Violation(f"{_name(batch)} was refused ({outcome}) and cannot have been")
        self.ends = kept
        if batch.keyed and any(_node_of(end, batch) for end in kept):
            self.retry = batch
        self.open = None

    def unknown(self, number: int) -> None:
        """Nobody could say."""
        batch = self._opened(number)
        self.retry = batch if batch.keyed else None
        self.open = None

    def settle(self) -> None:
        """Whoever wrote this lane is dead, or goes on: what was open stays open."""
        if self.open is not None:
            self.unknown(self.open.number)

    def fenced_at(self, lsn: int) -> None:
        """A new writer of this lane has put its fence at or before that slot: whatever was left
        open lies before it, or nowhere."""
        for end in self.ends:
            for node in end.line():
                if node.latest is not None:
                    break
                node.latest = lsn

    def _opened(self, number: int) -> Batch:
        assert self.open is not None
        assert self.open.number == number
        return self.open

    # What somebody saw.

    def seen(self, rows: Mapping[str, Row], low: int, high: int) -> None:
        """Somebody read this, at a slot from `low` to `high`: it must be what the lane was then,
        and decides between the possibilities there were."""
        kept = [end for end in self.ends if _meets(end, rows, low, high)]
        if not kept:
            raise Violation(self._explain(rows, low, high))
        self.ends = kept

    def lost(self, rows: Mapping[str, Row]) -> int:
        """How many acknowledged batches a state that was read does not have."""
        fewest = 0
        for end in self.ends:
            line = list(end.line())
            older = next((place for place, node in enumerate(line) if node.state == rows), None)
            missing = sum(node.acknowledged for node in line[:older])
            fewest = min(fewest or missing, missing)
        return fewest

    def _explain(self, rows: Mapping[str, Row], low: int, high: int) -> str:
        told = [f"lane {self.name} at slots {low} to {high} is in no state that it can be in"]
        for end in self.ends:
            eligible = [node for node in end.line() if node.state == rows]
            if eligible:
                batch = eligible[0].batch
                told.append(f"it was in that state after {_name(batch)} in {eligible[0].lsn}")
            node = next(n for n in end.line() if n.lsn is None or n.lsn <= high)
            differing = sorted(
                id for id in {*rows, *node.state} if rows.get(id) != node.state.get(id)
            )
            told += [
                f"after {_name(node.batch)} in slot {node.lsn}, {id} is {node.state.get(id)},"
                f" and {rows.get(id)} was read"
                for id in differing[:8]
            ]
        return "; ".join(told)


def _meets(end: Node, rows: Mapping[str, Row], low: int, high: int) -> bool:
    for node in end.line():
        if node.lsn is not None and node.lsn > high:
            continue
        if node.state == rows:
            return True
        if node.latest is not None and node.latest <= low:
            return False
    return False


def _node_of(end: Node, batch: Batch) -> Node | None:
    for node in end.line():
        if node.batch is None or node.batch.number < batch.number:
            return None
        if node.batch.number == batch.number:
            return node
    return None


def _name(batch: Batch | None) -> str:
    return "its beginning" if batch is None else f"batch {batch.lane}/{batch.number} ({batch.kind})"

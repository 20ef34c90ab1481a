"""The hearing: what victims tell, one message after the other, goes to the witness."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from torture.murder.batch import make_batch
from torture.murder.channel import Channel
from torture.murder.crash_points import CrashPoint
from torture.murder.life import Life, Message
from torture.murder.witness import Acknowledged, Lane, Violation


@dataclass(eq=False)
class Victim:
    """A process that is alive, as far as anybody knows."""

    life: Life
    process: int
    channel: Channel
    point: CrashPoint | None
    floor: int
    born: float = field(default_factory=time.monotonic)
    seen: int = 0
    opened: bool = False
    dying: str = ""
    killed: bool = False
    ended: bool = False
    progress: int = 0


class Hearing:
    """What is known of one round. Raises `Violation` when something told cannot be.

    `newest` is the highest slot that was acknowledged, `heard` when that was last done. A state
    that was the newest may be gone after `retained` seconds, and not before.
    """

    def __init__(self, lanes: Iterable[str], retained: float) -> None:
        self.counts: Counter[str] = Counter()
        self.journal: deque[str] = deque(maxlen=4000)
        self.lanes = {name: Lane(name) for name in lanes}
        self.lost = 0
        self.newest = 0
        self.began = self.heard = time.monotonic()
        self._retained = retained
        self._keyed: deque[Acknowledged] = deque(maxlen=12)
        self._probed: set[str] = set()

    def hear(self, victim: Victim, message: Message) -> None:
        """Take a message in."""
        self.note(victim, message)
        getattr(self, "_on_" + message["told"].replace(" ", "_"))(victim, message)

    def note(self, victim: Victim, message: Message) -> None:
        """Write it down."""
        brief = {name: value for name, value in message.items() if name != "rows"}
        elapsed = time.monotonic() - self.began
        text = msgspec.json.encode(brief).decode()
        self.journal.append(f"{elapsed:8.3f} {victim.life.role} {victim.process} {text}")

    def _on_opened(self, victim: Victim, message: Message) -> None:
        victim.opened = True

    def _on_intent(self, victim: Victim, message: Message) -> None:
        lane = self.lanes[message["lane"]]
        lane.intent(
            make_batch(message["lane"], message["number"], message["kind"], message["keyed"])
        )

    def _on_acknowledged(self, victim: Victim, message: Message) -> None:
        lane = self.lanes[message["lane"]]
        known = lane.acknowledged(message["number"], message["lsn"], tuple(message["counts"]))
        self.newest = max(self.newest, known.lsn)
        if known.batch.keyed:
            self._keyed.append(known)
        self.heard = time.monotonic()
        victim.progress += 1
        self.counts["acknowledged writes"] += 1

    def _on_failed(self, victim: Victim, message: Message) -> None:
        self.lanes[message["lane"]].refused(message["number"], message["told"])
        self.counts["refused writes"] += 1

    _on_refused = _on_failed
    _on_fenced = _on_failed

    def _on_unknown(self, victim: Victim, message: Message) -> None:
        self.lanes[message["lane"]].unknown(message["number"])
        self.counts["unknown outcomes"] += 1

    def _on_looking(self, victim: Victim, message: Message) -> None:
        # A writer is caught up with itself; of others it learns at its next commit.
        if victim.life.role != "writer":
            victim.floor = self.newest
        with suppress(BrokenPipeError):
            victim.channel.send(True)

    def _on_seen(self, victim: Victim, message: Message) -> None:
        low, high = message["low"], message["high"]
        role = victim.life.role
        self.counts["checks"] += 1
        if not message.get("past"):
            if low < max(victim.floor, victim.seen):
                self.lost += low < victim.floor
                raise Violation(
                    f"the {role} sees slot {low}, after it saw {victim.seen} and"
                    f" {victim.floor} was acknowledged"
                )
            victim.seen = high
        victim.progress += 1
        rows: dict[str, dict[str, tuple[int, int, int]]] = {name: {} for name in self.lanes}
        for id, (batch, value, origin) in message["rows"].items():
            rows[id.partition("/")[0]][id] = (batch, value, origin)
        for name in [message["lane"]] if message["lane"] else list(self.lanes):
            lane = self.lanes[name]
            if role == "writer":
                lane.fenced_at(low)
            try:
                lane.seen(rows[name], low, high)
            except Violation:
                self.lost += lane.lost(rows[name])
                raise

    def _on_past(self, victim: Victim, message: Message) -> None:
        self.counts["reads past the retention"] += 1
        if message["elapsed"] < self._retained - 0.5:
            raise Violation(
                f"a state was gone {message['elapsed']:.2f} s after it was the newest,"
                f" and is retained for {self._retained} s"
            )

    def _on_trouble(self, victim: Victim, message: Message) -> None:
        self.counts["errors met"] += 1

    def _on_did(self, victim: Victim, message: Message) -> None:
        name = {"fold": "folds", "compact": "compactions", "collect": "objects collected"}
        self.counts[name[message["what"]]] += message["many"]
        victim.progress += 1

    def _on_dying(self, victim: Victim, message: Message) -> None:
        victim.dying = message["point"]

    def _on_founded(self, victim: Victim, message: Message) -> None:
        self.counts["namespaces founded"] += 1

    def _on_ended(self, victim: Victim, message: Message) -> None:
        victim.ended = True

    def _on_broken(self, victim: Victim, message: Message) -> None:
        raise Violation(f"the {victim.life.role} broke: {message['what']}")

    def _on_probed(self, victim: Victim, message: Message) -> None:
        self._probed.add(message["name"])

    def _on_probes(self, victim: Victim, message: Message) -> None:
        missing = self._probed - set(message["names"])
        self.counts["plain objects put beside"] += len(self._probed)
        self.counts["plain objects that the server lost"] += len(missing)

    def _on_which_keys(self, victim: Victim, message: Message) -> None:
        victim.channel.send(
            [
                (known.batch.lane, known.batch.number, known.batch.kind, known.lsn)
                for known in self._keyed
            ]
        )

    def _on_recalled(self, victim: Victim, message: Message) -> None:
        self.counts["checks"] += 1

    def _on_verified(self, victim: Victim, message: Message) -> None:
        self.counts["checks"] += 1

    def _on_inspected(self, victim: Victim, message: Message) -> None:
        self.counts["inspections"] += 1

"""Batches: what a lane writes, as a pure function of its name, and what that does to its state.

A lane is a client that writes one batch after the other under ids of its own. Because a batch
depends on nothing but its lane, its number and its kind, the process that writes it and the witness
that judges what became of it make the same one without exchanging it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

import reef

Row = tuple[int, int, int]
"""The batch that wrote the document last, its value, and the batch that its text is from."""
State = Mapping[str, Row]
"""A lane's documents by id."""
Counts = tuple[int, int, int, int]
"""What a receipt counts: upserted, patched, deleted, missing."""

SCHEMA = {
    "id": "string",
    "lane": "string",
    "batch": "int64",
    "value": "int64",
    "origin": "int64",
    "text": "string",
}
SMALL_KINDS = (
    *("upsert", "upsert", "upsert", "patch", "patch", "delete", "mixed", "sweep"),
    *("create", "update", "swap", "skip"),
)
LARGE, HUGE, LOAD, LARGE_LOAD = "large", "huge", "load", "large load"
BULK_KINDS = (LOAD, LARGE_LOAD)

_SMALL_IDS = 24
_LARGE_IDS = 10
_LARGE_TEXT = 230_000
_HUGE_TEXT = 450_000
_VALUES = 4


@dataclass(frozen=True)
class Batch:
    """Operations on the ids of one lane. Those of different sorts never share an id."""

    lane: str
    number: int
    kind: str
    keyed: bool
    upserts: dict[str, int] = field(default_factory=dict)
    patches: dict[str, int] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    below: int | None = None
    condition: str | int | None = None
    skip: bool = False
    text: int = 0

    @property
    def key(self) -> str | None:
        """Its idempotency key, if it has one."""
        return f"{self.lane}-{self.number}" if self.keyed else None

    @property
    def bulk(self) -> bool:
        """Whether it goes in by a bulk load."""
        return self.kind in BULK_KINDS

    def documents(self) -> list[dict[str, Any]]:
        """The upserts, as `write` and `load` take them."""
        return [
            {
                "id": id,
                "lane": self.lane,
                "batch": self.number,
                "value": value,
                "origin": self.number,
                "text": make_text(self.lane, self.number, id, self.text),
            }
            for id, value in self.upserts.items()
        ]

    def arguments(self) -> dict[str, Any]:
        """What `write` takes."""
        made: dict[str, Any] = {"idempotency_key": self.key}
        if self.upserts:
            made["upserts"] = self.documents()
        if self.patches:
            made["patches"] = [
                {"id": id, "batch": self.number, "value": value}
                for id, value in self.patches.items()
            ]
        if self.deletes:
            made["deletes"] = list(self.deletes)
        if self.below is not None:
            made["delete_where"] = f"lane = '{self.lane}' and value < {self.below}"
        if self.condition == "absent":
            made["condition"] = reef.if_absent()
        elif self.condition == "exists":
            made["condition"] = reef.if_exists()
        elif self.condition is not None:
            made["condition"] = reef.if_equal(value=self.condition)
        if self.skip:
            made["on_conflict"] = "skip"
        return made

    def effect(self, state: State) -> tuple[State, Counts] | None:
        """The state after it and what its receipt counts; None if its condition fails."""
        touched = (*self.upserts, *self.patches, *self.deletes)
        refused = {id for id in touched if not self._holds(state.get(id))}
        if refused and not self.skip:
            return None
        after = dict(state)
        upserts = {id: value for id, value in self.upserts.items() if id not in refused}
        patches = {id: value for id, value in self.patches.items() if id not in refused}
        deletes = {id for id in self.deletes if id not in refused}
        for id, value in upserts.items():
            after[id] = (self.number, value, self.number)
        patched = 0
        for id, value in patches.items():
            if id in after:
                after[id] = (self.number, value, after[id][2])
                patched += 1
        if self.below is not None:
            # The filter, like a condition, is decided on the state before the batch.
            deletes |= {id for id, row in state.items() if row[1] < self.below}
        for id in deletes:
            after.pop(id, None)
        return after, (len(upserts), patched, len(deletes), len(patches) - patched)

    def _holds(self, row: Row | None) -> bool:
        if self.condition is None:
            return True
        if self.condition == "absent":
            return row is None
        if self.condition == "exists":
            return row is not None
        return row is not None and row[1] == self.condition


def make_batch(lane: str, number: int, kind: str, keyed: bool) -> Batch:
    """The batch of that name: the same one for whoever asks."""
    random = Random(f"{lane}/{number}/{kind}")
    few = [
        f"{lane}/{place:02}"
        for place in random.sample(range(_SMALL_IDS), random.choice((1, 2, 3, 8)))
    ]
    half = (len(few) + 1) // 2

    def valued(ids: list[str]) -> dict[str, int]:
        return {id: random.randrange(_VALUES) for id in ids}

    def made(**operations: Any) -> Batch:
        return Batch(lane, number, kind, keyed, **{"text": 40, **operations})

    match kind:
        case "patch":
            return made(patches=valued(few))
        case "delete":
            return made(deletes=tuple(few))
        case "mixed":
            deletes = tuple(few[half:][1:])
            return made(upserts=valued(few[:half]), patches=valued(few[half:][:1]), deletes=deletes)
        case "sweep":
            return made(upserts=valued(few[:half]), below=random.randrange(1, 3))
        case "create":
            return made(upserts=valued(few[:2]), condition="absent")
        case "update":
            return made(upserts=valued(few[:half]), patches=valued(few[half:]), condition="exists")
        case "swap":
            return made(upserts=valued(few[:1]), condition=random.randrange(_VALUES))
        case "skip":
            condition = random.choice(("absent", "exists", 1))
            return made(
                upserts=valued(few[:half]),
                patches=valued(few[half:]),
                condition=condition,
                skip=True,
            )
        case "large" | "huge" | "large load":
            ids = [f"{lane}/large-{place}" for place in range(_LARGE_IDS)]
            text = _HUGE_TEXT if kind == HUGE else _LARGE_TEXT
            return made(upserts=valued(ids), text=text)
    return made(upserts=valued(few), text=random.choice((0, 40, 400, 4_000)))


def make_text(lane: str, number: int, id: str, size: int) -> str:
    """A text that says whose it is, and ends in a checksum of itself."""
    body = f"{lane}|{number}|{id}|{size}|"
    body += Random(body).randbytes(size // 2).hex()
    return f"{body}{crc32(body.encode()):08x}"


def check_text(text: str, lane: str, origin: int, id: str) -> str | None:
    """What is wrong with a text that was read; None if it is what that batch wrote."""
    whose = f"{lane}|{origin}|{id}|"
    if not text.startswith(whose):
        return f"the text of {id} is {text[:60]!r}…, and its batch is {origin}"
    size, mark, _ = text[len(whose) :].partition("|")
    length = len(whose) + len(size) + len(mark) + 2 * (int(size) // 2) + 8
    if len(text) != length or f"{crc32(text[:-8].encode()):08x}" != text[-8:]:
        return f"the text of {id} is damaged: {text[:60]!r}…{text[-20:]!r}"
    return None

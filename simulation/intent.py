"""What a program means to write, and what that must come to on a given state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import reef
from simulation.schema import Types, kinds_of

Document = dict[str, Any]
State = dict[str, Document]


class Effect(NamedTuple):
    """A state after a batch, and what the receipt must say."""

    state: State
    upserted: int = 0
    patched: int = 0
    deleted: int = 0
    missing: int = 0
    rejected: frozenset[str] = frozenset()

    @property
    def counts(self) -> tuple[int, int, int, int, frozenset[str]]:
        """The part that a receipt tells."""
        return self.upserted, self.patched, self.deleted, self.missing, self.rejected


@dataclass(eq=False)
class Intent:
    """One batch, bulk load or declaration that a program wants written once. Ids are distinct in
    each part.

    `below` deletes what has a version under it; `condition` is "absent", "exists" or a version;
    `declares` are types of attributes, and then there is nothing else.
    """

    token: str
    upserts: list[Document] = field(default_factory=list)
    patches: list[Document] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    below: int | None = None
    condition: str | int | None = None
    skip: bool = False
    key: str | None = None
    load: bool = False
    truncate: bool = False
    declares: Types = field(default_factory=dict)
    life: int = 0
    slot: int | None = None
    settled: bool = False

    def describe(self) -> str:
        """For people."""
        parts = [self.token]
        for name, rows in (("upsert", self.upserts), ("patch", self.patches)):
            if rows:
                parts.append(name + " " + ",".join(row["id"] for row in rows))
        if self.deletes:
            parts.append("delete " + ",".join(self.deletes))
        if self.below is not None:
            parts.append(f"delete where v < {self.below}")
        if self.condition is not None:
            parts.append(f"if {self.condition}" + (" or skip" if self.skip else ""))
        if self.load:
            parts.append("as a load" + (" that truncates" if self.truncate else ""))
        if self.declares:
            parts.append("declare " + ", ".join(map(" ".join, self.declares.items())))
        if self.key:
            parts.append("key " + self.key)
        return "; ".join(parts)

    def on(self, state: State) -> Effect | None:
        """What it comes to on that state; None if it must be refused."""
        if self.truncate:
            state = {}
        named = [row["id"] for row in (*self.upserts, *self.patches)] + self.deletes
        rejected = frozenset(id for id in named if not self._holds(state.get(id)))
        if rejected and not self.skip:
            return None
        deletes = {id for id in self.deletes if id not in rejected}
        if self.below is not None:
            deletes |= {id for id, row in state.items() if row["v"] < self.below}
        result = dict(state)
        upserted = patched = missing = 0
        for row in self.upserts:
            if row["id"] not in rejected:
                result[row["id"]] = row
                upserted += 1
        for row in self.patches:
            if row["id"] in rejected:
                continue
            if row["id"] in result:
                result[row["id"]] = {**result[row["id"]], **row}
                patched += 1
            else:
                missing += 1
        for id in deletes:
            result.pop(id, None)
        return Effect(result, upserted, patched, len(deletes), missing, rejected)

    def kinds(self) -> Types:
        """The types that it brings."""
        return self.declares or kinds_of((*self.upserts, *self.patches))

    def written_kinds(self, before: State, effect: Effect) -> Types:
        """The types of the rows that have an effect on that state."""
        upserted = [row for row in self.upserts if row["id"] not in effect.rejected]
        there = {} if self.truncate else before
        there = {**there, **{row["id"]: row for row in upserted}}
        patched = [
            row for row in self.patches if row["id"] not in effect.rejected and row["id"] in there
        ]
        return self.declares or kinds_of((*upserted, *patched))

    def _holds(self, document: Document | None) -> bool:
        if self.condition is None:
            return True
        if self.condition == "absent":
            return document is None
        if document is None:
            return False
        return self.condition == "exists" or document["v"] == self.condition

    def arguments(self) -> dict[str, Any]:
        """What `Namespace.write` takes."""
        given: dict[str, Any] = {}
        for name, part in (
            ("upserts", self.upserts),
            ("patches", self.patches),
            ("deletes", self.deletes),
        ):
            if part:
                given[name] = part
        if self.below is not None:
            given["delete_where"] = f"v < {self.below}"
        if self.condition == "absent":
            given["condition"] = reef.if_absent()
        elif self.condition == "exists":
            given["condition"] = reef.if_exists()
        elif self.condition is not None:
            given["condition"] = reef.if_equal(v=self.condition)
        if self.skip:
            given["on_conflict"] = "skip"
        if self.key is not None:
            given["idempotency_key"] = self.key
        return given


@dataclass(eq=False)
class Attempt:
    """One call that tries to write an intent, through a handle on one of the lives of the name.
    `slot` is where it got, by the observer's word."""

    intent: Intent
    process: str
    life: int = 0
    slot: int | None = None
    refused: str = ""

"""The model of documents: what must be readable after each slot, and what programs may be told."""

from __future__ import annotations

from collections.abc import Mapping

import reef
from simulation.intent import Attempt, Document, Effect, State
from simulation.schema import SchemaModel, Types, fit
from simulation.world import Violation


class DocumentModel:
    """`states[n]` is what must be readable after slot n, `effects[n - 1]` what slot n did."""

    def __init__(self, declared: Types) -> None:
        self.states: list[State] = [{}]
        self.effects: list[Effect | None] = []
        self.schema = SchemaModel(declared)
        self._declared = declared
        self._fates: dict[str, str] = {}

    def copy(self) -> DocumentModel:
        """The same, to go another way."""
        other = DocumentModel(self._declared)
        other.states, other.effects = list(self.states), list(self.effects)
        other.schema = self.schema.copy()
        other._fates = dict(self._fates)
        return other

    @property
    def newest(self) -> int:
        """The newest slot."""
        return len(self.effects)

    @property
    def fingerprint(self) -> int:
        """A hash of what programs were told; the log's ledger knows the rest."""
        return hash(tuple(sorted(self._fates.items())))

    # What happens to the log

    def passed(self) -> None:
        """A slot brought no documents."""
        self.effects.append(None)
        self.states.append(self.states[-1])

    def began_anew(self) -> None:
        """A slot ended the namespace: whatever is written next is written into nothing."""
        self.effects.append(None)
        self.states.append({})
        self.schema = self.schema.anew(self._declared)

    def written(self, lsn: int, attempt: Attempt) -> None:
        """A slot brought what a program meant to write: might it?"""
        effect = self._admitted(lsn, attempt)
        self.effects.append(effect)
        self.states.append(effect.state)

    def _admitted(self, lsn: int, attempt: Attempt) -> Effect:
        intent = attempt.intent
        state = self.states[-1]
        if attempt.refused:
            raise Violation(f"{intent.token} was refused ({attempt.refused}) and is in slot {lsn}")
        if attempt.slot is not None:
            raise Violation(f"one attempt at {intent.token} took slots {attempt.slot} and {lsn}")
        if intent.slot is not None:
            raise Violation(
                f"{intent.token} with key {intent.key} is in slots {intent.slot} and {lsn}"
            )
        effect = intent.on(state)
        if effect is None:
            raise Violation(f"the condition of {intent.token} does not hold before slot {lsn}")
        written = intent.written_kinds(state, effect)
        if not fit(self.schema.known, written):
            raise Violation(
                f"{intent.token} brings {written} into slot {lsn} against {self.schema.known}"
            )
        self.schema.add(written, intent.kinds())
        attempt.slot = intent.slot = lsn
        return effect

    # What programs are told

    def acknowledged(self, attempt: Attempt, receipt: reef.Receipt) -> None:
        """A write returned."""
        intent = attempt.intent
        intent.settled = True
        self._fates[intent.token] = "acknowledged"
        told = (
            receipt.upserted,
            receipt.patched,
            receipt.deleted,
            receipt.missing,
            frozenset(map(str, receipt.rejected)),
        )
        if receipt.lsn > self.newest:
            raise Violation(f"{intent.token} was acknowledged in slot {receipt.lsn}, still free")
        if any(told[:3]) or intent.key is not None or intent.truncate:
            if intent.slot != receipt.lsn:
                raise Violation(
                    f"{intent.token} was acknowledged in slot {receipt.lsn},"
                    f" and is in slot {intent.slot}"
                )
            effect = self.effects[receipt.lsn - 1]
        else:
            effect = intent.on(self.states[receipt.lsn])
        if effect is None or effect.counts != told:
            raise Violation(f"{intent.token} was told {told}, and it came to {effect}")

    def declared(self, attempt: Attempt) -> None:
        """A declaration returned: the types are in the log, by this or by another slot."""
        attempt.intent.settled = True
        for name, kind in attempt.intent.declares.items():
            if self.schema.known.get(name) != kind:
                raise Violation(f"{name} was declared {kind}, and is {self.schema.known.get(name)}")

    def refused(self, attempt: Attempt, error: reef.ReefError, low: int) -> None:
        """A write was refused for good."""
        intent = attempt.intent
        attempt.refused = type(error).__name__
        self._fates[intent.token] = attempt.refused
        if attempt.slot is not None:
            raise Violation(f"{intent.token} was refused ({error}) and is in slot {attempt.slot}")
        if isinstance(error, reef.SchemaConflict):
            intent.settled = True
            if not self.schema.may_refuse(intent.kinds()):
                raise Violation(f"{intent.token} was refused, and its types fit: {error}")
        if isinstance(error, reef.ConditionFailed):
            intent.settled = True
            if all(intent.on(state) is not None for state in self.states[low:]):
                raise Violation(f"{intent.token} was refused, and its condition held: {error}")

    def read_document(self, id: str, found: Document | None, low: int, high: int) -> None:
        """A point read returned."""
        if all(state.get(id) != found for state in self.states[low : high + 1]):
            raise Violation(f"{id} was read as {found} between slots {low} and {high}")

    def read_all(self, found: State, low: int, high: int) -> None:
        """A scan returned."""
        if all(state != found for state in self.states[low : high + 1]):
            raise Violation(
                f"a scan between slots {low} and {high} differs from each state: "
                + difference(found, self.states[min(high, self.newest)])
            )

    def read_changes(self, after: int, feed: list[reef.Change], low: int) -> None:
        """A feed of changes ended: applied to the state before, it gives each state after."""
        state = dict(self.states[after])
        last = after
        for change in feed:
            if change.lsn < last:
                raise Violation(f"the feed goes back from slot {last} to {change.lsn}")
            if change.lsn != last:
                self._same_after(state, last, change.lsn - 1)
                last = change.lsn
            id = str(change.id)
            if change.kind == "truncate":
                state = {}
            elif change.kind == "delete":
                state.pop(id, None)
            elif change.kind == "patch":
                state[id] = {**state.get(id, {}), **(change.document or {})}
            else:
                state[id] = change.document or {}
        self._same_after(state, last, max(last, low))

    def _same_after(self, state: State, first: int, last: int) -> None:
        for lsn in (first, last):
            if state != self.states[lsn]:
                raise Violation(
                    f"the feed of changes differs after slot {lsn}: "
                    + difference(state, self.states[lsn])
                )


def difference(
    found: Mapping[str, Document | None], expected: Mapping[str, Document | None]
) -> str:
    """The ids where two states differ."""
    ids = sorted({*found, *expected})
    lines = [
        f"{id}: found {found.get(id)}, expected {expected.get(id)}"
        for id in ids
        if found.get(id) != expected.get(id)
    ]
    return "; ".join(lines) or "nothing"

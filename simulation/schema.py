"""The schema as the model has it: the type of each attribute, and what may go with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Types = dict[str, str]

_KINDS: dict[type, str] = {int: "int64", float: "float64", str: "string"}


def kinds_of(rows: Iterable[Mapping[str, Any]]) -> Types:
    """The types that rows would give to attributes that have none yet."""
    return {
        name: _KINDS[type(value)] for row in rows for name, value in row.items() if name != "id"
    }


def fit(known: Types, kinds: Types) -> bool:
    """Whether values of these kinds may be written where those types are known."""
    return all(
        known.get(name, kind) == kind or (kind, known[name]) == ("int64", "float64")
        for name, kind in kinds.items()
    )


class SchemaModel:
    """What the log says of types: `known` for certain, and `possible` by what was rejected of
    batches that are in it. Types are never taken back."""

    def __init__(self, declared: Types) -> None:
        self.known: Types = dict(declared)
        self.possible: dict[str, set[str]] = {name: {kind} for name, kind in declared.items()}

    def copy(self) -> SchemaModel:
        """The same, to go another way."""
        other = SchemaModel({})
        other.known = self.known
        other.possible = {name: set(kinds) for name, kinds in self.possible.items()}
        return other

    def anew(self, declared: Types) -> SchemaModel:
        """That of a new life of the name. Somebody may still be told of the types of the old."""
        other = self.copy()
        other.known = dict(declared)
        return other

    def add(self, kinds: Types, rejected: Types) -> None:
        """A slot was written."""
        self.known = {**kinds, **self.known}
        for added in (self.known, rejected):
            for name, kind in added.items():
                self.possible.setdefault(name, set()).add(kind)

    def may_refuse(self, kinds: Types) -> bool:
        """Whether some type may be in the way of these."""
        return any(self.possible.get(name, {kind}) != {kind} for name, kind in kinds.items())

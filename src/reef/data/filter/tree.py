"""Filters: what a row must satisfy to be kept.

Logic has three values. A comparison, `is_in`, `starts_with` or `contains` on an attribute that
is null or absent is unknown; `not` unknown is unknown, `and` and `or` follow Kleene; a row is
kept only when the whole is true. `is_null` is true for an explicit null and for an absent
attribute, `exists` is false only for an absent one; neither is ever unknown. NaN equals nothing,
itself included, and is neither less nor greater than anything. Numbers compare by their exact
value, whichever of int64, uint64 and float64 holds them; strings compare by code point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from reef.data.place import shown
from reef.data.rows import ID
from reef.data.schema import Schema, check_attribute_name
from reef.data.types import AttributeType
from reef.errors import InvalidFilter, InvalidName

Literal = bool | int | float | str | bytes | datetime
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
DEEPEST = 100
"""How deep operators may nest: enough for people, and no stack overflows in any walk."""

_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "number"),
    (float, "number"),
    (str, "string"),
    (bytes, "bytes"),
    (datetime, "timestamp"),
)
COMPARED_AS = {
    "bool": "bool",
    "int64": "number",
    "uint64": "number",
    "float64": "number",
    "string": "string",
    "bytes": "bytes",
    "timestamp": "timestamp",
}


class Expression:
    """A filter. Combine with `&`, `|` and `~`."""

    __slots__ = ()
    depth: int

    def __and__(self, other: object) -> And:
        return And((*_operands(And, self), *_operands(And, other)))

    def __or__(self, other: object) -> Or:
        return Or((*_operands(Or, self), *_operands(Or, other)))

    def __invert__(self) -> Not:
        return Not(self)

    def __bool__(self) -> bool:
        raise InvalidFilter("a filter has no truth of its own: combine filters with &, | and ~")


@dataclass(frozen=True, slots=True)
class Leaf(Expression):
    """A test of one column."""

    name: str
    depth: int = field(default=1, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Compare(Leaf):
    """`op` is one of `OPERATORS`."""

    op: str
    value: Literal

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise InvalidFilter(f"{self.op!r} is not one of {', '.join(OPERATORS)}")
        object.__setattr__(self, "value", literal(self.value))


@dataclass(frozen=True, slots=True)
class In(Leaf):
    """Equal to one of the values."""

    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(literal, self.values)))


@dataclass(frozen=True, slots=True)
class IsNull(Leaf):
    """Explicitly null, or absent."""


@dataclass(frozen=True, slots=True)
class Exists(Leaf):
    """Set, to a value or to null."""


@dataclass(frozen=True, slots=True)
class StartsWith(Leaf):
    """A string (or bytes) attribute that begins with the prefix."""

    prefix: str | bytes

    def __post_init__(self) -> None:
        prefix = literal(self.prefix)
        if not isinstance(prefix, str | bytes):
            raise InvalidFilter(f"a prefix must be a string or bytes, not {shown(prefix)}")
        object.__setattr__(self, "prefix", prefix)


@dataclass(frozen=True, slots=True)
class Contains(Leaf):
    """A substring of a string (or bytes) attribute, or an element of a list attribute."""

    value: Literal

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", literal(self.value))


@dataclass(frozen=True, slots=True)
class And(Expression):
    """All of them. True if there are none."""

    operands: tuple[Expression, ...]
    depth: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth(self.operands))


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """Any of them. False if there are none."""

    operands: tuple[Expression, ...]
    depth: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth(self.operands))


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """The opposite; unknown stays unknown."""

    operand: Expression
    depth: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth((self.operand,)))


def _operands(kind: type[And] | type[Or], value: object) -> tuple[Expression, ...]:
    if isinstance(value, kind):
        return value.operands
    if isinstance(value, Expression):
        return (value,)
    raise InvalidFilter(f"{shown(value)} is not a filter; put parentheses around comparisons")


def _depth(operands: tuple[Expression, ...]) -> int:
    for operand in operands:
        if not isinstance(operand, Expression):
            raise InvalidFilter(f"{shown(operand)} is not a filter")
    depth = 1 + max((operand.depth for operand in operands), default=0)
    if depth > DEEPEST:
        raise InvalidFilter(f"the filter nests deeper than {DEEPEST} levels")
    return depth


def literal(value: object) -> Literal:
    """The value as a plain Python literal, or `InvalidFilter`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        raise InvalidFilter("nothing compares with null: use is_null()")
    # Of their own class, whatever a subclass adds: they are compared, and written down.
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidFilter(f"{value!r} is not valid Unicode") from None
        return str.__str__(value)
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise InvalidFilter(f"the timestamp {value!r} needs a time zone")
        return value
    raise InvalidFilter(f"a {type(value).__name__} cannot be compared with an attribute")


class Attribute:
    """An attribute (or the id) as the left side of a comparison."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        try:
            self.name = name if name == ID else check_attribute_name(name)
        except InvalidName as error:
            raise InvalidFilter(str(error)) from None

    def __repr__(self) -> str:
        return f"attribute({self.name!r})"

    def __eq__(self, value: object) -> Compare:  # type: ignore[override]
        return Compare(self.name, "=", value)  # type: ignore[arg-type]

    def __ne__(self, value: object) -> Compare:  # type: ignore[override]
        return Compare(self.name, "!=", value)  # type: ignore[arg-type]

    def __lt__(self, value: Literal) -> Compare:
        return Compare(self.name, "<", value)

    def __le__(self, value: Literal) -> Compare:
        return Compare(self.name, "<=", value)

    def __gt__(self, value: Literal) -> Compare:
        return Compare(self.name, ">", value)

    def __ge__(self, value: Literal) -> Compare:
        return Compare(self.name, ">=", value)

    def is_in(self, values: Iterable[Literal]) -> In:
        """Equal to one of the values."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InvalidFilter(f"is_in takes a list of values, not {shown(values)}")
        return In(self.name, tuple(values))

    def is_null(self) -> IsNull:
        """Explicitly null, or absent."""
        return IsNull(self.name)

    def exists(self) -> Exists:
        """Set, to a value or to null: not absent."""
        return Exists(self.name)

    def starts_with(self, prefix: str | bytes) -> StartsWith:
        """A string or bytes attribute that begins so."""
        return StartsWith(self.name, prefix)

    def contains(self, value: Literal) -> Contains:
        """Has this substring, or for a list attribute this element."""
        return Contains(self.name, value)


def attribute(name: str) -> Attribute:
    """The attribute of that name, or the document id for "id", to build filters from."""
    return Attribute(name)


def _leaves(expression: Expression) -> Iterator[Leaf]:
    if isinstance(expression, Leaf):
        yield expression
    elif isinstance(expression, Not):
        yield from _leaves(expression.operand)
    elif isinstance(expression, And | Or):
        for operand in expression.operands:
            yield from _leaves(operand)
    else:
        raise InvalidFilter(f"{expression!r} is not a filter")


def columns(expression: Expression) -> set[str]:
    """The attributes that the filter looks at, and "id" if it does."""
    return {leaf.name for leaf in _leaves(expression)}


def check(expression: Expression, schema: Schema) -> None:
    """`InvalidFilter` if it names an unknown column or compares what cannot be compared."""
    for leaf in _leaves(expression):
        if leaf.name == ID:
            kind = None if schema.id_kind is None else AttributeType("scalar", schema.id_kind)
        else:
            kind = schema.attributes.get(leaf.name)
            if kind is None:
                raise InvalidFilter(f"there is no attribute {leaf.name!r}")
        if kind is not None:
            check_leaf(leaf, kind)


def check_leaf(leaf: Leaf, kind: AttributeType) -> None:
    """`InvalidFilter` if this test makes no sense for a column of that type."""
    if isinstance(leaf, IsNull | Exists) or kind.family == "null":
        return
    name = repr(leaf.name)
    if isinstance(leaf, StartsWith):
        if kind.family != "scalar" or kind.element not in ("string", "bytes"):
            raise InvalidFilter(f"attribute {name} is {kind}, which has no prefixes")
        _check_literal(name, kind.element, leaf.prefix)
    elif isinstance(leaf, Contains):
        if kind.family != "list" and str(kind) not in ("string", "bytes"):
            raise InvalidFilter(f"attribute {name} is {kind}, which contains nothing")
        _check_literal(name, kind.element, leaf.value)
    else:
        if kind.family != "scalar":
            raise InvalidFilter(f"attribute {name} is {kind}, which cannot be compared")
        assert isinstance(leaf, Compare | In)
        for value in leaf.values if isinstance(leaf, In) else (leaf.value,):
            _check_literal(name, kind.element, value)


def _check_literal(name: str, element: str, value: Literal) -> None:
    if element == "null":
        return
    given = next(kind for known, kind in _KINDS if isinstance(value, known))
    if given != COMPARED_AS[element]:
        raise InvalidFilter(
            f"attribute {name} holds {element}, which cannot be compared with {shown(value)}"
        )

"""Conditions of a write: what must hold for the document of each of its operations."""

from __future__ import annotations

from datetime import UTC, datetime

from reef.data.filter.tree import Literal, literal
from reef.data.place import shown
from reef.data.schema import Schema
from reef.errors import InvalidFilter, InvalidInput
from reef.lsm.write.batch import ABSENT, EQUAL, EXISTS, Condition

_MOST_BITS = 1024
"""A larger number is in no attribute: a float64 cannot hold it."""


def if_absent() -> Condition:
    """Only where there is no document of that id yet."""
    return Condition(ABSENT, {})


def if_exists() -> Condition:
    """Only where there is a document of that id."""
    return Condition(EXISTS, {})


def if_equal(**values: object) -> Condition:
    """Only where the document has exactly these attribute values, as in `if_equal(version=3)`."""
    if not values:
        raise InvalidInput("if_equal needs at least one attribute to compare")
    return Condition(EQUAL, {name: _plain(name, value) for name, value in values.items()})


def check_condition(condition: object, schema: Schema) -> Condition:
    """The condition with plain values, which the log can hold, or `InvalidInput` unless it is one
    over attributes that the schema has."""
    if not isinstance(condition, Condition):
        raise InvalidInput(
            "a condition is made by reef.if_absent(), reef.if_exists() or reef.if_equal(…)"
        )
    for name in condition.columns:
        if name not in schema.attributes:
            raise InvalidInput(f"the condition names attribute {name!r}, which the schema lacks")
    values = {str.__str__(name): _plain(name, value) for name, value in condition.values.items()}
    return Condition(condition.kind, values)


def _plain(name: str, value: object) -> Literal | None:
    """A value as the log can hold it, or `InvalidInput`."""
    if value is None:
        return None
    try:
        plain = literal(value)
        if isinstance(plain, datetime):
            if getattr(plain, "nanosecond", 0):
                raise InvalidFilter("a timestamp has whole microseconds")
            # Other libraries' datetimes are more than datetimes.
            return datetime.combine(plain.date(), plain.time(), plain.tzinfo).astimezone(UTC)
    except (InvalidFilter, OverflowError) as error:
        raise InvalidInput(f"if_equal cannot compare {name!r} with that: {error}") from None
    if type(plain) is int and plain.bit_length() > _MOST_BITS:
        raise InvalidInput(f"if_equal cannot compare {name!r} with {shown(plain)}")
    return plain

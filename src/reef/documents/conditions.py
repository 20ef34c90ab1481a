"""Conditions of a write: what must hold for the document of each of its operations."""

from __future__ import annotations

from datetime import datetime

from reef.data.schema import Schema
from reef.errors import InvalidInput
from reef.lsm.write.batch import ABSENT, EQUAL, EXISTS, Condition


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
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str | bytes | datetime | None):
            raise InvalidInput(f"if_equal cannot compare {name!r} with a {type(value).__name__}")
    return Condition(EQUAL, values)


def check_condition(condition: object, schema: Schema) -> None:
    """`InvalidInput` unless it is a condition over attributes that the schema has."""
    if not isinstance(condition, Condition):
        raise InvalidInput(
            "a condition is made by reef.if_absent(), reef.if_exists() or reef.if_equal(…)"
        )
    for name in condition.columns:
        if name not in schema.attributes:
            raise InvalidInput(f"the condition names attribute {name!r}, which the schema lacks")

"""Attribute types: what a document's attribute may hold, and how Arrow holds it.

bool  int64  float64  string  bytes  timestamp      scalars; timestamps are UTC, microseconds
list<T>                                             of one of the scalars
json                                                any nested value, kept as JSON text
vector<float32, N>  vector<float16, N>              N finite numbers
null  list<null>                                    not known yet: only nulls, only lists that are
                                                    empty or hold nulls, were seen so far

The first value that says more settles a type that is not known yet. What was written before stays
as it is in its object, and is read as the type that the attribute has now: `reef.data.settling`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa

from reef.errors import InvalidInput

SCALARS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
VECTOR_ELEMENTS: dict[str, pa.DataType] = {"float32": pa.float32(), "float16": pa.float16()}
LARGEST_DIMENSION = 65_536
_UNKNOWN = "null"
_ELEMENTS: dict[str, pa.DataType] = {**SCALARS, _UNKNOWN: pa.null()}

_LIST = re.compile(r"list<\s*(\w+)\s*>")
_VECTOR = re.compile(r"vector<\s*(\w+)\s*,\s*(\d{1,9})\s*>")


@dataclass(frozen=True)
class AttributeType:
    """One attribute type. `family` is scalar, list, json, vector or null; `element` what it
    holds."""

    family: str
    element: str
    dimension: int = 0

    def __str__(self) -> str:
        if self.family == "list":
            return f"list<{self.element}>"
        if self.family == "vector":
            return f"vector<{self.element}, {self.dimension}>"
        return self.element

    @property
    def is_open(self) -> bool:
        """Whether it is not known yet, or what its lists hold is not."""
        return self.element == _UNKNOWN

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type that columns of this attribute have, everywhere in Reef."""
        if self.family == "list":
            return pa.list_(_ELEMENTS[self.element])
        if self.family == "vector":
            return pa.list_(VECTOR_ELEMENTS[self.element], self.dimension)
        if self.family == "json":
            return pa.string()
        return _ELEMENTS[self.element]


NULL = AttributeType("null", _UNKNOWN)
EMPTY_LIST = AttributeType("list", _UNKNOWN)


@lru_cache(maxsize=1024)
def parse_type(text: str) -> AttributeType:
    """The type that `str()` of it would print, or `InvalidInput`."""
    text = text.strip()
    if text in SCALARS:
        return AttributeType("scalar", text)
    if text == "json":
        return AttributeType("json", "json")
    if text == _UNKNOWN:
        return NULL
    if (match := _LIST.fullmatch(text)) and match[1] in _ELEMENTS:
        return AttributeType("list", match[1])
    if (match := _VECTOR.fullmatch(text)) and match[1] in VECTOR_ELEMENTS:
        dimension = int(match[2])
        if 0 < dimension <= LARGEST_DIMENSION:
            return AttributeType("vector", match[1], dimension)
        raise InvalidInput(f"a vector has 1 to {LARGEST_DIMENSION} dimensions, not {dimension}")
    raise InvalidInput(f"{text!r} is not an attribute type")


def vector(dimension: int, element: str = "float32") -> AttributeType:
    """A vector of that many float32 (or float16) numbers."""
    return parse_type(f"vector<{element}, {dimension}>")


def type_of_arrow(arrow: pa.DataType, *, json: bool = False) -> AttributeType | None:
    """The attribute type that is stored as exactly this Arrow type, if there is one."""
    if json:
        return AttributeType("json", "json") if arrow.equals(pa.string()) else None
    if pa.types.is_null(arrow):
        return NULL
    for name, scalar in SCALARS.items():
        if arrow.equals(scalar):
            return AttributeType("scalar", name)
    if pa.types.is_fixed_size_list(arrow) and 0 < arrow.list_size <= LARGEST_DIMENSION:
        for name, element in VECTOR_ELEMENTS.items():
            if arrow.value_type.equals(element):
                return AttributeType("vector", name, arrow.list_size)
    if pa.types.is_list(arrow):
        for name, scalar in _ELEMENTS.items():
            if arrow.value_type.equals(scalar):
                return AttributeType("list", name)
    return None

"""The attribute type that Python values ask for.

bool                        bool            list, tuple, 1-D array of those   list<T>
int                         int64           1-D array of float32 or float16   vector
float, or int and float     float64         dict, nested or mixed lists       json
str                         string          nothing but None, or empty lists  null, list<null>
bytes                       bytes           anything else                     a conflict
aware datetime, date        timestamp
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from itertools import chain
from typing import Any

import numpy as np

from reef.data.place import Place, shown
from reef.data.types import (
    EMPTY_LIST,
    LARGEST_DIMENSION,
    NULL,
    AttributeType,
    parse_type,
    vector,
)

JSON = parse_type("json")
_EXACT = {bool: "bool", int: "int64", float: "float64", str: "string", bytes: "bytes"}
# In this order: a bool is an int.
_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    ((bool, np.bool_), "bool"),
    ((int, np.integer), "int64"),
    ((float, np.floating), "float64"),
    (str, "string"),
    ((bytes, bytearray, memoryview), "bytes"),
    (date, "timestamp"),
    ((list, tuple), "list"),
    (np.ndarray, "array"),
    (dict, "json"),
)
_DTYPES = {"b": "bool", "i": "int64", "u": "int64", "f": "float64", "U": "string", "S": "bytes"}


def infer_type(place: Place, values: Iterable[Any]) -> AttributeType:
    """The type of a column, one that is not known yet if its values leave it open, or
    `SchemaConflict`."""
    values = list(values)
    types = set(map(type, values)) - {type(None)}
    kinds = {_kind(kind) for kind in types}
    if not kinds:
        return NULL
    if None in kinds:
        row = next(r for r, v in enumerate(values) if v is not None and _kind(type(v)) is None)
        raise place.conflict(row, "of a type that an attribute can have", shown(values[row]))
    if "json" in kinds:
        return JSON
    if kinds <= {"list", "array"}:
        return _infer_list(place, values)
    if kinds == {"int64", "float64"}:
        return parse_type("float64")
    if len(kinds) == 1:
        return parse_type(str(kinds.pop()))
    first = next(_kind(type(v)) for v in values if v is not None)
    row = next(r for r, v in enumerate(values) if v is not None and _kind(type(v)) != first)
    raise place.conflict(row, f"{first} as in the rows before", shown(values[row]))


def _kind(value_type: type) -> str | None:
    exact = _EXACT.get(value_type)
    if exact is not None:
        return exact
    return next((kind for known, kind in _KINDS if issubclass(value_type, known)), None)


def _infer_list(place: Place, values: list[Any]) -> AttributeType:
    arrays = [(row, v) for row, v in enumerate(values) if isinstance(v, np.ndarray)]
    if any(array.ndim != 1 for _, array in arrays):
        return JSON
    small = [(row, a) for row, a in arrays if a.size and a.dtype in (np.float32, np.float16)]
    if small:
        row, first = small[0]
        if first.size > LARGEST_DIMENSION:
            raise place.conflict(
                row, f"a vector of at most {LARGEST_DIMENSION} dimensions", f"of {first.size}"
            )
        half = all(array.dtype == np.float16 for _, array in small)
        return vector(first.size, "float16" if half else "float32")
    kinds: set[str | None] = set()
    for row, array in arrays:
        if array.dtype.kind == "O":
            kinds |= {_kind(kind) for kind in set(map(type, array.tolist())) - {type(None)}}
        elif array.dtype.kind in _DTYPES:
            kinds |= {_DTYPES[array.dtype.kind]} if array.size else set()
        else:
            raise place.conflict(row, "a list of values", f"an array of {array.dtype}")
    lists = [v for v in values if v is not None and not isinstance(v, np.ndarray)]
    kinds |= {_kind(k) for k in set(map(type, chain.from_iterable(lists))) - {type(None)}}
    if not kinds:
        return EMPTY_LIST
    if kinds == {"int64", "float64"}:
        exact = all(_exact(number) for v in values if v is not None for number in v)
        return parse_type("list<float64>") if exact else JSON
    if len(kinds) == 1 and not kinds & {"list", "array", "json", None}:
        return parse_type(f"list<{kinds.pop()}>")
    return JSON


def _exact(number: Any) -> bool:
    if not isinstance(number, int | np.integer):
        return True
    try:
        return float(number) == int(number)
    except OverflowError:
        return False

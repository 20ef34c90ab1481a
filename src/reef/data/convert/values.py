"""Columns of Python values as Arrow arrays of a known attribute type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.convert.slices import offsets_of, whole
from reef.data.json_text import NotJson, encode_json
from reef.data.place import Place, check_sizes, shown
from reef.data.types import SCALARS, AttributeType
from reef.data.vectors import vectors_of_values

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)

_PYTHON: dict[str, type] = {
    "bool": bool,
    "int64": int,
    "float64": float,
    "string": str,
    "bytes": bytes,
    "timestamp": datetime,
}


@cache
def _range() -> tuple[pa.Scalar, pa.Scalar]:
    """The first and the last moment that Python can name. Made when first needed: to make a
    scalar Arrow imports pandas, where it is installed."""
    kind = SCALARS["timestamp"]
    return pa.scalar(EARLIEST, kind), pa.scalar(LATEST, kind)


def column_of_values(place: Place, values: list[Any], kind: AttributeType) -> pa.Array:
    """The values (None for none) in the type's Arrow form, or an error that names the row.

    An int64 takes no float; a float64 takes an integer that it holds exactly.
    """
    if kind.family == "null":
        return pa.nulls(len(values))
    if kind.family == "vector":
        return vectors_of_values(place, values, kind)
    if kind.family == "list":
        return _lists(place, values, kind)
    if kind.family == "json":
        return check_sizes(place, whole(pa.array(json_texts(place, values), pa.string())))
    return check_sizes(place, _scalars(place, values, kind.element))


def json_texts(place: Place, values: list[Any]) -> list[str | None]:
    """Each value as JSON text; None stays None."""
    texts: list[str | None] = []
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None else encode_json(value))
        except NotJson as error:
            raise place.invalid(row, error) from None
    return texts


def check_moments(place: Place, array: pa.Array) -> pa.Array:
    """The timestamps, or `SchemaConflict` if one is outside the years 1 to 9999."""
    bounds = pc.min_max(array)
    low, high = bounds["min"], bounds["max"]
    if low.is_valid and (low.value < _range()[0].value or high.value > _range()[1].value):
        outside = pc.or_(pc.less(array, _range()[0]), pc.greater(array, _range()[1]))
        row = outside.index(True).as_py()
        raise place.conflict(row, "in the years 1 to 9999", f"{array[row].value} µs from 1970")
    return array


def _scalars(place: Place, values: list[Any], element: str) -> pa.Array:
    if element == "null":
        return pa.nulls(len(values))
    if not set(map(type, values)) <= {_PYTHON[element], type(None)}:
        values = [_plain(place, row, value, element) for row, value in enumerate(values)]
    if element == "timestamp":
        for row, value in enumerate(values):
            if value is not None:
                _check_moment(place, row, value)
    try:
        array = whole(pa.array(values, SCALARS[element]))
    except (pa.ArrowException, OverflowError, ValueError):
        for row, value in enumerate(values):
            _find_fault(place, row, value, element)
        raise
    return check_moments(place, array) if element == "timestamp" else array


def _plain(place: Place, row: int, value: Any, element: str) -> Any:
    """The value as the Python type that Arrow makes the element from."""
    if value is None:
        return None
    plain = value.item() if isinstance(value, np.generic) else value
    number = isinstance(plain, int) and not isinstance(plain, bool)
    if element == "bool" and isinstance(plain, bool):
        return plain
    if element == "int64" and number:
        return int(plain)
    if element == "float64" and isinstance(plain, float):
        return float(plain)
    if element == "float64" and number:
        try:
            if float(plain) == plain:
                return float(plain)
        except OverflowError:
            pass
        raise place.conflict(row, "a float64", f"{shown(plain)}, which it cannot hold exactly")
    if element == "string" and isinstance(plain, str):
        return str.__str__(plain)
    if element == "bytes" and isinstance(plain, bytes | bytearray | memoryview):
        return bytes(plain)
    if element == "timestamp" and isinstance(plain, date) and not isinstance(value, np.generic):
        if isinstance(plain, datetime):
            return plain
        return datetime(plain.year, plain.month, plain.day, tzinfo=UTC)
    raise place.conflict(row, f"of type {element}", shown(value))


def _check_moment(place: Place, row: int, value: datetime) -> None:
    if value.tzinfo is UTC and type(value) is datetime:
        return
    if value.tzinfo is None or value.utcoffset() is None:
        raise place.conflict(row, "a timestamp with a time zone", shown(value))
    # Other libraries' datetimes may count nanoseconds.
    if getattr(value, "nanosecond", 0):
        raise place.conflict(row, "a timestamp in whole microseconds", shown(value))


def _find_fault(place: Place, row: int, value: Any, element: str) -> None:
    if element == "int64" and isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise place.conflict(row, "an int64", f"{shown(value)}, which has more than 64 bits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise place.invalid(row, "has text that is not valid Unicode") from None
    try:
        pa.array([value], SCALARS[element])
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise place.conflict(row, f"of type {element}", f"{shown(value)}: {error}") from None


def _lists(place: Place, values: list[Any], kind: AttributeType) -> pa.Array:
    lists: list[Any] = []
    for row, value in enumerate(values):
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or value.dtype.kind in "mMcV" or value.dtype.itemsize == 0:
                raise place.conflict(row, f"a {kind}", f"an array of {value.ndim}-D {value.dtype}")
            value = value.tolist()
        elif value is not None and not isinstance(value, list | tuple):
            raise place.conflict(row, f"a {kind}", shown(value))
        lists.append(value)
    present = [value for value in lists if value is not None]
    lengths = np.fromiter((0 if value is None else len(value) for value in lists), np.int64)
    offsets = offsets_of(lengths)
    flat = list(chain.from_iterable(present))
    elements = _scalars(place.elements(offsets), flat, kind.element)
    missing = None
    if len(present) < len(lists):
        missing = pa.array([value is None for value in lists])
    array = pa.ListArray.from_arrays(pa.array(offsets), elements, type=kind.arrow, mask=missing)
    return check_sizes(place, array)

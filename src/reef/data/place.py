"""Where a value stands, for error messages that lead to it."""

from __future__ import annotations

from datetime import date
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from reef.errors import InvalidInput, SchemaConflict

LARGEST_VALUE = 16 << 20
"""How many bytes one attribute of one document may have."""


class Place:
    """A column of the input: the attribute, the ids of its rows, and for the elements of lists
    the offsets at which each row's begin."""

    __slots__ = ("_ids", "_offsets", "name")

    def __init__(self, name: str, ids: Any, offsets: np.ndarray | None = None) -> None:
        self.name = name
        self._ids = ids
        self._offsets = offsets

    def elements(self, offsets: np.ndarray) -> Place:
        """The place of the elements of this column's lists."""
        return Place(self.name, self._ids, offsets)

    def _where(self, row: int) -> str:
        if self._offsets is not None:
            row = int(np.searchsorted(self._offsets, row, "right")) - 1
        identity = self._ids[row]
        if isinstance(identity, pa.Scalar):
            identity = identity.as_py()
        return f"attribute {self.name!r} of row {row} (id {identity!r})"

    def conflict(self, row: int, expected: object, got: object) -> SchemaConflict:
        """The value in this row is not what the schema says."""
        return SchemaConflict(f"{self._where(row)} must be {expected}, not {got}")

    def invalid(self, row: int, reason: object) -> InvalidInput:
        """The value in this row can be stored under no schema."""
        return InvalidInput(f"{self._where(row)} {reason}")


def shown(value: Any) -> str:
    """A value as an error message shows it: its type, and what it is if that is short."""
    kind = type(value).__name__
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an {kind} of {value.bit_length()} bits"
    if isinstance(value, str | bytes) and len(value) > 60:
        return f"a {kind} of length {len(value)}"
    if isinstance(value, str | bytes | int | float | date | np.generic | NoneType):
        return f"the {kind} {value!r}"
    return f"a {kind}"


def check_sizes(place: Place, array: pa.Array) -> pa.Array:
    """The array, or `InvalidInput` if one of its values is over `LARGEST_VALUE` bytes."""
    if array.nbytes <= LARGEST_VALUE:
        return array
    sizes: np.ndarray | None = None
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        sizes = np.diff(_offsets(array))
    elif pa.types.is_list(array.type):
        ends = _offsets(array).astype(np.int64)
        element = array.type.value_type
        if pa.types.is_string(element) or pa.types.is_binary(element):
            ends = _offsets(array.values)[ends].astype(np.int64)
            sizes = np.diff(ends)
        elif not pa.types.is_null(element):
            sizes = np.diff(ends) * element.bit_width // 8
    if sizes is not None and len(sizes) and sizes.max() > LARGEST_VALUE:
        row = int(np.argmax(sizes))
        raise place.invalid(row, f"has {sizes[row]} bytes, more than {LARGEST_VALUE}")
    return array


def _offsets(array: pa.Array) -> np.ndarray:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)

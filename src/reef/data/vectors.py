"""Columns of vectors: made from what users pass, and checked to be finite."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.place import Place, shown
from reef.data.types import AttributeType

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
}
_STRIDE = 1 << 17
_NUMBERS = (int, float, np.integer, np.floating)


def vectors_of_values(place: Place, values: list[Any], kind: AttributeType) -> pa.Array:
    """Python lists, tuples or 1-D arrays of numbers (None for none) as a vector column."""
    types = set(map(type, values)) - {type(None)}
    if not types <= {list, tuple, np.ndarray}:
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, list | tuple | np.ndarray):
                raise place.conflict(row, f"a {kind}", shown(value))
    if np.ndarray in types and types != {np.ndarray}:
        values = [v.tolist() if isinstance(v, np.ndarray) else v for v in values]
    for row, value in enumerate(values):
        if value is not None and len(value) != kind.dimension:
            raise place.conflict(
                row, f"a vector of dimension {kind.dimension}", f"of dimension {len(value)}"
            )
    if types == {np.ndarray}:
        return _from_arrays(place, values, kind)
    try:
        array = pa.array(values, kind.arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Something that is no number, or an integer that the element type must round.
        array = None
    if array is not None:
        numbers = _elements(array)
        # Arrow takes True for 1.0; a look at the types is only worth it where there is a 0 or 1.
        if numbers.null_count or _has_units(numbers.to_numpy()):
            _check_elements(place, values, kind)
        return check_vectors(place, array, kind)
    _check_elements(place, values, kind)
    rows = [None if v is None else np.array(list(map(float, v))) for v in values]
    return _from_arrays(place, rows, kind)


def _has_units(numbers: np.ndarray) -> bool:
    return bool(((numbers == 0) | (numbers == 1)).any())


def _check_elements(place: Place, values: list[Any], kind: AttributeType) -> None:
    if set(map(type, chain.from_iterable(v for v in values if v is not None))) <= {float, int}:
        return
    for row, value in enumerate(values):
        for element in value or ():
            if isinstance(element, bool) or not isinstance(element, _NUMBERS):
                raise place.conflict(row, f"a {kind}", f"one with {shown(element)} in it")


def _from_arrays(place: Place, values: list[Any], kind: AttributeType) -> pa.Array:
    table = np.zeros((len(values), kind.dimension), DTYPES[kind.element])
    for row, value in enumerate(values):
        if value is None:
            continue
        if value.ndim != 1 or value.dtype.kind not in "fiu":
            raise place.conflict(row, f"a {kind}", f"an array of {value.ndim}-D {value.dtype}")
        with np.errstate(over="ignore"):
            table[row] = value
    missing = np.fromiter((v is None for v in values), bool, len(values))
    return check_vectors(place, vectors_of_table(table, kind, missing), kind)


def vectors_of_table(
    table: np.ndarray, kind: AttributeType, missing: np.ndarray | None = None
) -> pa.Array:
    """A (rows, dimension) array of the element type as a vector column, without a copy."""
    elements = pa.array(np.ascontiguousarray(table).reshape(-1))
    mask = pa.array(missing) if missing is not None and missing.any() else None
    return pa.FixedSizeListArray.from_arrays(elements, type=kind.arrow, mask=mask)


def vectors_of_arrow(place: Place, array: pa.Array, kind: AttributeType) -> pa.Array:
    """Any Arrow list column of numbers as a vector column, without a copy if it is one."""
    if array.type == kind.arrow:
        return check_vectors(place, array, kind)
    element = array.type.value_type
    if not (pa.types.is_floating(element) or pa.types.is_integer(element)):
        raise place.conflict(0, f"a {kind}", array.type)
    missing = np.asarray(array.is_null())
    lengths = np.asarray(pc.list_value_length(array).fill_null(kind.dimension))
    if (lengths != kind.dimension).any():
        row = int(np.argmax(lengths != kind.dimension))
        raise place.conflict(
            row, f"a vector of dimension {kind.dimension}", f"of dimension {lengths[row]}"
        )
    flat = pc.list_flatten(array)
    if flat.null_count:
        row = int(np.flatnonzero(~missing)[flat.is_null().index(True).as_py() // kind.dimension])
        raise place.conflict(row, f"a {kind}", "one with a null in it")
    table = np.zeros((len(array), kind.dimension), DTYPES[kind.element])
    with np.errstate(over="ignore"):
        table[~missing] = flat.to_numpy(zero_copy_only=False).reshape(-1, kind.dimension)
    return check_vectors(place, vectors_of_table(table, kind, missing), kind)


def check_vectors(place: Place, array: pa.Array, kind: AttributeType) -> pa.Array:
    """The vector column, or `SchemaConflict` if a number in it is null, NaN or infinite."""
    elements = _elements(array)
    if elements.null_count:
        wrong, what = elements.is_null().to_numpy(zero_copy_only=False), "a null"
    else:
        numbers = elements.to_numpy()
        if _all_finite(numbers):
            return array
        wrong = ~np.isfinite(numbers)
        what = f"{numbers[int(np.argmax(wrong))]} as {kind.element}"
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    row = int(rows[int(np.argmax(wrong)) // kind.dimension])
    raise place.conflict(row, "a vector of finite numbers", f"one with {what}")


def _all_finite(numbers: np.ndarray) -> bool:
    # In strides, so that what NumPy sets aside stays in the processor's cache.
    return all(
        np.isfinite(numbers[start : start + _STRIDE]).all()
        for start in range(0, len(numbers), _STRIDE)
    )


def _elements(array: pa.Array) -> pa.Array:
    """The numbers of the vectors that are there: what lies under a null may be anything."""
    if array.null_count:
        return array.flatten()
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)

"""Columns that come as Arrow arrays, in the Arrow form of their attribute type.

    int8 … int64, uint8 … uint64        int64, if it fits
    float16, float32, float64           float64
    string, large_string, string_view   string
    binary of any layout or size        bytes
    timestamp with a time zone          timestamp, if whole microseconds; without one, a conflict
    date32, date64                      timestamp, at midnight UTC
    fixed_size_list of float32/16       vector
    other lists of one of the above     list<T>; or a vector, where the schema says so
    structs, maps, lists of lists       json
    null, lists of null                 null, list<null>: not known yet
    decimal, time, duration, …          a conflict

Dictionaries and run-end encodings count as what they encode, extension types as their storage.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.convert.slices import narrow, offsets_of, whole
from reef.data.convert.values import check_moments, json_texts
from reef.data.json_text import NotJson, check_json
from reef.data.place import Place, check_sizes
from reef.data.types import (
    EMPTY_LIST,
    LARGEST_DIMENSION,
    NULL,
    SCALARS,
    VECTOR_ELEMENTS,
    AttributeType,
    parse_type,
    vector,
)
from reef.data.vectors import vectors_of_arrow

JSON = parse_type("json")
_types = pa.types


def plain_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The array as one, without dictionary, run-end encoding or extension type around it."""
    if isinstance(array, pa.ChunkedArray):
        chunks = list(map(plain_array, array.chunks or [pa.array([], array.type)]))
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif _types.is_dictionary(array.type):
            array = _without_views(array).dictionary_decode()
        elif _types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _without_views(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The dictionary array; Arrow cannot take from a dictionary of views."""
    known = array.type.value_type
    if _types.is_string_view(known):
        wanted = pa.large_string()
    elif _types.is_binary_view(known):
        wanted = pa.large_binary()
    else:
        return array
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(wanted))


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """The type that `plain_array` of an array of this one has."""
    while True:
        if isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        elif _types.is_dictionary(arrow) or _types.is_run_end_encoded(arrow):
            arrow = arrow.value_type
        else:
            return arrow


def infer_arrow(place: Place, arrow: pa.DataType) -> AttributeType:
    """The attribute type that a plain Arrow type asks for."""
    if _types.is_null(arrow):
        return NULL
    scalar = _scalar_of(arrow)
    if scalar is not None:
        return parse_type(scalar)
    if _is_list(arrow):
        element = arrow.value_type
        if _types.is_fixed_size_list(arrow) and element in VECTOR_ELEMENTS.values():
            if not 0 < arrow.list_size <= LARGEST_DIMENSION:
                raise place.conflict(0, f"of 1 to {LARGEST_DIMENSION} dimensions", arrow)
            return vector(arrow.list_size, "float32" if element == pa.float32() else "float16")
        if _types.is_null(element):
            return EMPTY_LIST
        while _types.is_dictionary(element) or isinstance(element, pa.BaseExtensionType):
            element = element.value_type if _types.is_dictionary(element) else element.storage_type
        scalar = _scalar_of(element)
        return JSON if scalar is None else parse_type(f"list<{scalar}>")
    if _types.is_struct(arrow) or _types.is_map(arrow):
        return JSON
    raise place.conflict(0, "of a type that an attribute can have", arrow)


def column_of_arrow(
    place: Place, array: pa.Array, kind: AttributeType, *, json: bool = False
) -> pa.Array:
    """A plain array in the Arrow form of the type, without a copy where it has it already.

    With `json`, a string column holds JSON text; otherwise strings for a json attribute are
    JSON strings.
    """
    if _types.is_null(array.type):
        return pa.nulls(len(array), kind.arrow)
    if kind.family == "json":
        return check_sizes(place, _json(place, array, text=json))
    if kind.family == "scalar":
        array = _scalars(place, array, kind.element)
        return check_sizes(place, array) if kind.element in ("string", "bytes") else array
    if not _is_list(array.type):
        raise place.conflict(0, f"a {kind}", array.type)
    if kind.family == "vector":
        return _canonical(vectors_of_arrow(place, array, kind), kind)
    return check_sizes(place, _canonical(_lists(place, array, kind), kind))


def _canonical(array: pa.Array, kind: AttributeType) -> pa.Array:
    # Types are equal whatever they call their elements; what Reef writes is one type.
    element = array.type.value_field
    return array if element.name == "item" and element.nullable else array.cast(kind.arrow)


def _is_list(arrow: pa.DataType) -> bool:
    return (
        _types.is_list(arrow)
        or _types.is_large_list(arrow)
        or _types.is_fixed_size_list(arrow)
        or _types.is_list_view(arrow)
        or _types.is_large_list_view(arrow)
    )


def _scalar_of(arrow: pa.DataType) -> str | None:
    if _types.is_boolean(arrow):
        return "bool"
    if _types.is_integer(arrow):
        return "int64"
    if _types.is_floating(arrow):
        return "float64"
    if _types.is_string(arrow) or _types.is_large_string(arrow) or _types.is_string_view(arrow):
        return "string"
    if (
        _types.is_binary(arrow)
        or _types.is_large_binary(arrow)
        or _types.is_binary_view(arrow)
        or _types.is_fixed_size_binary(arrow)
    ):
        return "bytes"
    if _types.is_timestamp(arrow) or _types.is_date(arrow):
        return "timestamp"
    return None


def _scalars(place: Place, array: pa.Array, element: str) -> pa.Array:
    if element == "null":
        return pa.nulls(len(array))
    target = SCALARS[element]
    source = array.type
    if _types.is_timestamp(source) and source.tz is None and element == "timestamp":
        raise place.conflict(0, "a timestamp with a time zone", source)
    if source != target:
        if _types.is_null(source):
            return pa.nulls(len(array), target)
        given = _scalar_of(source)
        if given == "int64" and element == "float64":
            return _exact_floats(place, array)
        if given != element:
            raise place.conflict(0, f"of type {element}", source)
        array = _cast(place, array, target)
    return check_moments(place, array) if element == "timestamp" else array


def _cast(place: Place, array: pa.Array, target: pa.DataType) -> pa.Array:
    array = narrow(array)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        reason = str(error)
    if array.type == pa.uint64():
        lost = pc.greater(array, pa.scalar(2**63 - 1, pa.uint64()))
    else:
        back = array.cast(target, safe=False).cast(array.type, safe=False)
        lost = pc.not_equal(back, array)
    row = max(0, lost.index(True).as_py())
    raise place.conflict(row, f"exact as {target}", f"{array.type}: {reason}")


def _exact_floats(place: Place, array: pa.Array) -> pa.Array:
    whole = array.fill_null(0).to_numpy()
    floats = whole.astype(np.float64)
    # 2.0**63 and 2.0**64 would not survive the way back.
    limit = 2.0 ** (64 if whole.dtype.kind == "u" else 63)
    inside = floats < limit
    exact = inside & (np.where(inside, floats, 0).astype(whole.dtype) == whole)
    if not exact.all():
        row = int(np.argmin(exact))
        raise place.conflict(row, "a float64", f"{whole[row]}, which it cannot hold exactly")
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(floats, mask=missing)


def _lists(place: Place, array: pa.Array, kind: AttributeType) -> pa.Array:
    if array.type == kind.arrow and kind.element != "timestamp":
        return array
    offsets = offsets_of(pc.list_value_length(array).fill_null(0).to_numpy())
    elements = plain_array(pc.list_flatten(array))
    missing = array.is_null() if array.null_count else None
    converted = _scalars(place.elements(offsets), elements, kind.element)
    return pa.ListArray.from_arrays(pa.array(offsets), converted, type=kind.arrow, mask=missing)


def _json(place: Place, array: pa.Array, *, text: bool) -> pa.Array:
    if not text:
        if _scalar_of(array.type) == "timestamp":
            raise place.conflict(0, "a value that JSON can hold", array.type)
        try:
            values = array.to_pylist(maps_as_pydicts="strict")
        except (KeyError, ValueError) as error:
            raise place.invalid(0, f"is in a column that JSON cannot hold: {error}") from None
        return whole(pa.array(json_texts(place, values), pa.string()))
    texts: list[str | None] = []
    for row, value in enumerate(array.to_pylist()):
        try:
            texts.append(None if value is None else check_json(value))
        except NotJson as error:
            raise place.invalid(row, error) from None
    # The text null is an explicit null, as None is.
    return whole(pa.array([None if found == "null" else found for found in texts], pa.string()))

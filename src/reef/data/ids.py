"""Document ids and namespace names: what may be one.

An id is a string of 1 to 512 UTF-8 bytes without control characters (Unicode category Cc), or
an unsigned 64-bit integer. A namespace has ids of one kind, which its first write decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from reef.data.place import shown
from reef.data.schema import ID_TYPES, INTEGER_IDS, STRING_IDS, Schema
from reef.errors import InvalidId, InvalidName

LONGEST_ID = 512
LONGEST_NAMESPACE_NAME = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


def check_namespace_name(name: object) -> str:
    """The name, or `InvalidName`. 1 to 128 of A-Z a-z 0-9 _ . - from a letter or digit, no ".."."""
    if not isinstance(name, str):
        raise InvalidName(f"a namespace name must be a string, not {type(name).__name__}")
    if len(name) > LONGEST_NAMESPACE_NAME or ".." in name or not _NAMESPACE.fullmatch(name):
        raise InvalidName(
            f"namespace name {name[:200]!r} must be 1 to {LONGEST_NAMESPACE_NAME} letters, digits,"
            ' "_", "-" or ".", begin with a letter or digit, and not have ".."'
        )
    return name


def check_id(value: object, schema: Schema) -> str | int:
    """The id as a plain string or integer, or `InvalidId`."""
    return _check(value, schema.id_kind, "the id")


def check_each(values: Iterable[object], schema: Schema) -> list[str | int]:
    """Every id as a plain string or integer, or `InvalidId` for the first that is not one."""
    ids = list(values)
    if schema.id_kind == STRING_IDS and set(map(type, ids)) == {str}:
        # All at once: short, printable text without anything odd is what nearly all ids are.
        lengths = list(map(len, cast("list[str]", ids)))
        whole = "".join(cast("list[str]", ids))
        if min(lengths) and max(lengths) <= LONGEST_ID and whole.isascii() and whole.isprintable():
            return cast("list[str | int]", ids)
    return [check_id(value, schema) for value in ids]


def _check(value: object, id_kind: str | None, what: str) -> str | int:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        if id_kind == INTEGER_IDS:
            raise InvalidId(f"{what} is {shown(value)}, and this namespace has integers")
        _check_text(value, what)
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if id_kind == STRING_IDS:
            raise InvalidId(f"{what} is {shown(value)}, and this namespace has strings")
        if not 0 <= value < 2**64:
            raise InvalidId(f"{what} is {shown(value)}, not from 0 to 2**64 - 1")
        return int(value)
    if value is None:
        raise InvalidId(f"{what} is missing")
    raise InvalidId(f"{what} must be a string or an integer, not {type(value).__name__}")


def _check_text(value: str, what: str) -> None:
    if not value:
        raise InvalidId(f"{what} is empty")
    try:
        length = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"{what} {value[:80]!r} is not valid Unicode") from None
    if length > LONGEST_ID:
        raise InvalidId(f"{what} {value[:40]!r}… has {length} bytes, more than {LONGEST_ID}")
    if not value.isprintable() and _CONTROL.search(value):
        raise InvalidId(f"{what} {value!r} has a control character")


def ids_of_values(values: Sequence[object], id_kind: str | None) -> pa.Array:
    """Python ids as a checked Arrow array, or `InvalidId` naming the row."""
    types = set(map(type, values))
    wanted = pa.string() if types == {str} else pa.uint64() if types == {int} else None
    if wanted is not None:
        try:
            return check_ids(pa.array(values, wanted), id_kind)
        except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
            pass  # the walk below says which row it was
    plain: list[Any] = []
    for row, value in enumerate(values):
        plain.append(_check(value, id_kind, f"the id of row {row}"))
        if type(plain[-1]) is not type(plain[0]):
            raise InvalidId(f"the id of row {row} is {plain[-1]!r}, not of the same kind as row 0")
    kind = id_kind or (INTEGER_IDS if plain and type(plain[0]) is int else STRING_IDS)
    return pa.array(plain, pa.uint64() if kind == INTEGER_IDS else pa.string())


def kind_of_ids(array: pa.Array) -> str:
    """The id kind that a checked array has."""
    return INTEGER_IDS if array.type == pa.uint64() else STRING_IDS


def check_ids(array: pa.Array, id_kind: str | None) -> pa.Array:
    """The ids as a string or uint64 array, or `InvalidId` naming the row number."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if array.null_count:
        row = array.is_null().index(True).as_py()
        raise InvalidId(f"the id of row {row} is missing")
    if kind == pa.string():
        checked = _check_strings(array)
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        checked = _check_strings(array.cast(pa.string()))
    elif pa.types.is_integer(kind):
        try:
            checked = array.cast(pa.uint64())
        except pa.ArrowInvalid:
            row = int(np.argmax(np.asarray(array) < 0))
            raise InvalidId(f"the id of row {row} is negative: {array[row]}") from None
    elif pa.types.is_null(kind):
        checked = pa.array([], pa.uint64() if id_kind == INTEGER_IDS else pa.string())
    else:
        raise InvalidId(f"ids must be strings or integers, not {kind}")
    if id_kind is not None and len(checked) and kind_of_ids(checked) != id_kind:
        raise InvalidId(f"this namespace has {id_kind} ids, not {kind_of_ids(checked)}")
    return checked if len(checked) or id_kind is None else checked.cast(ID_TYPES[id_kind])


def _check_strings(array: pa.Array) -> pa.Array:
    rows = len(array)
    if not rows:
        return array
    _, starts, data = array.buffers()
    offsets = np.frombuffer(starts, np.int32, rows + 1, 4 * array.offset)
    lengths = offsets[1:] - offsets[:-1]
    if lengths.min() < 1:
        raise InvalidId(f"the id of row {int(np.argmin(lengths))} is empty")
    if lengths.max() > LONGEST_ID:
        row = int(np.argmax(lengths))
        raise InvalidId(f"the id of row {row} has {lengths[row]} bytes, more than {LONGEST_ID}")
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    control = (text < 0x20) | (text == 0x7F)
    if text.max() >= 0x80:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidId(f"an id is not valid UTF-8: {error}") from None
        # U+0080 to U+009F are C2 80 to C2 9F.
        control[:-1] |= (text[:-1] == 0xC2) & (text[1:] < 0xA0)
    if control.any():
        place = int(np.argmax(control)) + int(offsets[0])
        row = int(np.searchsorted(offsets, place, "right")) - 1
        raise InvalidId(f"the id {array[row].as_py()!r} of row {row} has a control character")
    return array

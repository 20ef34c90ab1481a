"""The short way for a few rows with the same keys, all of which the schema knows.

Most writes are one document, and an Arrow array costs microseconds however small it is. So all
columns are made at once, as one array of structs, by a plan kept for the keys and the schema.
Whatever is not quite plain, wrong input included, takes the long way, which also finds the
words for errors.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from reef.data.ids import check_id
from reef.data.json_text import NotJson, encode_json
from reef.data.place import LARGEST_VALUE
from reef.data.rows import ID, KIND, KIND_FIELD, field_of, id_field, null_flag
from reef.data.schema import INTEGER_IDS, Schema
from reef.data.types import AttributeType
from reef.errors import InvalidId

FEW = 16
"""More rows than this go column by column."""

_MOST_PLANS = 512
_SAFE_LENGTH = LARGEST_VALUE // 4


class _Detour(Exception):
    """Take the long way."""


class _Plan(NamedTuple):
    struct: pa.DataType
    identity: type
    checked: tuple[tuple[str, type], ...]
    prepared: tuple[tuple[str, Callable[[Any], Any]], ...]


# By the schema's identity and the keys. Each holds its schema, so that no other can come to
# have that identity.
_plans: dict[tuple[int, tuple[str, ...]], tuple[Schema, _Plan | None]] = {}


def convert_few_rows(rows: list[Any], schema: Schema, kind: int) -> pa.RecordBatch | None:
    """The rows as a batch, or None if they take the long way."""
    if not rows or type(rows[0]) is not dict:
        return None
    names = tuple(rows[0])
    key = (id(schema), names)
    try:
        plan = _plans[key][1]
    except KeyError:
        plan = _make_plan(schema, key)
    if plan is None:
        return None
    nulls: dict[str, list[int]] = {}
    structs = []
    try:
        for number, row in enumerate(rows):
            if number and (type(row) is not dict or tuple(row) != names):
                return None
            values = row.copy()
            if type(values[ID]) is not plan.identity:
                return None
            check_id(values[ID], schema)
            for name, expected in plan.checked:
                if type(values[name]) is not expected:
                    if values[name] is not None:
                        return None
                    nulls.setdefault(name, []).append(number)
            for name, prepare in plan.prepared:
                if values[name] is None:
                    nulls.setdefault(name, []).append(number)
                else:
                    values[name] = prepare(values[name])
            values[KIND] = kind
            structs.append(values)
        batch = pa.RecordBatch.from_struct_array(pa.array(structs, plan.struct))
    except (_Detour, InvalidId, NotJson, pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
    for name in names if nulls else ():
        if name in nulls:
            flags = np.zeros(len(rows), bool)
            flags[nulls[name]] = True
            batch = batch.append_column(pa.field(null_flag(name), pa.bool_()), pa.array(flags))
    return batch


def _make_plan(schema: Schema, key: tuple[int, tuple[str, ...]]) -> _Plan | None:
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    plan = _planned(schema, key[1])
    _plans[key] = (schema, plan)
    return plan


def _planned(schema: Schema, names: tuple[str, ...]) -> _Plan | None:
    known = schema.attributes
    if schema.id_kind is None or ID not in names:
        return None
    attributes = [name for name in names if name != ID]
    if not all(name in known for name in attributes):
        return None
    checked: list[tuple[str, type]] = []
    prepared: list[tuple[str, Callable[[Any], Any]]] = []
    for name in attributes:
        attribute = known[name]
        if attribute.family == "scalar" and attribute.element in _EXACT:
            checked.append((name, _EXACT[attribute.element]))
        else:
            prepared.append((name, _preparation(attribute)))
    fields = [id_field(schema), KIND_FIELD, *(field_of(name, known[name]) for name in attributes)]
    identity = int if schema.id_kind == INTEGER_IDS else str
    return _Plan(pa.struct(fields), identity, tuple(checked), tuple(prepared))


_EXACT: dict[str, type] = {"bool": bool, "int64": int, "float64": float}


def _preparation(kind: AttributeType) -> Callable[[Any], Any]:
    if kind.family == "vector":
        return _vector(kind)
    if kind.family == "json":
        return _json
    if kind.family == "list":
        return _list(kind)
    return {"string": _string, "bytes": _bytes, "timestamp": _moment}[kind.element]


def _string(value: Any) -> Any:
    if type(value) is not str or len(value) > _SAFE_LENGTH:
        raise _Detour
    return value


def _bytes(value: Any) -> Any:
    if type(value) is not bytes or len(value) > LARGEST_VALUE:
        raise _Detour
    return value


def _moment(value: Any) -> Any:
    if type(value) is not datetime or value.tzinfo is not UTC:
        raise _Detour
    return value


def _json(value: Any) -> Any:
    return _string(encode_json(value))


def _list(kind: AttributeType) -> Callable[[Any], Any]:
    element = {**_EXACT, "string": str}.get(kind.element)

    def prepare(value: Any) -> Any:
        if type(value) is not list or element is None or set(map(type, value)) - {element}:
            raise _Detour
        size = sum(map(len, value)) * 4 if element is str else len(value) * 8
        if size > LARGEST_VALUE:
            raise _Detour
        return value

    return prepare


def _vector(kind: AttributeType) -> Callable[[Any], Any]:
    dimension = kind.dimension
    narrow = kind.element == "float32"

    def prepare(value: Any) -> Any:
        if not narrow or type(value) is not list or len(value) != dimension:
            raise _Detour
        if set(map(type, value)) != {float}:
            raise _Detour
        numbers = array("f", value)
        # A sum of float32 numbers cannot overflow a float64: it is finite if they all are.
        if not isfinite(sum(numbers)):
            raise _Detour
        return np.frombuffer(numbers, np.float32)

    return prepare

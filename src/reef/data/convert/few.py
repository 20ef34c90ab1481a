"""The short way for a few rows, all of whose attributes the schema knows: plain rows.

Most writes are one document, and an Arrow array costs microseconds however small it is. So a few
rows stay Python values, checked by a plan kept for their keys and the schema. Whatever is not quite
plain, wrong input included, takes the long way, which also finds the words for errors.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any, NamedTuple

from reef.data.ids import check_id
from reef.data.json_text import NotJson, encode_json
from reef.data.place import LARGEST_VALUE
from reef.data.plain import PlainRows, Types, union_of
from reef.data.rows import ID
from reef.data.schema import INTEGER_IDS, Schema
from reef.data.types import AttributeType
from reef.errors import InvalidId

FEW = 16
"""More rows than this go column by column, as Arrow."""

_MOST_PLANS = 512
_SAFE_LENGTH = LARGEST_VALUE // 4


class _Detour(Exception):
    """Take the long way."""


class _Plan(NamedTuple):
    types: Types
    identity: type
    checked: tuple[tuple[str, type], ...]
    prepared: tuple[tuple[str, Callable[[Any], Any]], ...]


# By the schema's identity and the keys. Each holds its schema, so that no other can come to
# have that identity.
_plans: dict[tuple[int, tuple[str, ...]], tuple[Schema, _Plan | None]] = {}


def convert_few_rows(data: object, schema: Schema, kind: int) -> PlainRows | None:
    """A list of a few dicts as plain rows, the last of each id; None if it takes the long way."""
    if type(data) is not list or not 0 < len(data) <= FEW:
        return None
    rows: dict[Any, dict[str, Any]] = {}
    plan: _Plan | None = None
    names: tuple[str, ...] = ()
    types: list[Types] = []
    try:
        for row in data:
            if type(row) is not dict:
                return None
            keys = tuple(row)
            if plan is None or keys != names:
                names = keys
                plan = _plan_of(schema, keys)
                if plan is None:
                    return None
                types.append(plan.types)
            values = row.copy()
            identity = values[ID]
            if type(identity) is not plan.identity:
                return None
            check_id(identity, schema)
            for name, expected in plan.checked:
                value = values[name]
                if type(value) is not expected and value is not None:
                    return None
            for name, prepare in plan.prepared:
                value = values[name]
                if value is not None:
                    values[name] = prepare(value)
            rows.pop(identity, None)
            rows[identity] = values
        plain = PlainRows(list(rows.values()), bytes([kind]) * len(rows), union_of(types))
        plain.packed  # noqa: B018 - here, where text that is no Unicode can take the long way
    except (_Detour, InvalidId, NotJson, ValueError, TypeError, OverflowError):
        return None
    return plain


def _plan_of(schema: Schema, names: tuple[str, ...]) -> _Plan | None:
    key = (id(schema), names)
    try:
        return _plans[key][1]
    except (KeyError, TypeError):
        return _make_plan(schema, key)


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
    identity = int if schema.id_kind == INTEGER_IDS else str
    types = Types({name: known[name] for name in attributes}, schema.id_kind)
    return _Plan(types, identity, tuple(checked), tuple(prepared))


_EXACT: dict[str, type] = {"bool": bool, "float64": float}


def _preparation(kind: AttributeType) -> Callable[[Any], Any]:
    if kind.is_open:
        return _first_value
    if kind.family == "vector":
        return _vector(kind)
    if kind.family == "json":
        return _json
    if kind.family == "list":
        return _list(kind)
    return {"int64": _integer, "string": _string, "bytes": _bytes, "timestamp": _moment}[
        kind.element
    ]


def _first_value(value: Any) -> Any:
    """It may settle the type, which the long way does."""
    raise _Detour


def _integer(value: Any) -> Any:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _Detour
    return value


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
    element = {**_EXACT, "int64": int, "string": str}.get(kind.element)

    def prepare(value: Any) -> Any:
        if type(value) is not list or element is None or set(map(type, value)) - {element}:
            raise _Detour
        if element is int and value and not (min(value) >= -(2**63) and max(value) < 2**63):
            raise _Detour
        size = sum(map(len, value)) * 4 if element is str else len(value) * 8
        if size > LARGEST_VALUE:
            raise _Detour
        return list(value)

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
        if sys.byteorder != "little":
            numbers.byteswap()
        return numbers.tobytes()

    return prepare

"""Evaluating a filter on a batch of rows with Arrow's kernels; see `reef.data.filter.tree`."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.filter.numbers import INTEGER_RANGES, against_floats, against_integers
from reef.data.filter.tree import (
    And,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    IsNull,
    Leaf,
    Literal,
    Not,
    Or,
    StartsWith,
    check_leaf,
)
from reef.data.rows import ID, present
from reef.data.types import AttributeType, type_of_arrow
from reef.errors import InvalidFilter

_KERNELS: dict[str, Any] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def evaluate(expression: Expression, batch: pa.RecordBatch) -> np.ndarray:
    """Per row of the batch, whether the filter is true (not false, and not unknown)."""
    answer = _evaluate(expression, batch)
    if answer.null_count:
        answer = answer.fill_null(False)
    values: np.ndarray = answer.to_numpy(zero_copy_only=False)
    return values


def _evaluate(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    if isinstance(expression, Leaf):
        return _test(expression, batch)
    if isinstance(expression, Not):
        return pc.invert(_evaluate(expression.operand, batch))
    if isinstance(expression, And | Or):
        if not expression.operands:
            return _everywhere(batch.num_rows, isinstance(expression, And))
        kernel = pc.and_kleene if isinstance(expression, And) else pc.or_kleene
        return reduce(kernel, (_evaluate(operand, batch) for operand in expression.operands))
    raise InvalidFilter(f"{expression!r} is not a filter")


def _everywhere(rows: int, answer: bool) -> pa.Array:
    return pa.array(np.full(rows, answer))


def _test(leaf: Leaf, batch: pa.RecordBatch) -> pa.Array:
    position = batch.schema.get_field_index(leaf.name)
    if isinstance(leaf, Exists):
        found = present(batch, leaf.name)
        return _everywhere(batch.num_rows, False) if found is None else found
    if isinstance(leaf, IsNull):
        if position < 0:
            return _everywhere(batch.num_rows, True)
        return batch.column(position).is_null()
    if position < 0:
        return pa.nulls(batch.num_rows, pa.bool_())
    column = batch.column(position)
    kind = _kind(leaf.name, batch.schema.field(position))
    check_leaf(leaf, kind)
    if kind.is_open:
        # Nulls, and lists that hold nothing that a value could equal.
        return _wherever_valid(column, False)
    if isinstance(leaf, Compare):
        return compare(column, kind.element, leaf.op, leaf.value)
    if isinstance(leaf, In):
        return _is_in(column, kind.element, leaf.values)
    if isinstance(leaf, StartsWith):
        return pc.starts_with(column, leaf.prefix)
    assert isinstance(leaf, Contains)
    if kind.family == "list":
        return _has_element(column, kind.element, leaf.value)
    return pc.match_substring(column, leaf.value)


def _kind(name: str, field: pa.Field) -> AttributeType:
    if name == ID and field.type == pa.uint64():
        return AttributeType("scalar", "uint64")
    metadata = field.metadata or {}
    kind = type_of_arrow(field.type, json=metadata.get(b"reef") == b"json")
    if kind is None:
        raise InvalidFilter(f"column {name!r} of type {field.type} cannot be filtered")
    return kind


def _wherever_valid(column: pa.Array, answer: bool) -> pa.Array:
    valid = column.is_valid()
    return pc.if_else(valid, answer, pa.scalar(None, pa.bool_()))


def compare(column: pa.Array, element: str, op: str, value: Literal) -> pa.Array:
    """Per value of the column, the comparison; null where the column is."""
    narrowed: bool | tuple[str, Any] = (op, value)
    if element in INTEGER_RANGES:
        assert isinstance(value, int | float)
        narrowed = against_integers(op, value, element)
    elif element == "float64":
        assert isinstance(value, int | float)
        narrowed = against_floats(op, value)
    if isinstance(narrowed, bool):
        return _wherever_valid(column, narrowed)
    return _KERNELS[narrowed[0]](column, pa.scalar(narrowed[1], column.type))


def _is_in(column: pa.Array, element: str, values: tuple[Literal, ...]) -> pa.Array:
    members: list[Any] = []
    for value in values:
        narrowed: bool | tuple[str, Any] = ("=", value)
        if element in INTEGER_RANGES:
            assert isinstance(value, int | float)
            narrowed = against_integers("=", value, element)
        elif element == "float64":
            assert isinstance(value, int | float)
            narrowed = against_floats("=", value)
        if isinstance(narrowed, bool):
            continue
        member = narrowed[1]
        if isinstance(member, float):
            # The kernel finds NaN equal to NaN, and tells the two zeros apart.
            if math.isnan(member):
                continue
            if member == 0:
                members += [0.0, -0.0]
                continue
        members.append(member)
    if not members:
        return _wherever_valid(column, False)
    found = pc.is_in(column, value_set=pa.array(members, column.type))
    if not column.null_count:
        return found
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))


def _has_element(column: pa.Array, element: str, value: Literal) -> pa.Array:
    equal = compare(pc.list_flatten(column), element, "=", value).fill_null(False)
    found = np.zeros(len(column), dtype=bool)
    found[pc.list_parent_indices(column).filter(equal).to_numpy(zero_copy_only=False)] = True
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=~valid)

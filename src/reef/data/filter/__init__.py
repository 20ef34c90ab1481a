"""Filters: the whole of them in one place.

The tree and its logic are in `filter_tree`, evaluation on rows in `filter_evaluate`, text in
`filter_text`, pruning by statistics in `filter_pruning`, ranges of ids in `filter_range`.
"""

from __future__ import annotations

from reef.data.filter.evaluate import evaluate
from reef.data.filter.pruning import may_match
from reef.data.filter.range import id_range
from reef.data.filter.text import parse_filter
from reef.data.filter.tree import (
    And,
    Attribute,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
    attribute,
    check,
    columns,
)

__all__ = [
    "And",
    "Attribute",
    "Compare",
    "Contains",
    "Exists",
    "Expression",
    "In",
    "IsNull",
    "Literal",
    "Not",
    "Or",
    "StartsWith",
    "attribute",
    "check",
    "columns",
    "evaluate",
    "id_range",
    "may_match",
    "parse_filter",
]

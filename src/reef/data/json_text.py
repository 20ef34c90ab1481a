"""JSON attributes: any nested value, kept as compact JSON text."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

DEEPEST = 64
"""How deep objects and arrays may nest in one value."""

_PLAIN = frozenset((str, bool, int, type(None)))
_encode = msgspec.json.Encoder().encode


class NotJson(Exception):
    """Why a value cannot be JSON."""


def encode_json(value: object) -> str:
    """The value as compact JSON, or `NotJson`.

    Objects have string keys; numbers are finite; tuples and NumPy arrays become arrays, NumPy
    scalars numbers. The text decodes to an equal value.
    """
    try:
        return _encode(_plain(value, DEEPEST)).decode()
    except UnicodeEncodeError:
        raise NotJson("has text that is not valid Unicode") from None
    except ValueError as error:
        raise NotJson(f"cannot be written as JSON: {error}") from None


def check_json(text: str) -> str:
    """JSON text in its compact form, or `NotJson`."""
    try:
        return encode_json(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotJson(f"is not JSON: {error}") from None


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise NotJson(f"has {value}, which JSON cannot hold")
        return value
    if not depth:
        raise NotJson(f"nests deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise NotJson(f"has the key {key!r}, which is not a string")
        return {str.__str__(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), depth)
    if isinstance(value, np.generic):
        plain = value.item()
        if not isinstance(plain, np.generic):
            return _plain(plain, depth - 1)
    for base in (str, int, float):
        if isinstance(value, base):
            return _plain(base.__str__(value) if base is str else base(value), depth - 1)
    raise NotJson(f"has a {kind.__name__}, which JSON cannot hold")

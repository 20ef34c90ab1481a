"""Bounds of scans: what is between them, whether or not they are ids themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reef
from reef import InvalidId, InvalidInput
from reef.data.interval import after_prefix
from reef.documents import Namespace
from reef.store import MemoryStore

TEXTS = ["a", "a~", "a~~", "a~b", "b", "~", "~~", "~é", "é", "x" * 512, "~" * 512]
TEXTS += ["\ud7ff", "\ue000", "\U0010ffff", "\U0010ffff\U0010ffff"]
TEXTS.sort(key=str.encode)
NUMBERS = [0, 1, 255, 2**63, 2**64 - 1]


def _where(ids: list[Any], *, folded: bool) -> Namespace:
    ns = reef.connect(MemoryStore()).namespace("n", maintain=False)
    ns.write(upserts=[{"id": id} for id in ids])
    if folded:
        ns.index()
    return ns


@pytest.fixture(params=[False, True], ids=["log", "segment"])
def where(request: pytest.FixtureRequest) -> Callable[[list[Any]], Namespace]:
    """A namespace of those ids, in the log or in a segment."""
    return lambda ids: _where(ids, folded=request.param)


def _ids(ns: Namespace, **bounds: Any) -> list[Any]:
    return [document["id"] for document in ns.scan(**bounds).documents()]


@pytest.mark.parametrize(
    "prefix",
    ["", "~", "~~", "a~", "x" * 512, "~" * 512, "~" * 600, "\U0010ffff", "\ud7ff", "a\0", "\x7f"],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_any_prefix(where: Callable[[list[Any]], Namespace], prefix: str, reverse: bool) -> None:
    found = _ids(where(TEXTS), prefix=prefix, reverse=reverse)
    assert found == [t for t in TEXTS if t.startswith(prefix)][:: -1 if reverse else 1]


@pytest.mark.parametrize("bound", ["", "\0", "a\n", "~" * 513, "\x7f", "m", np.str_("b")])
def test_text_bounds_need_not_be_ids(where: Callable[[list[Any]], Namespace], bound: str) -> None:
    ns = where(TEXTS)
    assert _ids(ns, start=bound) == [t for t in TEXTS if t.encode() >= bound.encode()]
    assert _ids(ns, stop=bound) == [t for t in TEXTS if t.encode() < bound.encode()]


@pytest.mark.parametrize("bound", [-1, -(2**70), 0, 7, 2**63, 2**64 - 1, 2**64, 2**90, np.int8(-3)])
def test_integer_bounds_need_not_be_ids(
    where: Callable[[list[Any]], Namespace], bound: int
) -> None:
    ns = where(NUMBERS)
    assert _ids(ns, start=bound) == [n for n in NUMBERS if n >= bound]
    assert _ids(ns, stop=bound) == [n for n in NUMBERS if n < bound]


@pytest.mark.parametrize("bound", ["\ud800", 7, True, 1.5, b"a", ["a"]], ids=repr)
def test_what_is_no_bound_of_texts(bound: Any) -> None:
    ns = _where(TEXTS, folded=False)
    for wrong in ({"start": bound}, {"stop": bound}):
        with pytest.raises(InvalidId):
            ns.scan(**wrong)
    with pytest.raises(InvalidInput):
        ns.scan(prefix=bound)


def test_what_is_no_bound_of_integers() -> None:
    ns = _where(NUMBERS, folded=False)
    with pytest.raises(InvalidId):
        ns.scan(start="1")
    with pytest.raises(InvalidInput):
        ns.scan(prefix="")


@given(st.text(max_size=4), st.text(max_size=4))
def test_the_bound_of_a_prefix_parts_what_begins_so(prefix: str, text: str) -> None:
    after = after_prefix(prefix)
    inside = prefix <= text and (after is None or text < after)
    assert inside == text.startswith(prefix)

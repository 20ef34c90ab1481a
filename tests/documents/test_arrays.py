"""Vectors as NumPy arrays: the same numbers, wherever the document lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reef
from reef.documents import Namespace
from reef.store import MemoryStore

VECTORS = {"wide": "vector<float32, 3>", "short": "vector<float16, 2>"}


def same(left: Any, right: Any) -> bool:
    """Whether a document with arrays has the values of one with lists."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == (np.float32 if name == "wide" else np.float16)
            assert value.flags.writeable
            value = value.tolist()
        assert value == right[name]
        assert not isinstance(right[name], np.ndarray)
    return any(isinstance(value, np.ndarray) for value in left.values())


def check(ns: Namespace, ids: list[str]) -> None:
    lists, arrays = ns.get_many(ids), ns.get_many(ids, vectors="numpy")
    for id, left, right in zip(ids, arrays, lists, strict=True):
        if right is None:
            assert left is None
            assert ns.get(id, vectors="numpy") is None
            continue
        assert same(left, right) == any(isinstance(v, list) for v in right.values())
        assert same(ns.get(id, vectors="numpy"), right) or "wide" not in right
        if "wide" in right:
            only = ns.get(id, columns=["wide"], vectors="numpy")
            assert only is not None
            assert set(only) == {"id", "wide"}


def test_vectors_come_as_arrays_when_asked_for(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store).namespace("n", schema=VECTORS, maintain=False)
    documents: list[dict[str, Any]] = [
        {"id": f"{n:02}", "wide": [n, 0.5, -n], "short": [n, 1.5], "n": n} for n in range(30)
    ]
    documents[3]["wide"] = None
    del documents[4]["short"]
    ids = [f"{n:02}" for n in range(32)]
    ns.write(upserts=documents)
    check(ns, ids)
    ns.index()
    check(ns, ids)
    ns.write(patches=[{"id": "07", "wide": [7, 7, 7]}, {"id": "08", "n": 0}], deletes=["09"])
    check(ns, ids)
    ns.index()
    check(ns, ids)


def test_what_a_caller_does_to_an_array_stays_with_it(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "v": np.arange(3, dtype=np.float32)}])
    for _ in range(2):
        document = ns.get("a", vectors="numpy")
        assert document is not None
        document["v"][0] = 99
        assert ns.get("a") == {"id": "a", "v": [0.0, 1.0, 2.0]}
        ns.index()


def test_only_lists_and_arrays_can_be_asked_for(memory_store: MemoryStore) -> None:
    ns = reef.connect(memory_store).namespace("n", maintain=False)
    with pytest.raises(reef.InvalidInput, match="numpy"):
        ns.get("a", vectors="torch")
    with pytest.raises(reef.InvalidInput, match="numpy"):
        ns.get_many(["a"], vectors="torch")

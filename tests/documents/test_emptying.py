"""Emptying a namespace: an overwrite that brings no rows is one like any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import reef
from reef.documents import Namespace
from reef.documents.load import load
from reef.store import MemoryStore

ROWS = [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.fixture
def ns(memory_store: MemoryStore) -> Namespace:
    return reef.connect(memory_store).namespace("n", maintain=False)


def as_another_process(store: MemoryStore) -> None:
    with reef.connect(store).namespace("n", "r") as other:
        other.load([], truncate=True)


@pytest.mark.parametrize("fold_first", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["another process", "the writer itself"])
def test_a_live_writer_sees_it(
    ns: Namespace, memory_store: MemoryStore, own: bool, fold_first: bool
) -> None:
    ns.write(upserts=ROWS)
    if fold_first:
        ns.index()
    if own:
        ns.load([], truncate=True)
        assert list(ns.scan().documents()) == []
    else:
        as_another_process(memory_store)
        # It learns of it by meeting it in its slot.
        ns.write(upserts=[{"id": "x"}])
        ns.write(deletes=["x"])
    assert ns.write(upserts=[{"id": "a", "n": 3}], condition=reef.if_absent()).upserted == 1
    assert list(ns.scan().documents()) == [{"id": "a", "n": 3}]
    assert ns.get("b") is None
    with pytest.raises(reef.ConditionFailed):
        ns.write(upserts=[{"id": "a"}], condition=reef.if_absent())
    assert ns.write(patches=[{"id": "b", "n": 9}]).missing == 1


def test_it_is_the_same_for_readers_folds_and_history(
    ns: Namespace, memory_store: MemoryStore
) -> None:
    before = ns.write(upserts=ROWS).lsn
    ns.index()
    emptied = ns.load(iter([]), truncate=True)
    assert (emptied.upserted, emptied.deleted) == (0, 0)
    ns.write(upserts=[{"id": "c"}])
    for _ in range(2):
        reader = reef.connect(memory_store).namespace("n", "r")
        assert list(reader.scan().documents()) == [{"id": "c"}]
        assert reader.at(lsn=emptied.lsn).get("a") is None
        assert reader.at(lsn=before).get("a") == ROWS[0]
        kinds = [change.kind for change in reader.changes(after=before)]
        assert kinds == ["truncate", "upsert"]
        ns.index()
    assert reef.connect(memory_store).namespace("n").get("b") is None


@pytest.mark.parametrize("nothing", [list, lambda: {"id": []}, lambda: iter([[], []])])
def test_whatever_holds_no_rows_empties(ns: Namespace, nothing: Callable[[], object]) -> None:
    ns.write(upserts=ROWS)
    ns.load(nothing(), truncate=True)
    assert list(ns.scan().documents()) == []
    assert ns.schema.attributes


def test_once_only_with_a_key(ns: Namespace) -> None:
    ns.write(upserts=ROWS)
    first = ns.load([], truncate=True, idempotency_key="k")
    ns.write(upserts=[{"id": "c"}])
    assert ns.load([], truncate=True, idempotency_key="k") == first
    assert ns.get("c") == {"id": "c"}


def test_no_rows_that_replace_nothing_are_a_mistake(ns: Namespace) -> None:
    with pytest.raises(reef.InvalidInput, match="no rows"):
        load(ns._tree, [])

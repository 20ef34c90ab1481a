"""States that move backwards: a root that falls back past damage, slots that were given up."""

from __future__ import annotations

import logging

import pytest

import reef
from lsm.damaging import NAME, PLACE, contents, damage, database, tree_of
from reef.log import WAL
from reef.lsm.repair.repair import repair
from reef.manifest import MANIFESTS
from reef.store import MemoryStore


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("reef").setLevel(logging.CRITICAL)


def test_a_writer_whose_root_fell_back_folds_what_it_had_folded_away() -> None:
    store = MemoryStore()
    first = database(store).namespace(NAME, maintain=False)
    first.write(upserts=[{"id": "a", "n": 1}])
    first.index()
    folded = first.generation
    first.write(upserts=[{"id": "b", "n": 1}])
    for key in (PLACE + MANIFESTS.key(folded), f"{PLACE}hint.json"):
        damage(store, key, "flip")
    second = database(store).namespace(NAME, maintain=False)
    assert second.count() == 2
    first.index()
    assert sorted(contents(store)) == ["a", "b"]
    assert first.count() == second.count() == 2


def test_the_state_after_a_slot_that_was_given_up() -> None:
    store = MemoryStore()
    namespace = database(store).namespace(NAME, maintain=False)
    receipts = [namespace.write(upserts=[{"id": f"d{n}", "n": n}]) for n in range(4)]
    damage(store, PLACE + WAL.key(receipts[1].lsn), "flip")
    repair(tree_of(store), apply=True)
    reader = database(store).namespace(NAME, "r")
    past = reader.at(lsn=receipts[1].lsn)
    assert [document["id"] for document in past.scan().documents()] == ["d0"]


def test_no_empty_namespace_is_laid_over_the_remains_of_another() -> None:
    store = MemoryStore()
    namespace = database(store).namespace(NAME, maintain=False)
    namespace.write(upserts=[{"id": "a"}])
    for info in list(store.list(PLACE)):
        if "manifest/" in info.key or info.key.endswith("hint.json"):
            store.delete(info.key)
    with pytest.raises(reef.Corruption, match="rebuild or drop"):
        database(store).namespace(NAME)
    database(store).drop(NAME)
    assert database(store).namespace(NAME, maintain=False).count() == 0
    with pytest.raises(reef.NamespaceNotFound):
        database(store).drop("other")

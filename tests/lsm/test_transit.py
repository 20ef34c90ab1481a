"""An object that is whole and arrives damaged, once: nobody acts on that."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec
import pytest

from lsm.damaging import NAME, PLACE, database, make, tree_of
from reef.errors import Corruption
from reef.lsm.tree import Tree
from reef.store import Blob, MemoryStore
from reef.store.contract import Store


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("reef").setLevel(logging.NOTSET)


class BadWay(MemoryStore):
    """Lets the next `times` answers about a key arrive damaged."""

    key = ""
    times = 0

    def _damages(self, key: str) -> bool:
        struck = key == self.key and self.times > 0
        self.times -= struck
        return struck

    def get(self, key: str) -> Blob:
        found = super().get(key)
        return Blob(_flipped(found.data), found.version) if self._damages(key) else found

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        found = super().get_range(key, start, length)
        return _flipped(found) if self._damages(key) else found


def _flipped(data: memoryview) -> memoryview:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 0x40
    return memoryview(bytes(changed))


def _newest_but_hinted(store: Store) -> tuple[Tree, str]:
    """A tree that must read its newest generation itself: the hint is of the one before."""
    tree = tree_of(store)
    hint = store.get(PLACE + "hint.json").data
    head = tree.register.publish(lambda m: msgspec.structs.replace(m, writer_epoch=77))
    store.put(PLACE + "hint.json", bytes(hint))
    return tree_of(store), PLACE + tree.register.key(head.slot)


def test_a_publication_is_made_from_the_newest_generation_though_it_arrives_damaged() -> None:
    store = BadWay()
    make(store)
    tree, store.key = _newest_but_hinted(store)
    store.times = 1
    head = tree.register.publish(lambda m: msgspec.structs.replace(m, compactor_epoch=5))
    assert store.times == 0
    assert head.manifest.writer_epoch == 77
    assert head.manifest.previous == tree.register.read_generation(head.slot - 1).nonce


def test_what_is_damaged_where_it_lies_is_told_after_all() -> None:
    store = BadWay()
    make(store)
    tree, store.key = _newest_but_hinted(store)
    store.times = 100
    with pytest.raises(Corruption):
        tree.register.read_generation(int(store.key.split("/")[-1].partition(".")[0]))
    assert tree.register.head().manifest.writer_epoch != 77


@pytest.mark.parametrize("apply", [False, True])
def test_a_repair_takes_no_whole_object_away(apply: bool) -> None:
    untouched = BadWay()
    documents = make(untouched)
    keys = [info.key for info in untouched.list(f"{PLACE}segments/")] + [f"{PLACE}hint.json"]
    assert len(keys) > 3
    for key in keys:
        store = BadWay()
        for info in untouched.list(""):
            store.put(info.key, bytes(untouched.get(info.key).data))
        ns = database(store).namespace(NAME, "r")
        store.key, store.times = key, 1
        report = ns.repair(apply=apply)
        assert store.times == 0
        assert not report.actions
        assert not report.quarantined
        assert {row["id"]: row for row in ns.scan().documents()} == documents

"""A small namespace with every kind of object in it, and ways to damage it."""

from __future__ import annotations

from typing import Any

import reef
from reef.documents.database import PREFIX, Database
from reef.lsm.options import Options
from reef.lsm.tree import Tree
from reef.segment import BlockCache
from reef.store import MemoryStore, Store

NAME = "reefs"
PLACE = f"{PREFIX}{NAME}/"
Documents = dict[str | int, dict[str, Any]]


def database(store: Store) -> Database:
    """A database that shares nothing with any other but the store."""
    return reef.connect(store)


def tree_of(store: Store) -> Tree:
    """The namespace's tree, with nothing read of it."""
    found = database(store)
    cache = BlockCache(Options().cache_bytes)
    return Tree(store.below(PLACE), found.environment, Options(), cache, NAME)


def make(store: Store) -> Documents:
    """Several generations, folded and unfolded log, live and superseded segments, an idempotency
    window, loads folded and not. Returns what is to be read."""
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": f"a{n}", "n": n, "text": "first"} for n in range(20)])
    ns.index()
    ns.write(
        upserts=[{"id": f"b{n}", "n": n} for n in range(10)],
        patches=[{"id": "a3", "text": "patched"}],
        deletes=["a5"],
        idempotency_key="one",
    )
    ns.index()
    ns.compact(full=True)
    ns.load([{"id": f"c{n}", "n": n} for n in range(10)])
    ns.write(upserts=[{"id": "a7", "n": 700}], deletes=["b2"], idempotency_key="two")
    ns.index()
    ns.write(upserts=[{"id": "d1", "n": 1}], patches=[{"id": "c4", "text": "patched"}])
    ns.load([{"id": "e1", "n": 1}, {"id": "a9", "n": 900}])
    ns.write(patches=[{"id": "e1", "text": "late"}], idempotency_key="three")
    ns.write(upserts=[{"id": "z", "n": 26}])
    ns.close()
    return contents(store)


def contents(store: Store) -> Documents:
    """What a reader sees."""
    with database(store).namespace(NAME, "r") as ns:
        return {document["id"]: document for document in ns.scan().documents()}


def objects(store: Store) -> dict[str, bytes]:
    """Every object of the bucket."""
    return {info.key: bytes(store.get(info.key).data) for info in store.list("")}


def copied(content: dict[str, bytes]) -> MemoryStore:
    """A bucket with these objects."""
    store = MemoryStore()
    for key, data in content.items():
        store.put(key, data)
    return store


def damage(store: Store, key: str, how: str) -> None:
    """Flip a byte in the middle, cut the object in half, or remove it."""
    if how == "remove":
        store.delete(key)
        return
    data = bytearray(store.get(key).data)
    if how == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0x20
    store.put(key, bytes(data))


def keys_of(store: Store, folder: str) -> list[str]:
    """The keys of one folder of the namespace."""
    return [info.key for info in store.list(PLACE + folder)]

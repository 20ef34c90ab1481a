"""Work done by many comes out as work done by one: folds, compactions, rebuilds, verification."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

import reef
from reef.documents.database import PREFIX
from reef.environment import SYSTEM
from reef.errors import ConcurrentPublication
from reef.lsm.read.view import runs_of
from reef.lsm.repair.rebuild import rebuild
from reef.lsm.repair.verify import verify
from reef.lsm.tree import Tree
from reef.lsm.upkeep.compact import compact
from reef.lsm.upkeep.fold import fold_from_log
from reef.lsm.write.idempotency import KEYS_SCHEMA
from reef.lsm.write.upload import upload_segments
from reef.manifest import Manifest, Superseded
from reef.segment import BlockCache
from reef.store import Store
from reef.store.memory import MemoryStore

OPTIONS = reef.Options(segment_bytes=64 * 1024, fold_bytes=10 * 1024 * 1024)


def tree_of(store: Store, name: str = "n") -> Tree:
    return Tree(store.below(f"{PREFIX}{name}/"), SYSTEM, OPTIONS, BlockCache(1 << 20), name)


class Several:
    """An executor whose members share nothing: parts and results travel as bytes."""

    def __init__(self, store: Store, size: int, before: Callable[[int], None] | None = None):
        self.size = size
        self.parts = 0
        self._store = store
        self._before = before or (lambda number: None)

    def __call__(self, work: Any, parts: Sequence[Any], what: str) -> list[Any]:
        self.parts = max(self.parts, len(parts))
        results = []
        for number, part in enumerate(parts):
            self._before(number)
            sent = pickle.loads(pickle.dumps((work, part)))
            results.append(pickle.loads(pickle.dumps(sent[0](tree_of(self._store), sent[1]))))
        return results


def documents(numbers: Sequence[int], integer_ids: bool, version: int) -> list[dict[str, Any]]:
    # Noise, so that there are bytes enough for several parts.
    noise = random.Random(version)
    return [
        {
            "id": number if integer_ids else f"id-{number:06d}",
            "n": number,
            "version": version,
            "text": noise.randbytes(600).hex(),
        }
        for number in numbers
    ]


def filled(store: Store, integer_ids: bool, *, folded: bool) -> dict[str | int, dict[str, Any]]:
    """A namespace with overlapping runs and, unless all is folded, everything in the log too."""
    database = reef.connect(store, options=OPTIONS)
    with database.namespace("n", maintain=False) as ns:
        everything = range(6000)
        ns.write(upserts=documents(everything[::2], integer_ids, 1))
        ns.index()
        ns.load(documents(everything[::3], integer_ids, 2))
        some = [row["id"] for row in documents(everything[5::7], integer_ids, 0)]
        ns.write(deletes=some)
        ns.index()
        ns.write(upserts=documents(everything[1::2], integer_ids, 3), idempotency_key="once")
        ns.write(patches=[{"id": id, "version": 4} for id in some[::2]])
        ns.write(
            patches=[{"id": row["id"], "version": 5, "extra": True}
                     for row in documents(everything[::5], integer_ids, 0)]
        )  # fmt: skip
        ns.write(deletes=[row["id"] for row in documents(everything[::11], integer_ids, 0)])
        if folded:
            while ns.index():
                pass
        return {row["id"]: row for row in ns.scan().documents()}


def contents(store: Store) -> dict[str | int, dict[str, Any]]:
    with reef.connect(store, options=OPTIONS).namespace("n", "r") as ns:
        return {row["id"]: row for row in ns.scan().documents()}


@pytest.mark.parametrize("integer_ids", [False, True], ids=["strings", "integers"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_fold(integer_ids: bool, size: int) -> None:
    store = MemoryStore(SYSTEM)
    expected = filled(store, integer_ids, folded=False)
    executor = Several(store, size)
    folded = fold_from_log(tree_of(store), executor=executor)
    assert folded is not None
    assert executor.parts == size
    assert fold_from_log(tree_of(store), executor=executor) is None
    assert contents(store) == expected
    manifest = tree_of(store).register.head().manifest
    fresh = [info for info in manifest.segments if info.birth == folded.generation - 1]
    assert len({info.run for info in fresh}) == 1
    assert verify(tree_of(store), deep=True).sound
    with reef.connect(store).namespace("n") as ns:
        again = ns.write(upserts=[{"id": 1 if integer_ids else "x"}], idempotency_key="once")
        assert again.upserted == 3000


@pytest.mark.parametrize("integer_ids", [False, True], ids=["strings", "integers"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_compact(integer_ids: bool, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.lsm.upkeep.rewrite._SMALLEST_PART", 1)
    store = MemoryStore(SYSTEM)
    expected = filled(store, integer_ids, folded=True)
    executor = Several(store, size)
    done = compact(tree_of(store), full=True, executor=executor)
    assert done is not None
    assert done.rows == len(expected)
    assert executor.parts == size
    assert contents(store) == expected
    manifest = tree_of(store).register.head().manifest
    assert len({info.run for info in manifest.segments}) == 1
    assert sum(info.tombstones for info in manifest.segments) == 0
    assert verify(tree_of(store), deep=True, executor=executor).sound


@pytest.mark.parametrize("size", [1, 3])
def test_rebuild(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.lsm.upkeep.rewrite._SMALLEST_PART", 1)
    store = MemoryStore(SYSTEM)
    expected = filled(store, False, folded=False)
    executor = Several(store, size)
    rebuilt = rebuild(tree_of(store), executor=executor)
    assert rebuilt.rows == len(expected)
    assert contents(store) == expected
    assert verify(tree_of(store), deep=True, executor=executor).sound


def test_verify_names_the_same_problems() -> None:
    store = MemoryStore(SYSTEM)
    filled(store, False, folded=True)
    below = store.below(f"{PREFIX}n/")
    key = next(iter(below.list("segments/"))).key
    data = bytearray(below.get(key).data)
    data[len(data) // 3] ^= 1
    below.put(key, bytes(data))
    alone = verify(tree_of(store), deep=True)
    assert not alone.sound
    assert verify(tree_of(store), deep=True, executor=Several(store, 3)) == alone


def test_an_executor_that_is_overtaken_publishes_nothing() -> None:
    store = MemoryStore(SYSTEM)
    expected = filled(store, False, folded=False)

    def overtake(number: int) -> None:
        if number == 1:
            assert fold_from_log(tree_of(store))

    with pytest.raises(ConcurrentPublication):
        fold_from_log(tree_of(store), executor=Several(store, 2, overtake))
    assert contents(store) == expected


@pytest.mark.parametrize("keyed", [False, True], ids=["without keys", "with keys"])
def test_a_fold_does_not_bring_back_a_window_that_a_rebuild_replaced(keyed: bool) -> None:
    store = MemoryStore(SYSTEM)
    database = reef.connect(store, options=OPTIONS)
    with database.namespace("n", maintain=False) as ns:
        ns.write(upserts=[{"id": "a"}], idempotency_key="first")
        ns.index()
        ns.write(upserts=[{"id": "b"}], idempotency_key="second" if keyed else None)

    folding = Several(store, 1)
    rebuilt: list[object] = []

    def work(*arguments: Any) -> list[Any]:
        # The part is written out of the old state; the rebuild publishes before the fold does.
        found = folding(*arguments)
        if not rebuilt:
            rebuilt.append(rebuild_segments(store))
        return found

    class Slow:
        size = 1
        __call__ = staticmethod(work)

    if keyed:
        with pytest.raises(ConcurrentPublication):
            fold_from_log(tree_of(store), executor=Slow())
    assert fold_from_log(tree_of(store), executor=Slow())
    manifest = tree_of(store).register.head().manifest
    superseded = {gone.key for gone in manifest.superseded}
    assert not superseded & {info.key for info in (*manifest.segments, *manifest.window)}
    with reef.connect(store).namespace("n") as ns:
        assert ns.write(upserts=[{"id": "x"}], idempotency_key="first").lsn == 2
        assert sorted(row["id"] for row in ns.scan().documents()) == ["a", "b"]


def rebuild_segments(store: Store) -> object:
    """Make the segments and the window anew, of what is folded already."""
    tree = tree_of(store)
    head = tree.register.head().manifest
    fresh = upload_segments(
        [batch for run in runs_of(head.window, tree.reader_of) for batch in run.rows()],
        KEYS_SCHEMA,
        store=tree.store,
        environment=tree.environment,
        birth=head.generation,
        level=0,
        target_bytes=1 << 20,
    )

    def edit(newest: Manifest) -> Manifest:
        return msgspec.structs.replace(
            newest,
            window=tuple(fresh),
            superseded=(
                *newest.superseded,
                *(Superseded(info.key, newest.generation) for info in newest.window),
            ),
        )

    return tree.register.publish(edit)

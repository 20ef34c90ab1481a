"""How many requests a call may make of the store."""

from __future__ import annotations

import random

import pytest

from reef import Options
from reef.documents import Database, Namespace
from reef.environment import Environment
from reef.store import CountingStore, MemoryStore
from reef.store.counting import Counts

ROWS = 20_000


def database(store: CountingStore, **options: int | float) -> Database:
    return Database(store, Options(**options), Environment())  # type: ignore[arg-type]


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture(scope="module")
def folded() -> MemoryStore:
    """A namespace of two runs, each larger than what is read whole."""
    store = MemoryStore()
    ns = Database(store, Options(), Environment()).namespace("n", maintain=False)
    noise = random.Random(0)
    for part in range(2):
        ns.write(
            upserts=[
                {"id": f"{row:06}", "noise": noise.randbytes(100)} for row in range(part, ROWS, 2)
            ]
        )
        ns.index()
    return store


def spent(store: CountingStore, before: Counts) -> Counts:
    return store.counts() - before


def test_a_commit_is_one_put(store: CountingStore) -> None:
    ns = database(store).namespace("n", maintain=False)
    for batch in (
        {"upserts": [{"id": "a", "n": 1}]},
        {"patches": [{"id": "a", "n": 2}], "idempotency_key": "k"},
        {"deletes": ["a"]},
        {"upserts": [{"id": f"{n}"} for n in range(1000)]},
    ):
        before = store.counts()
        ns.write(**batch)
        cost = spent(store, before)
        assert (cost.create, cost.requests) == (1, 1)
    before = store.counts()
    ns.write(patches=[{"id": "nobody", "n": 2}])
    assert spent(store, before).requests == 0


def test_reading_what_is_unfolded_asks_nothing(store: CountingStore) -> None:
    ns = database(store).namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    before = store.counts()
    ns.get("a")
    ns.get_many(["a", "b"])
    list(ns.scan().documents())
    assert spent(store, before).requests == 0


def reader_of(folded: MemoryStore, **options: int | float) -> tuple[Namespace, CountingStore]:
    store = CountingStore(folded)
    return database(store, **options).namespace("n", "r"), store


def test_opening_for_reading(folded: MemoryStore) -> None:
    _, store = reader_of(folded)
    assert store.counts().requests <= 4
    assert store.counts().writes == 0


def test_opening_costs_the_same_after_many_generations(store: CountingStore) -> None:
    ns = database(store).namespace("n", maintain=False)
    for number in range(30):
        ns.write(upserts=[{"id": f"{number}"}])
        ns.index()
    before = store.counts()
    database(store).namespace("n", "r")
    assert spent(store, before).requests <= 4


def test_a_cold_point_read(folded: MemoryStore) -> None:
    """Each run that may hold the id costs its tail once; the row costs one more."""
    ns, store = reader_of(folded, staleness=1e9)
    before = store.counts()
    assert ns.get("000001") is not None
    assert spent(store, before).requests <= 2
    before = store.counts()
    assert ns.get("000001") is not None
    assert spent(store, before).requests == 0
    assert ns.get("000000") is not None
    before = store.counts()
    assert ns.get("019999") is not None
    assert spent(store, before).requests == 1


def test_an_id_outside_every_range_asks_nothing(folded: MemoryStore) -> None:
    ns, store = reader_of(folded, staleness=1e9)
    before = store.counts()
    assert ns.get("zzz") is None
    assert spent(store, before).requests == 0


def test_get_many_takes_two_rounds(folded: MemoryStore) -> None:
    class Rounds(CountingStore):
        """Counts how often requests are made one after the other."""

    store = Rounds(folded)
    ns = database(store, staleness=1e9).namespace("n", "r")
    rounds: list[int] = []
    view = ns._tree.view
    together = view._concurrently
    view._concurrently = lambda calls: (rounds.append(len(calls)), together(calls))[1]  # type: ignore[method-assign,assignment]
    before = store.counts()
    ids = [f"{row:06}" for row in range(0, ROWS, 1999)]
    assert None not in ns.get_many(ids)
    inside = [count for count in rounds if count]
    assert len(inside) == 2
    assert inside[0] == 2
    assert spent(store, before).requests == sum(inside)


def test_a_refresh_without_changes(folded: MemoryStore) -> None:
    ns, store = reader_of(folded)
    before = store.counts()
    ns.refresh()
    assert spent(store, before).requests <= 3
    assert spent(store, before).writes == 0


def test_idle_asks_nothing(store: CountingStore) -> None:
    with database(store).namespace("n") as ns:
        ns.write(upserts=[{"id": "a"}])
        before = store.counts()
        ns._upkeep.folding.wake()  # type: ignore[union-attr]
        ns._upkeep.folding.wait_for_pass(0.1)  # type: ignore[union-attr]
        # A pass that is asked for looks at the root, and at nothing else.
        assert spent(store, before).requests <= 2
        before = store.counts()
        ns._upkeep.folding.wait_for_pass(0.05)  # type: ignore[union-attr]
        assert spent(store, before).requests == 0


def test_a_collection_that_is_not_applied_writes_nothing(folded: MemoryStore) -> None:
    ns, store = reader_of(folded)
    before = store.counts()
    ns.gc()
    cost = spent(store, before)
    assert (cost.writes, cost.delete) == (0, 0)
    # One of them asks whether anything is pinned.
    assert cost.requests <= 9


def test_replay_reads_each_object_once(store: CountingStore) -> None:
    ns = database(store).namespace("n", maintain=False)
    for number in range(20):
        ns.write(upserts=[{"id": f"{number}"}])
    before = store.counts()
    database(store).namespace("n", "r")
    assert spent(store, before).get == 1 + 21

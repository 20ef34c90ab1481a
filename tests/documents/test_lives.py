"""A name's life: dropped, created again, and whoever is left over from before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

import reef
from reef.documents import Database, Namespace
from reef.log import WAL
from reef.lsm.repair.rebuild import rebuild
from reef.lsm.repair.repair import repair
from reef.lsm.repair.verify import verify
from reef.lsm.write.drop import finish_drop
from reef.manifest import MANIFESTS
from reef.store import CountingStore, MemoryStore, Store
from support.faults import Clock, Crash, FaultyStore, mutating, request

NAME = "n"
PLACE = f"namespaces/{NAME}/"
DROPPED = "there is no namespace 'n': it was dropped"


def database(store: Store, clock: Clock | None = None) -> Database:
    return reef.connect(store, environment=clock.environment() if clock else reef.Environment())


def writer(store: Store, clock: Clock | None = None, **more: Any) -> Namespace:
    return database(store, clock).namespace(NAME, maintain=False, **more)


def fill(store: Store, clock: Clock | None = None) -> Namespace:
    """A namespace with rows in segments, in a load and in the log; the handle of its writer."""
    ns = writer(store, clock)
    ns.write(upserts=[{"id": "a", "n": 1}])
    ns.index()
    ns.load([{"id": "b", "n": 2}], idempotency_key="k")
    ns.write(upserts=[{"id": "c", "n": 3}])
    return ns


def ids(ns: Any) -> list[str]:
    return [row["id"] for row in ns.scan().documents()]


def tree_of(store: Store) -> Any:
    return database(store)._tree(NAME)


def test_a_dropped_namespace_is_not_there_for_anybody(store: Store) -> None:
    ns = fill(store)
    reader = database(store).namespace(NAME, "r")
    database(store).namespace("other").close()
    fresh = database(store)
    fresh.drop(NAME)
    assert fresh.namespaces() == ["other"]
    assert not fresh.exists(NAME)
    tree = tree_of(store)
    for call in (
        lambda: fresh.namespace(NAME, "r"),
        lambda: fresh.namespace(NAME, create=False),
        lambda: fresh.drop(NAME),
        lambda: reader.refresh(),
        lambda: ns.write(upserts=[{"id": "d"}]),
        lambda: ns.load([{"id": "d"}]),
        lambda: reader.load([{"id": "d"}]),
        lambda: ns.snapshot(),
        lambda: ns.index(),
        lambda: ns.compact(),
        lambda: ns.at(lsn=2),
        lambda: ns.at(generation=2),
        lambda: list(reader.changes()),
        lambda: verify(tree),
        lambda: repair(tree, apply=True),
        lambda: rebuild(tree),
    ):
        with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
            call()
    with pytest.raises(reef.Fenced):
        ns.write(upserts=[{"id": "d"}])


def test_created_again_everything_goes_on_rising(store: Store) -> None:
    with fill(store) as ns:
        lsn, generation = ns.lsn, ns.generation
        epoch = ns.status().writer_epoch
    again = database(store)
    again.drop(NAME)
    settings = reef.Settings(retention=60, grace=30)
    again.create(NAME, schema={"id": "uint64", "m": "string"}, settings=settings)
    with pytest.raises(reef.NamespaceExists):
        again.create(NAME)
    with again.namespace(NAME, maintain=False) as ns:
        assert again.namespaces() == [NAME]
        assert (ids(ns), ns.schema.id_kind, set(ns.schema.attributes)) == ([], "uint64", {"m"})
        assert ns.lsn > lsn + 1
        assert ns.generation > generation + 1
        assert ns.status().writer_epoch > epoch
        assert (ns.status().retention, ns.status().grace) == (60, 30)
        # Neither ids nor keys of the former life are known.
        assert ns.load([{"id": 7, "m": "x"}], idempotency_key="k").upserted == 1
        ns.write(upserts=[{"id": 8, "m": "y"}], condition=reef.if_absent())
        ns.index()
        assert ns.compact(full=True) is not None
        assert ns.verify(deep=True).sound
        assert ids(database(store).namespace(NAME, "r")) == [7, 8]
    for _ in range(3):
        again.drop(NAME)
        again.create(NAME)
    assert ids(database(store).namespace(NAME, "r")) == []


def test_no_row_of_a_former_life_is_history(store: Store) -> None:
    with fill(store) as ns:
        lsn, generation = ns.lsn, ns.generation
        moment = datetime.now(UTC)
    db = database(store)
    db.drop(NAME)
    with db.namespace(NAME, maintain=False) as ns:
        first = ns.lsn
        ns.write(upserts=[{"id": "new"}])
        ns.index()
        ns.write(upserts=[{"id": "newer"}])
        for call in (
            lambda: ns.at(lsn=lsn),
            lambda: ns.at(lsn=1),
            lambda: ns.at(generation=generation),
            lambda: ns.at(time=moment),
            lambda: list(ns.changes(after=lsn)),
            lambda: list(ns.changes(after=1)),
        ):
            with pytest.raises(reef.PastRetention):
                call()
        # From the beginning means that of this life.
        assert [change.id for change in ns.changes()] == ["new", "newer"]
        assert ids(ns.at(lsn=first)) == []
        assert ids(ns.at(lsn=first + 1)) == ["new"]
        assert ids(ns.at(generation=ns.generation)) == ["new"]


def test_handles_of_a_former_life_never_show_the_next_one(store: Store) -> None:
    ns = fill(store)
    reader = database(store).namespace(NAME, "r")
    held = reader.snapshot()
    db = database(store)
    db.drop(NAME)
    with db.namespace(NAME, maintain=False) as new:
        new.write(upserts=[{"id": "new"}])
        for call in (
            reader.refresh,
            lambda: list(reader.changes()),
            lambda: reader.at(generation=1),
            lambda: ns.write(upserts=[{"id": "d"}]),
            lambda: ns.load([{"id": "d"}]),
            lambda: reader.load([{"id": "d"}]),
            lambda: ns.index(),
        ):
            with pytest.raises(reef.NamespaceNotFound, match="no namespace 'n': it was dropped"):
                call()
        # A snapshot of the former life reads on, as long as it is retained.
        assert ids(held) == ["a", "b", "c"]
        new.write(upserts=[{"id": "newer"}])
        assert ids(new) == ids(database(store).namespace(NAME, "r")) == ["new", "newer"]


def test_a_writer_that_outlived_its_namespace_wins_nothing() -> None:
    """The old writer is alive, its slots are dropped, collected, and free to be won."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    old = fill(store, clock)
    db = database(store, clock)
    db.drop(NAME)
    new = writer(store, clock)
    new.write(upserts=[{"id": "new"}])
    clock.advance(10_000)
    new.index()
    new.gc(apply=True)
    clock.advance(10_000)
    new.gc(apply=True)
    assert [key for key in keys(store, "wal/") if key < PLACE + WAL.key(new.lsn)] == []
    with pytest.raises(reef.Fenced):
        old.write(upserts=[{"id": "old"}])
    assert ids(database(store, clock).namespace(NAME, "r")) == ["new"]
    assert new.write(upserts=[{"id": "newer"}]).upserted == 1


def keys(store: Store, folder: str = "") -> list[str]:
    return [info.key for info in store.list(PLACE + folder)]


def test_what_was_dropped_is_collected_in_time() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    fill(store, clock)
    db = database(store, clock)
    db.namespace("live", maintain=False).write(upserts=[{"id": "x"}])
    db.drop(NAME)
    before = set(keys(store))
    collected = db.gc_dropped(apply=True)
    assert list(collected) == [NAME]
    assert collected[NAME].deleted == 0
    assert before <= set(keys(store))
    clock.advance(3_601)
    assert db.gc_dropped()[NAME].deleted == 0
    assert db.gc_dropped(apply=True)[NAME].deleted > 4
    clock.advance(3_601)
    db.gc_dropped(apply=True)
    newest = keys(store, "manifest/")[-1]
    assert not keys(store, "wal/") + keys(store, "segments/")
    assert len(keys(store, "manifest/")) <= 2
    # It is remembered all the same, and the next one goes on from there.
    assert not db.exists(NAME)
    with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
        db.namespace(NAME, "r")
    with db.namespace(NAME, maintain=False) as ns:
        assert PLACE + MANIFESTS.key(ns.generation) > newest
        assert ns.write(upserts=[{"id": "x"}]).lsn > 5
        assert ns.verify(deep=True).sound
    assert db.gc_dropped(apply=True) == {}


def test_a_snapshot_of_a_former_life_is_kept_until_it_lapses() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    with fill(store, clock) as ns:
        ns.snapshot(seconds=50_000)._renewal.stop()
    db = database(store, clock)
    db.drop(NAME)
    held = keys(store, "segments/")
    clock.advance(20_000)
    db.gc_dropped(apply=True)
    assert keys(store, "segments/") == held
    clock.advance(40_000)
    db.gc_dropped(apply=True)
    assert keys(store, "segments/") == []


def test_a_shorter_grace_does_not_shorten_that_of_a_former_life() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    old = fill(store, clock)
    db = database(store, clock)
    db.drop(NAME)
    db.create(NAME, settings=reef.Settings(retention=0, grace=0))
    new = writer(store, clock)
    new.write(upserts=[{"id": "new"}])
    clock.advance(10)
    new.index()
    new.gc(apply=True)
    # The old writer looked at the root ten seconds ago, and need not look again for twenty more.
    with pytest.raises(reef.Fenced):
        old.write(upserts=[{"id": "old"}])
    clock.advance(1_000)
    new.gc(apply=True)
    assert len(keys(store, "segments/")) == 1


def test_nothing_is_left_where_an_older_version_dropped_it() -> None:
    store = MemoryStore()
    fill(store)
    for key in keys(store):
        store.delete(key)
    with writer(store) as ns:
        assert (ns.generation, ns.lsn) == (2, 1)


def test_listing_many_names_costs_two_listings() -> None:
    store = CountingStore(MemoryStore())
    db = database(store)
    names = [f"n{number:03d}" for number in range(40)]
    for name in names:
        db.create(name)
    for name in names[:20]:
        db.drop(name)
    for name in names[:10]:
        db.create(name)
    before = store.counts()
    assert db.namespaces() == names[:10] + names[20:]
    cost = store.counts() - before
    assert (cost.list, cost.requests) == (2, 2)
    # However often a name is dropped and created, one marker decides.
    for _ in range(3):
        db.drop(names[0])
        db.create(names[0])
    assert len(list(store.list("names/"))) == 20


def test_a_damaged_namespace_can_be_dropped(memory_store: MemoryStore) -> None:
    old = fill(memory_store)
    key = PLACE + WAL.key(3)
    memory_store.put(key, b"damaged")
    database(memory_store).drop(NAME)
    with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
        database(memory_store).namespace(NAME, "r")
    with pytest.raises(reef.Fenced):
        old.write(upserts=[{"id": "old"}])
    with writer(memory_store) as ns:
        assert ids(ns) == []
        assert ns.write(upserts=[{"id": "new"}]).lsn > old.lsn
        assert ns.verify().sound


def test_a_namespace_without_manifests_can_be_dropped(memory_store: MemoryStore) -> None:
    old = fill(memory_store)
    for key in (*keys(memory_store, "manifest/"), f"{PLACE}hint.json"):
        memory_store.delete(key)
    database(memory_store).drop(NAME)
    with pytest.raises(reef.Fenced):
        old.write(upserts=[{"id": "old"}])
    with writer(memory_store) as ns:
        assert ids(ns) == []
        ns.write(upserts=[{"id": "new"}])
        assert ns.verify().sound
    with pytest.raises(reef.NamespaceNotFound):
        database(memory_store).drop("never")


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_drop_is_not_forgotten_with_its_manifest(memory_store: MemoryStore, damage: str) -> None:
    fill(memory_store)
    database(memory_store).drop(NAME)
    newest = keys(memory_store, "manifest/")[-1]
    for hint in (False, True):
        if damage == "gone":
            memory_store.delete(newest)
        else:
            memory_store.put(newest, b"{")
        if hint:
            memory_store.delete(f"{PLACE}hint.json")
        with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
            database(memory_store).namespace(NAME, "r")
        with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
            rebuild(tree_of(memory_store))


def test_rebuilding_a_namespace_leaves_its_former_life_out(memory_store: MemoryStore) -> None:
    fill(memory_store)
    database(memory_store).drop(NAME)
    with writer(memory_store) as ns:
        ns.write(upserts=[{"id": "new", "n": 9}])
        ns.index()
        ns.write(upserts=[{"id": "newer"}])
    for key in (*keys(memory_store, "manifest/"), f"{PLACE}hint.json"):
        memory_store.delete(key)
    rebuild(tree_of(memory_store), name=NAME)
    assert ids(database(memory_store).namespace(NAME, "r")) == ["new", "newer"]


# What may happen at each request


def settled(store: Store, expected: list[str]) -> bool:
    """Whether the namespace is still there, with everything that was in it. Otherwise it is gone
    for everybody, and a new one can be made."""
    db = database(store)
    try:
        with db.namespace(NAME, "r") as reader:
            assert ids(reader) == expected
            assert reader.verify(deep=True).sound
        assert db.exists(NAME)
        assert NAME in db.namespaces()
        with pytest.raises(reef.NamespaceExists):
            db.create(NAME)
        there = True
    except reef.NamespaceNotFound:
        there = False
        assert not db.exists(NAME)
    if there:
        db.drop(NAME)
    db.gc_dropped(apply=True)
    assert NAME not in db.namespaces()
    for _ in range(2):
        with writer(store) as ns:
            assert ids(ns) == []
            ns.write(upserts=[{"id": "z"}])
            assert ids(database(store).namespace(NAME, "r")) == ["z"]
            assert ns.verify(deep=True).sound
        assert NAME in db.namespaces()
        db.drop(NAME)
    return there


def anything(kind: str, key: str) -> bool:
    return True


def requests_of(make: Callable[[Store], Any], act: Callable[[Store], Any]) -> int:
    """How many requests of any kind it takes."""
    store = MemoryStore()
    make(store)
    seen = 0

    def count(kind: str, key: str) -> bool:
        nonlocal seen
        seen += 1
        return False

    faulty = FaultyStore(store)
    faulty.crash_before(count)
    act(faulty)
    return seen


def dropped(store: Store) -> None:
    fill(store)
    database(store).drop(NAME)


def half_dropped(store: Store) -> None:
    """The log says that it was dropped, the root does not."""
    fill(store)
    faulty = FaultyStore(store)
    faulty.crash_after(request("create", "wal/"))
    with pytest.raises(Crash):
        database(faulty).drop(NAME)


def drop(store: Store) -> None:
    database(store).drop(NAME)


def create(store: Store) -> None:
    database(store).create(NAME)


STEPS = [(fill, drop), (dropped, create), (half_dropped, create)]
FAULTS = ["crash_before", "crash_after", "refuse", "lose_answer", "duplicate"]


@pytest.mark.parametrize(("make", "act"), STEPS, ids=["drop", "create", "complete"])
@pytest.mark.parametrize("fault", FAULTS)
def test_any_request_may_fail(
    make: Callable[[Store], Any], act: Callable[[Store], Any], fault: str
) -> None:
    states = set()
    for nth in range(1, requests_of(make, act) + 1):
        store = MemoryStore()
        make(store)
        was_there = database(store).exists(NAME)
        faulty = FaultyStore(store)
        getattr(faulty, fault)(anything, nth)
        try:
            act(faulty)
            done = True
        except (Crash, reef.ReefError):
            done = False
        there = settled(store, ["a", "b", "c"] if was_there else [])
        states.add(there)
        if done:
            assert there == (act is create), (fault, nth)
    if fault.startswith("crash"):
        assert states == {True, False}


def write_as_old(store: Store, old: Namespace, done: list[str]) -> None:
    try:
        old.write(upserts=[{"id": f"w{len(done)}"}])
    except (reef.Fenced, reef.NamespaceNotFound):
        return
    done.append(f"w{len(done)}")


def load_as_guest(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).namespace(NAME, "r").load([{"id": f"g{len(done)}"}])
    done.append(f"g{len(done)}")


def fold(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).namespace(NAME, "r").index()


def fold_as_old(store: Store, old: Namespace, done: list[str]) -> None:
    old.index()


def compact(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).namespace(NAME, "r").compact(full=True)


def collect(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).namespace(NAME, "r").gc(apply=True)


def collect_dropped(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).gc_dropped(apply=True)


def take_over(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).namespace(NAME, create=False, maintain=False)


def drop_too(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).drop(NAME)


def create_too(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).create(NAME)


def drop_and_create(store: Store, old: Namespace, done: list[str]) -> None:
    database(store).drop(NAME)
    database(store).create(NAME)


EXPECTED = (
    reef.NamespaceNotFound,
    reef.NamespaceExists,
    reef.ConcurrentPublication,
    reef.Fenced,
)
OTHERS = [
    *(write_as_old, load_as_guest, fold, fold_as_old, compact, collect, collect_dropped),
    *(take_over, drop_too, create_too, drop_and_create),
]


@pytest.mark.parametrize("other", OTHERS, ids=[other.__name__ for other in OTHERS])
@pytest.mark.parametrize("act", [drop, create], ids=["drop", "create"])
def test_anybody_may_come_between(
    act: Callable[[Store], Any], other: Callable[[Store, Namespace, list[str]], None]
) -> None:
    """Another program runs as a whole before each request of a drop, or of a creation."""
    make = fill if act is drop else dropped
    for nth in range(1, requests_of(make, act) + 2):
        store = MemoryStore()
        old = fill(store)
        if act is create:
            database(store).drop(NAME)
        done: list[str] = []

        def between(store: Store = store, old: Namespace = old, done: list[str] = done) -> None:
            with suppress(*EXPECTED):
                other(store, old, done)

        faulty = FaultyStore(store)
        faulty.pause_before(anything, between, nth)
        try:
            act(faulty)
            ended = act is drop
        except (reef.NamespaceNotFound, reef.NamespaceExists):
            ended = False
        # Whoever writes to the former life is told, whatever became of the name.
        if act is create or ended:
            with pytest.raises(reef.Fenced):
                old.write(upserts=[{"id": "late"}])
        former = [] if act is create or "create" in other.__name__ else ["a", "b", "c"]
        expected = [*former, *done]
        there = settled(store, expected)
        if ended and "create" not in other.__name__:
            assert not there, nth


@pytest.mark.parametrize("at", ["upload", "append"])
def test_a_load_does_not_outlive_its_namespace(at: str) -> None:
    """Its segments are on their way when the name is dropped and taken by another."""
    store = MemoryStore()
    fill(store).close()
    faulty = FaultyStore(store)
    match = request("put", "segments/") if at == "upload" else request("create", "wal/")

    def replace() -> None:
        database(store).drop(NAME)
        database(store).create(NAME)

    faulty.pause_before(match, replace)
    with pytest.raises(reef.NamespaceNotFound):
        database(faulty).namespace(NAME, "r").load([{"id": "old"}])
    assert ids(database(store).namespace(NAME, "r")) == []


def test_a_drop_is_finished_by_whoever_comes_next() -> None:
    store = MemoryStore()
    half_dropped(store)
    before = keys(store, "manifest/")
    db = database(store)
    # Readers see it, and change nothing.
    with pytest.raises(reef.NamespaceNotFound, match=DROPPED):
        db.namespace(NAME, "r")
    assert not db.exists(NAME)
    assert keys(store, "manifest/") == before
    assert db.namespaces() == [NAME]
    assert list(db.gc_dropped(apply=True)) == [NAME]
    assert db.namespaces() == []
    assert finish_drop(tree_of(store)) is not None


def test_a_writer_calls_off_a_drop_that_never_came_to_be() -> None:
    store = MemoryStore()
    fill(store)
    faulty = FaultyStore(store)
    faulty.crash_before(request("create", "wal/"))
    with pytest.raises(Crash):
        drop(faulty)
    tree = tree_of(store)
    assert tree.register.head().manifest.dropping
    assert database(store).exists(NAME)
    with writer(store) as ns:
        assert ids(ns) == ["a", "b", "c"]
    assert not tree.register.head().manifest.dropping
    assert tree.register.head().manifest.format == 1


def test_mutating_requests_of_a_drop() -> None:
    store = MemoryStore()
    fill(store)
    faulty = FaultyStore(store)
    faulty.crash_before(mutating, nth=1_000)
    drop(faulty)
    folders = [key.removeprefix(PLACE).split("/")[0] for _, key in faulty.requests]
    publication = ["manifest", "hint.json"]
    assert folders == ["names", *publication, "wal", *publication, "names", "names"]

"""The register: one winner a generation, no lost update, and the newest is found."""

from __future__ import annotations

from threading import Thread

import msgspec
import pytest

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    CommitUncertain,
    ConcurrentPublication,
    Corruption,
    NamespaceNotFound,
)
from reef.manifest import MANIFESTS, Manifest, Register, Settings, manifest_register
from reef.manifest.manifests import HINT
from reef.store import CountingStore, MemoryStore, Store
from support.faults import Clock, FaultyStore, request


def register_of(store: Store, name: str = "p", clock: Clock | None = None) -> Register[Manifest]:
    return manifest_register(store, clock.environment() if clock else Environment(), name)


def first(name: str = "p", **more: object) -> Manifest:
    return Manifest(1, "n", 0.0, name, "first", **more)  # type: ignore[arg-type]


def bump(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, writer_epoch=manifest.writer_epoch + 1)


def test_nothing_is_not_found(store: Store) -> None:
    with pytest.raises(NamespaceNotFound):
        register_of(store).head()


def test_created_once(store: Store) -> None:
    register_of(store).create(first())
    with pytest.raises(AlreadyExists):
        register_of(store, "q").create(first("q"))
    assert register_of(store).head().manifest.publisher == "p"


def test_racing_publishers_lose_no_update(store: Store) -> None:
    register_of(store).create(first())
    each = 6

    def publish(number: int) -> None:
        register = register_of(store, f"p{number}")
        for _ in range(each):
            register.publish(bump)

    threads = [Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    head = register_of(store).head()
    assert head.manifest.writer_epoch == 4 * each
    assert head.manifest.generation == head.slot == 1 + 4 * each
    epochs = [register_of(store).read_generation(n).writer_epoch for n in range(1, head.slot + 1)]
    assert epochs == list(range(head.slot))


def test_an_edit_with_nothing_to_do_publishes_nothing() -> None:
    store = MemoryStore()
    register = register_of(store)
    register.create(first())
    assert register.publish(lambda manifest: None).slot == 1
    assert len(register.generations()) == 1


def test_an_edit_that_makes_no_sense_any_more_is_abandoned() -> None:
    store = MemoryStore()
    register = register_of(store)
    head = register.create(first())
    register_of(store, "q").publish(bump)

    def only_from_zero(manifest: Manifest) -> Manifest:
        if manifest.writer_epoch:
            raise ConcurrentPublication("somebody was here")
        return bump(manifest)

    with pytest.raises(ConcurrentPublication):
        register.publish(only_from_zero, head)
    assert register.head().manifest.writer_epoch == 1


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
def test_a_lost_answer_is_one_generation(fault: str) -> None:
    faulty = FaultyStore(MemoryStore())
    register = register_of(faulty, clock=Clock())
    register.create(first())
    getattr(faulty, fault)(request("create", "manifest/"))
    assert register.publish(bump).manifest.writer_epoch == 1
    assert register.head().slot == 2


def test_a_store_that_says_nothing() -> None:
    faulty = FaultyStore(MemoryStore())
    register = register_of(faulty, clock=Clock())
    register.create(first())
    faulty.refuse(request("create", "manifest/"), times=100)
    with pytest.raises(CommitUncertain):
        register.publish(bump)
    assert register.head().slot == 1


def test_a_hint_that_cannot_be_written_is_no_failure() -> None:
    faulty = FaultyStore(MemoryStore())
    register = register_of(faulty, clock=Clock())
    register.create(first())
    faulty.refuse(request("put", HINT), times=100)
    register.publish(bump)
    register.publish(bump)
    assert register.head().manifest.writer_epoch == 2


def test_a_hint_that_goes_back_is_no_failure() -> None:
    store = MemoryStore()
    register = register_of(store)
    register.create(first())
    old = bytes(store.get(HINT).data)
    for _ in range(5):
        register.publish(bump)
    store.put(HINT, old)
    for generation in (1, 2, 3):
        store.delete(MANIFESTS.key(generation))
    assert register.head().slot == 6


def test_finding_the_newest_does_not_list_history() -> None:
    store = CountingStore(MemoryStore())
    register = register_of(store)
    register.create(first())
    for _ in range(50):
        register.publish(bump)
    before = store.counts()
    register.head()
    cost = store.counts() - before
    assert (cost.get, cost.list, cost.requests) == (1, 1, 2)


def test_a_damaged_newest_falls_back_and_its_number_is_not_used_again() -> None:
    store = MemoryStore()
    register = register_of(store)
    register.create(first())
    register.publish(bump)
    register.publish(bump)
    store.delete(HINT)
    store.put(MANIFESTS.key(3), b"damaged")
    head = register.head()
    assert (head.manifest.generation, head.slot) == (2, 3)
    published = register.publish(bump)
    assert (published.manifest.generation, published.manifest.writer_epoch) == (4, 2)
    store.delete(HINT)
    assert register.head().manifest.generation == 4


def test_a_manifest_under_another_number_is_damage() -> None:
    store = MemoryStore()
    register = register_of(store)
    register.create(first())
    store.put(MANIFESTS.key(2), store.get(MANIFESTS.key(1)).data)
    with pytest.raises(Corruption):
        register.read_generation(2)
    assert register.head().manifest.generation == 1


def test_a_publisher_that_slept_is_not_believed() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    sleeper = register_of(store, "sleeper", clock)
    base = sleeper.create(first(settings=Settings(retention=10, grace=10)))
    other = register_of(store, "other", clock)
    for _ in range(4):
        other.publish(bump)
    for generation in (1, 2, 3):
        store.delete(MANIFESTS.key(generation))
    clock.advance(1_000)
    published = sleeper.publish(bump, base)
    # It won number 2, which was collected, and did not stop at that.
    assert (published.manifest.generation, published.manifest.writer_epoch) == (6, 5)
    assert register_of(store, clock=clock).head().manifest.writer_epoch == 5


def test_a_publisher_that_did_not_sleep_asks_nothing_more() -> None:
    clock = Clock()
    store = CountingStore(MemoryStore(clock.environment()))
    register = register_of(store, clock=clock)
    head = register.create(first(settings=Settings(retention=100, grace=100)))
    clock.advance(24)
    before = store.counts()
    register.publish(bump, head)
    cost = store.counts() - before
    assert (cost.create, cost.put, cost.requests) == (1, 1, 2)


def history(store: Store, count: int) -> Register[Manifest]:
    register = register_of(store)
    register.create(first())
    for _ in range(count - 1):
        register.publish(bump)
    return register


def test_a_hint_alone_is_not_believed() -> None:
    store = MemoryStore()
    register = history(store, 3)
    for generation in (1, 2, 3):
        store.delete(MANIFESTS.key(generation))
    with pytest.raises(Corruption, match="only the hint") as lost:
        register.head()
    assert lost.value.key == MANIFESTS.key(3)
    assert register.head(lone_hint=True).manifest.writer_epoch == 2


def test_a_hint_of_a_former_life_is_not_believed() -> None:
    store = MemoryStore()
    history(store, 5)
    late = bytes(store.get(HINT).data)
    for info in list(store.list("")):
        store.delete(info.key)
    register = history(store, 2)
    store.put(HINT, late)
    head = register.head()
    assert (head.manifest.generation, head.manifest.writer_epoch) == (2, 1)
    # Nothing is read through it, and no number that it says was used is used again.
    assert register.publish(bump).manifest.generation == 6


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_the_newest_is_lost_and_nothing_reads_differently(damage: str) -> None:
    store = MemoryStore()
    register = history(store, 4)
    key = MANIFESTS.key(4)
    if damage == "gone":
        store.delete(key)
    else:
        store.put(key, b"{")
    head = register.head()
    assert (head.manifest.generation, head.manifest.writer_epoch, head.slot) == (4, 3, 4)
    assert register.publish(bump).manifest.generation == 5


def test_a_lost_newest_is_not_taken_from_a_hint_that_does_not_follow() -> None:
    store = MemoryStore()
    register = history(store, 4)
    for generation in (3, 4):
        store.delete(MANIFESTS.key(generation))
    head = register.head()
    assert (head.manifest.generation, head.slot) == (2, 4)


def test_whose_manifest_it_is_must_be_right() -> None:
    store = MemoryStore()
    register = history(store, 1)
    mine = manifest_register(store, Environment(), "p", "n")
    other = manifest_register(store, Environment(), "p", "m")
    assert mine.head().manifest == register.head().manifest
    with pytest.raises(Corruption, match="of namespace 'n', and lies in 'm'"):
        other.read_generation(1)
    assert other.read_hint() is None
    with pytest.raises(Corruption):
        other.head()

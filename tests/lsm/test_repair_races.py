"""A repair that names again what a collector is about to delete, in either order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.errors import ConcurrentPublication
from reef.lsm.repair import rebuild, repair
from reef.lsm.write.idempotency import MOST_SEGMENTS
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore, request

PREFIX = "namespaces/n/"
KINDS = ["segments", "window"]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("reef").setLevel(logging.NOTSET)


class Ward:
    """A namespace whose newest segment (or idempotency window) is damaged, and could be put
    together again from older ones that are due for collection."""

    def __init__(self, kind: str) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        writer = self.open()
        for number in range(MOST_SEGMENTS + 1 if kind == "window" else 3):
            writer.write(upserts=[{"id": f"a{number}"}], idempotency_key=f"k{number}")
            if kind == "window" and number == MOST_SEGMENTS:
                self.older = {info.key for info in writer._tree.head.manifest.window}
            writer.index()
        if kind == "segments":
            self.older = {info.key for info in writer._tree.head.manifest.segments}
            writer.compact(full=True)
        # From here on only the log, if anything, names what the last fold took.
        writer.write(upserts=[{"id": "last"}])
        self.count = writer.count()
        (damaged,) = getattr(writer._tree.register.head().manifest, kind)
        data = bytearray(self.store.get(PREFIX + damaged.key).data)
        data[len(data) // 2] ^= 0x20
        self.store.put(PREFIX + damaged.key, bytes(data))
        self.clock.advance(1_000)

    def open(self, mode: str = "w", store: Store | None = None) -> Namespace:
        database = Database(store or self.store, Options(), self.clock.environment())
        settings = Settings(retention=100.0, grace=50.0)
        return database.namespace("n", mode, maintain=False, settings=settings)

    def present(self) -> set[str]:
        found = self.store.list(f"{PREFIX}segments/")
        return {info.key.removeprefix(PREFIX) for info in found} & self.older

    def check(self) -> None:
        fresh = self.open()
        assert fresh.verify(deep=True).sound, fresh.verify(deep=True).problems
        assert fresh.count() == self.count
        for number in range(3):
            again = fresh.write(upserts=[{"id": f"b{number}"}], idempotency_key=f"k{number}")
            assert again.lsn == number + 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_repair_named_before_the_collector_published_stays(kind: str) -> None:
    ward = Ward(kind)
    faulty = FaultyStore(ward.store)

    def mend() -> None:
        done = ward.open("r").repair(apply=True)
        assert (done.lost_ids, done.lost_lsns, done.lost_keys) == ((), (), ())
        named = ward.open("r")._tree.head.manifest
        assert ward.older <= {info.key for info in (*named.segments, *named.window)}

    faulty.pause_before(request("create", "manifest/"), mend)
    collected = ward.open("r", faulty).gc(apply=True)
    assert ward.older <= {doomed.key for doomed in collected.plan.due}
    assert ward.present() == ward.older
    ward.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["before the deletes", "after them"])
def test_what_a_collector_forgot_is_not_named_again(kind: str, where: str) -> None:
    """The repair examined everything before; its publication comes after the collector's."""
    ward = Ward(kind)
    mending, deleting = FaultyStore(ward.store), FaultyStore(ward.store)
    collector = Thread(target=lambda: ward.open("r", deleting).gc(apply=True), daemon=True)
    published, refused = Event(), Event()

    def at_the_deletes() -> None:
        published.set()
        refused.wait()

    def let_it_collect() -> None:
        collector.start()
        if where == "after them":
            collector.join()
        else:
            published.wait()

    if where == "before the deletes":
        deleting.pause_before(request("delete", "segments/"), at_the_deletes)
    mending.pause_before(request("create", "manifest/"), let_it_collect)
    with pytest.raises(ConcurrentPublication, match="collected"):
        ward.open("r", mending).repair(apply=True)
    refused.set()
    collector.join()
    assert ward.present() == set()
    # Without what is gone, a repair does what it can, and says what is lost.
    ward.open("r").repair(apply=True)
    assert ward.open("r").verify(deep=True).sound


@pytest.mark.parametrize("kind", KINDS)
def test_a_repair_that_begins_between_publication_and_deletes_does_without(kind: str) -> None:
    ward = Ward(kind)
    faulty = FaultyStore(ward.store)

    def mend() -> None:
        ward.open("r").repair(apply=True)
        named = ward.open("r")._tree.head.manifest
        assert ward.older.isdisjoint(info.key for info in (*named.segments, *named.window))

    faulty.pause_before(request("delete", "segments/"), mend)
    ward.open("r", faulty).gc(apply=True)
    assert ward.present() == set()
    assert ward.open("r").verify(deep=True).sound


@pytest.mark.parametrize("how", ["repair", "rebuild"])
def test_the_log_that_a_slow_restoration_needs_is_collected(how: str) -> None:
    """Without the log that is gone the state would seem to have been empty."""
    clock = Clock()
    store = MemoryStore(clock.environment())
    settings = Settings(retention=100.0, grace=50.0)

    def opened(store: Store, mode: str = "r") -> Namespace:
        database = Database(store, Options(), clock.environment())
        return database.namespace("n", mode, maintain=False, settings=settings)

    writer = opened(store, "w")
    writer.write(upserts=[{"id": "a"}])
    writer.index()
    (written,) = writer._tree.head.manifest.segments
    data = bytearray(store.get(PREFIX + written.key).data)
    data[len(data) // 2] ^= 0x20
    store.put(PREFIX + written.key, bytes(data))

    def meanwhile() -> None:
        clock.advance(1_000)
        assert opened(store).gc(apply=True).deleted > 0
        assert not list(store.list(f"{PREFIX}wal/"))

    slow = opened(store)
    module = repair if how == "repair" else rebuild
    restored = module.restore
    call = (lambda: slow.repair(apply=True)) if how == "repair" else slow.rebuild

    def restore(*arguments: Any) -> Any:
        meanwhile()
        return restored(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "restore", restore)
        with pytest.raises(ConcurrentPublication):
            call()
    assert [info.key for info in opened(store)._tree.head.manifest.segments] == [written.key]

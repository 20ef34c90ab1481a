"""Collecting: what is retained stays, what is not goes, and nobody is surprised."""

from __future__ import annotations

import pytest

from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore, Store
from support.faults import Clock, Crash, FaultyStore, request

PREFIX = "namespaces/n/"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket(clock: Clock) -> MemoryStore:
    return MemoryStore(clock.environment())


def opened(store: Store, clock: Clock, mode: str = "w", **settings: float) -> Namespace:
    chosen = Settings(**{"retention": 100.0, "grace": 50.0, **settings})  # type: ignore[arg-type]
    return Database(store, Options(), clock.environment()).namespace(
        "n", mode, maintain=False, settings=chosen
    )


def keys(store: Store, folder: str) -> list[str]:
    return [info.key for info in store.list(f"{PREFIX}{folder}/")]


def churn(ns: Namespace, rounds: int = 4) -> None:
    for number in range(rounds):
        ns.write(upserts=[{"id": "a", "n": number}, {"id": f"d{number}"}])
        ns.index()
    ns.compact(full=True)


def test_a_dry_run_deletes_nothing(clock: Clock, bucket: MemoryStore) -> None:
    ns = opened(bucket, clock)
    churn(ns)
    clock.advance(10_000)
    before = [info.key for info in bucket.list("")]
    found = ns.gc()
    assert not found.applied
    assert found.plan.due
    assert found.deleted == 0
    assert [info.key for info in bucket.list("")] == before


def test_within_the_retention_nothing_goes(clock: Clock, bucket: MemoryStore) -> None:
    ns = opened(bucket, clock)
    churn(ns)
    before = set(keys(bucket, "segments") + keys(bucket, "wal") + keys(bucket, "manifest"))
    clock.advance(99)
    assert ns.gc(apply=True).deleted == 0
    assert before <= {info.key for info in bucket.list(PREFIX)}


def test_after_it_only_what_is_live_stays(clock: Clock, bucket: MemoryStore) -> None:
    ns = opened(bucket, clock)
    churn(ns)
    clock.advance(101)
    collected = ns.gc(apply=True)
    assert collected.deleted > 10
    assert collected.bytes > 0
    assert len(keys(bucket, "segments")) == 1
    assert keys(bucket, "wal") == []
    clock.advance(101)
    ns.gc(apply=True)
    assert len(keys(bucket, "manifest")) <= 2
    status = ns.status()
    assert (status.superseded_objects, status.folded_slots) == (0, 0)
    assert ns.get("a") == {"id": "a", "n": 3}
    assert ns.verify(deep=True).sound
    assert ns.gc(apply=True).deleted == 0


def test_a_pass_with_nothing_to_do_publishes_nothing(clock: Clock, bucket: MemoryStore) -> None:
    ns = opened(bucket, clock)
    ns.write(upserts=[{"id": "a"}])
    before = ns.generation
    ns.gc(apply=True)
    assert ns.generation == before


def test_upkeep_goes_on_for_ever_in_bounded_room(clock: Clock, bucket: MemoryStore) -> None:
    ns = opened(bucket, clock)
    most = 0
    size = 0
    for number in range(60):
        ns.write(upserts=[{"id": f"{number % 5}", "n": number}], idempotency_key=f"k{number}")
        ns.index()
        if number % 4 == 3:
            ns.compact(full=True)
        clock.advance(40)
        ns.gc(apply=True)
        most = max(most, len(list(bucket.list(PREFIX))))
        size = bucket.head(f"{PREFIX}hint.json").size
    assert most < 60
    assert size < 20_000
    assert ns.count() == 5


def test_two_collectors_at_once(clock: Clock, bucket: MemoryStore) -> None:
    writer = opened(bucket, clock)
    churn(writer)
    clock.advance(1_000)
    faulty = FaultyStore(bucket)
    other = opened(faulty, clock, "r")
    faulty.pause_before(request("delete"), lambda: writer.gc(apply=True) and None, nth=2)
    other.gc(apply=True)
    assert writer.get("a") == {"id": "a", "n": 3}
    assert writer.verify(deep=True).sound


def test_dying_between_publication_and_deletes(clock: Clock, bucket: MemoryStore) -> None:
    writer = opened(bucket, clock)
    churn(writer)
    clock.advance(1_000)
    faulty = FaultyStore(bucket)
    faulty.crash_before(request("delete"))
    with pytest.raises(Crash):
        opened(faulty, clock, "r").gc(apply=True)
    # The manifest has forgotten them; the next pass finds them all the same.
    fresh = opened(bucket, clock)
    assert fresh.status().superseded_objects == 0
    fresh.gc(apply=True)
    clock.advance(1_000)
    fresh.gc(apply=True)
    assert len(keys(bucket, "segments")) == 1
    floor = fresh.status().wal_floor
    assert keys(bucket, "wal") == [
        f"{PREFIX}wal/{lsn:020}.wal" for lsn in range(floor, fresh.lsn + 1)
    ]
    assert fresh.get("a") == {"id": "a", "n": 3}
    assert fresh.verify(deep=True).sound


def test_orphans_of_a_load_that_died(clock: Clock, bucket: MemoryStore) -> None:
    writer = opened(bucket, clock)
    writer.write(upserts=[{"id": "a"}])
    faulty = FaultyStore(bucket)
    faulty.crash_after(request("put", "segments/"))
    with pytest.raises(Crash):
        opened(faulty, clock, "r").load([{"id": "b"}])
    assert writer.verify().orphans == 1
    clock.advance(49)
    assert writer.gc(apply=True).deleted == 0
    clock.advance(2)
    assert writer.gc(apply=True).deleted >= 1
    assert keys(bucket, "segments") == []
    assert writer.write(upserts=[{"id": "c"}]).upserted == 1
    assert writer.count() == 2


def test_the_bucket_says_what_time_it_is(clock: Clock, bucket: MemoryStore) -> None:
    """A collector whose own clock is years ahead deletes nothing early."""
    writer = opened(bucket, clock)
    churn(writer)
    hasty = Clock(start=2_000_000_000.0, seed=1)
    assert opened(bucket, hasty, "r").gc(apply=True).deleted == 0

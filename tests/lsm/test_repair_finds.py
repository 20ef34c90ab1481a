"""What the damage campaign found, each in the smallest case that shows it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import reef
from lsm.damaging import (
    NAME,
    PLACE,
    contents,
    damage,
    database,
    keys_of,
    make,
    objects,
    tree_of,
)
from reef.data.convert import convert_rows
from reef.data.rows import UPSERT, with_lsn
from reef.data.schema import Schema
from reef.log import WAL
from reef.lsm.repair.repair import repair
from reef.lsm.repair.salvage import survey
from reef.lsm.repair.verify import verify
from reef.manifest import MANIFESTS
from reef.segment import split_segments
from reef.segment.layout import TRAILER, decode_footer
from reef.store import MemoryStore, Store
from support.faults import Crash, FaultyStore, request


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("reef").setLevel(logging.NOTSET)


def writer(store: Store, **options: Any) -> reef.Namespace:
    return database(store).namespace(NAME, maintain=False, **options)


def check_sound(store: Store) -> None:
    report = verify(tree_of(store), deep=True)
    assert report.sound, report.problems
    before = objects(store)
    assert repair(tree_of(store), apply=True).actions == ()
    assert objects(store) == before


def test_a_filled_slot_does_not_fence_what_was_written_behind_it() -> None:
    store = MemoryStore()
    with writer(store) as ns:
        lost = ns.write(upserts=[{"id": "a", "n": 1}]).lsn
        ns.write(upserts=[{"id": "b", "n": 1}])
    # The slots behind the lost one are of a lower epoch than the log ends with.
    with writer(store) as ns:
        ns.write(upserts=[{"id": "c", "n": 1}])
    damage(store, PLACE + WAL.key(lost), "remove")
    assert repair(tree_of(store), apply=True).lost_lsns == ((lost, lost),)
    assert set(contents(store)) == {"b", "c"}
    check_sound(store)


def test_nothing_is_salvaged_out_of_another_segment() -> None:
    store = MemoryStore()
    with writer(store) as ns:
        ns.write(upserts=[{"id": "z", "n": 0}])
        ns.load([{"id": "a", "n": 1}])
        ns.load([{"id": "b", "n": 2}])
        one, other = keys_of(store, "segments/")
        assert store.head(one).size == store.head(other).size
        ns.load([{"id": "a", "n": 3}])
    stranger = max(key for key in keys_of(store, "segments/") if key not in (one, other))
    # Where the first should be there is one that was written later, whole and of the same length.
    store.put(one, bytes(store.get(stranger).data))
    store.put(stranger, bytes(store.get(other).data))
    done = repair(tree_of(store), apply=True)
    assert done.lost_ids == (("a", "a"),)
    assert contents(store) == {"b": {"id": "b", "n": 2}, "z": {"id": "z", "n": 0}}
    check_sound(store)


@pytest.mark.parametrize("part", ["wal/00000000000000000002", "segments/00000000000000000007"])
def test_what_is_not_named_any_more_is_in_quarantine(part: str) -> None:
    store = MemoryStore()
    make(store)
    (key,) = [key for key in objects(store) if PLACE + part in key]
    damage(store, key, "flip")
    injured = bytes(store.get(key).data)
    faulty = FaultyStore(store)
    faulty.crash_after(request("create", "manifest/"))
    with pytest.raises(Crash):
        repair(tree_of(faulty), apply=True)
    # After the publication nobody would find it.
    assert bytes(store.get(key.replace(PLACE, f"{PLACE}quarantine/")).data) == injured
    repair(tree_of(store), apply=True)
    check_sound(store)


@pytest.mark.parametrize("head", [False, True], ids=["an old one", "the newest"])
def test_a_generation_that_is_gone_is_missed_once(head: bool) -> None:
    store = MemoryStore()
    model = make(store)
    key = MANIFESTS.key(7 if head else 4)
    damage(store, PLACE + key, "remove")
    assert key in {problem.key for problem in verify(tree_of(store)).problems}
    before = objects(store)
    assert any(key in action for action in repair(tree_of(store)).actions)
    assert objects(store) == before
    done = repair(tree_of(store), apply=True)
    assert done.quarantined == ()
    check_sound(store)
    assert contents(store) == model
    with database(store).namespace(NAME, "r") as ns, pytest.raises(reef.PastRetention):
        ns.at(generation=7 if head else 4)


def test_collected_generations_are_not_missed() -> None:
    store = MemoryStore()
    with writer(store, settings=reef.Settings(retention=0, grace=0)) as ns:
        for n in range(4):
            ns.write(upserts=[{"id": "a", "n": n}])
            ns.index()
            ns.compact(full=True)
            ns.gc(apply=True)
            assert ns.verify(deep=True).sound
    assert len(keys_of(store, "manifest/")) < 4


def test_lost_idempotency_keys_are_not_reported_as_documents() -> None:
    store = MemoryStore()
    settings = reef.Settings(retention=0, grace=0)
    with writer(store, settings=settings, schema={"id": "uint64"}) as ns:
        ns.write(upserts=[{"id": 1, "n": 1}], idempotency_key="one")
        ns.index()
        for _ in range(2):
            ns.gc(apply=True)
        (window,) = ns._tree.head.manifest.window
    damage(store, PLACE + window.key, "remove")
    done = repair(tree_of(store), apply=True)
    assert (done.lost_keys, done.lost_ids, done.lost_lsns) == ((("one", "one"),), (), ())
    assert contents(store) == {1: {"id": 1, "n": 1}}
    check_sound(store)


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
@pytest.mark.parametrize("folded", [False, True], ids=["unfolded", "folded"])
def test_a_segment_that_a_truncation_hides_is_history(how: str, folded: bool) -> None:
    store = MemoryStore()
    with writer(store) as ns:
        ns.load([{"id": "a", "n": 1}])
        (hidden,) = keys_of(store, "segments/")
        ns.load([{"id": "b", "n": 1}])
        (healthy,) = set(keys_of(store, "segments/")) - {hidden}
        truncated = ns.load([{"id": "c", "n": 1}], truncate=True).lsn
        if folded:
            ns.index()
    damage(store, hidden, how)
    with database(store).namespace(NAME, "r") as ns:
        assert [d["id"] for d in ns.scan().documents()] == ["c"]
        with pytest.raises(reef.ReefError):
            list(ns.changes())
    problems = verify(tree_of(store), deep=True).problems
    assert {PLACE + problem.key for problem in problems} == {hidden}
    done = repair(tree_of(store), apply=True)
    assert (done.lost_lsns, done.lost_ids) == ((), ())
    check_sound(store)
    assert set(contents(store)) == {"c"}
    manifest = tree_of(store).register.head().manifest
    # The other one is kept for as long as the log that names it.
    assert healthy.removeprefix(PLACE) in {gone.key for gone in manifest.superseded}
    with database(store).namespace(NAME, "r") as ns:
        assert [c.id for c in ns.changes(after=truncated - 2)] == ["b", None, "c"]
        assert {d["id"] for d in ns.at(lsn=truncated).scan().documents()} == {"c"}


def test_a_damaged_index_is_not_believed() -> None:
    store = MemoryStore()
    rows = [{"id": n, "n": n, "m": -n} for n in range(10, 90, 10)]
    batch, schema = convert_rows(rows, Schema(), kind=UPSERT)
    ((parts, info),) = split_segments(
        (with_lsn(batch.slice(at, 3), 5) for at in range(0, len(rows), 3)),
        schema,
        make_id=lambda: "x",
        birth=1,
        run="r",
        level=0,
        group_bytes=1,
    )
    store.put(info.key, parts)
    whole = bytes(store.get(info.key).data)
    footer, _ = decode_footer(info.key, memoryview(whole), len(whole))
    start = footer.index.offset
    for at in range(start, len(whole) - TRAILER.size):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            store.put(info.key, bytes(damaged))
            found = survey(store, info, schema)
            if at < start + footer.index.length:
                # It may parse all the same, and say anything.
                assert (found.rows, found.lost_ids) == (0, ((10, 80),))
                assert found.lost_lsns == ((5, 5),)
            else:
                assert (found.rows, found.lost_ids) == (len(rows), ())
    # Without the footer's word the index counts only if it is right about everything.
    damaged = bytearray(whole)
    damaged[start + footer.index.length] ^= 1
    damaged[start - footer.filter.length - 20] ^= 1
    store.put(info.key, bytes(damaged))
    assert survey(store, info, schema).rows == 0

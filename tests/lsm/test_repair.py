"""Repair: what is damaged is found, refused by reads, and put right as promised."""

from __future__ import annotations

import contextlib
import logging
from itertools import combinations, count
from typing import Any

import pytest

import reef
from lsm.damaging import (
    NAME,
    PLACE,
    Documents,
    contents,
    copied,
    damage,
    database,
    keys_of,
    make,
    objects,
    tree_of,
)
from reef.errors import ConcurrentPublication, Corruption, ReefError
from reef.log import WAL
from reef.lsm.repair.repair import Repaired, repair
from reef.lsm.repair.verify import verify
from reef.lsm.upkeep.fold import fold_from_log
from reef.manifest import MANIFESTS
from reef.segment import SegmentReader
from reef.store import FolderStore, MemoryStore, Store
from support.faults import Crash, FaultyStore, request

HOW = ["flip", "cut", "remove"]
WRITTEN = {
    6: {"d1", "c4"},
    7: {"e1", "a9"},
    8: {"e1"},
    9: {"z"},
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("reef").setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def original() -> tuple[dict[str, bytes], Documents]:
    store = MemoryStore()
    model = make(store)
    return objects(store), model


def differing(now: Documents, model: Documents) -> set[str | int]:
    return {id for id in {*now, *model} if now.get(id) != model.get(id)}


def check_promise(report: Repaired, now: Documents, model: Documents) -> None:
    """Nothing but what was reported lost reads differently."""
    lost = [n for first, last in report.lost_lsns for n in range(first, last + 1)]
    allowed = {id for n in lost for id in WRITTEN.get(n, ())}
    for id in differing(now, model) - allowed:
        assert any(low <= id <= high for low, high in report.lost_ids), id  # type: ignore[operator]


def is_whole_afterwards(store: Store) -> Documents:
    report = verify(tree_of(store), deep=True)
    assert report.sound, report.problems
    manifest = tree_of(store).register.head().manifest
    # A collector deletes what is superseded without asking whether it is live.
    live = {info.key for info in (*manifest.segments, *manifest.window)}
    assert live.isdisjoint(gone.key for gone in manifest.superseded)
    before = objects(store)
    again = repair(tree_of(store), apply=True)
    assert again.actions == ()
    assert objects(store) == before
    return contents(store)


@pytest.mark.parametrize("how", HOW)
def test_every_object_damaged_one_at_a_time(
    original: tuple[dict[str, bytes], Documents], how: str
) -> None:
    content, model = original
    last = max(key for key in content if "/wal/" in key)
    for key in content:
        store = copied(content)
        damage(store, key, how)
        found = not verify(tree_of(store), deep=True).sound
        # Nobody needs an old generation or the hint, and an end that is gone leaves no trace.
        head = MANIFESTS.key(7)
        traceless = key == last or "hint" in key or ("manifest/" in key and head not in key)
        assert found or (how == "remove" and traceless), key
        with contextlib.suppress(ReefError):
            assert contents(store) == model or key == last, key
        before = objects(store)
        dry = repair(tree_of(store))
        assert objects(store) == before
        assert not dry.applied
        assert bool(dry.actions) == found
        done = repair(tree_of(store), apply=True)
        assert done.applied
        assert (dry.actions, dry.quarantined) == (done.actions, done.quarantined)
        assert (dry.lost_lsns, dry.lost_ids) == (done.lost_lsns, done.lost_ids)
        for moved in done.quarantined:
            assert objects(store)[f"{PLACE}quarantine/{moved}"] == before[PLACE + moved]
        now = is_whole_afterwards(store)
        if not (key == last and how == "remove"):
            check_promise(done, now, model)


def test_pairs_of_damaged_objects(original: tuple[dict[str, bytes], Documents]) -> None:
    content, model = original
    keys = [key for key in content if not any(f"manifest/{n:020d}" in key for n in range(1, 6))]
    for number, (one, other) in enumerate(combinations(keys, 2)):
        if number % 3:
            continue
        store = copied(content)
        damage(store, one, "flip")
        how = "cut" if number % 2 or other == max(keys) else "remove"
        damage(store, other, how)
        done = repair(tree_of(store), apply=True)
        check_promise(done, is_whole_afterwards(store), model)


def test_a_healthy_namespace_is_left_alone(original: tuple[dict[str, bytes], Documents]) -> None:
    content, _ = original
    store = copied(content)
    done = repair(tree_of(store), apply=True)
    assert (done.actions, done.quarantined, done.lost_lsns, done.lost_ids) == ((), (), (), ())
    assert done.generation == 7
    assert objects(store) == content


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "damaged",
    [
        ["manifest/00000000000000000007", "hint"],
        ["wal/00000000000000000006", "wal/00000000000000000007"],
        ["segments/00000000000000000005"],
        ["segments/00000000000000000007", "wal/00000000000000000003"],
    ],
    ids=["head", "log", "segment", "load"],
)
def test_dying_between_any_two_requests(
    original: tuple[dict[str, bytes], Documents], damaged: list[str], after: bool
) -> None:
    content, model = original
    for nth in count(1):
        store = copied(content)
        for key in content:
            if any(part in key for part in damaged):
                damage(store, key, "cut")
        before = objects(store)
        promise = repair(tree_of(store))
        faulty = FaultyStore(store)
        (faulty.crash_after if after else faulty.crash_before)(nth=nth)
        try:
            repair(tree_of(faulty), apply=True)
        except Crash:
            pass
        else:
            assert nth > 3
            return
        kept = objects(store)
        for key in before:
            if any(part in key for part in damaged) and "hint" not in key:
                aside = key.replace(PLACE, f"{PLACE}quarantine/")
                assert before[key] in (kept.get(key), kept.get(aside))
        repair(tree_of(store), apply=True)
        check_promise(promise, is_whole_afterwards(store), model)


@pytest.mark.parametrize("hint", [True, False], ids=["hint too", "hint whole"])
def test_a_damaged_head_is_published_again(
    original: tuple[dict[str, bytes], Documents], hint: bool
) -> None:
    content, model = original
    store = copied(content)
    damage(store, PLACE + MANIFESTS.key(7), "flip")
    if hint:
        damage(store, f"{PLACE}hint.json", "flip")
    done = repair(tree_of(store), apply=True)
    assert done.generation == 8
    assert MANIFESTS.key(7) in done.quarantined
    assert is_whole_afterwards(store) == model
    assert PLACE + MANIFESTS.key(7) not in objects(store)
    # Whatever the lost one condemned must not be published any more.
    assert tree_of(store).register.head().manifest.orphan_floor == 8
    store.delete(f"{PLACE}hint.json")
    assert contents(store) == model


def test_a_writer_that_knows_the_lost_head_loses_nothing() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    ns.write(upserts=[{"id": "b", "n": 1}])
    ns.index()
    ns.write(upserts=[{"id": "c", "n": 1}])
    head = ns.generation
    for key in (PLACE + MANIFESTS.key(head), f"{PLACE}hint.json"):
        damage(store, key, "flip")
    repair(tree_of(store), apply=True)
    ns.write(upserts=[{"id": "d", "n": 1}])
    ns.index()
    assert sorted(d["id"] for d in ns.scan().documents()) == ["a", "b", "c", "d"]
    assert set(is_whole_afterwards(store)) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("how", HOW)
def test_a_given_up_slot_is_passed_over_by_all(how: str) -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    for n in range(6):
        ns.write(upserts=[{"id": f"d{n}", "n": n}])
    ns.close()
    for lsn in (3, 4):
        damage(store, PLACE + WAL.key(lsn), how)
    with pytest.raises(Corruption):
        contents(store)
    with pytest.raises(Corruption):
        fold_from_log(tree_of(store))
    done = repair(tree_of(store), apply=True)
    assert done.lost_lsns == ((3, 4),)
    # A slot that is free could be won by a writer that slept.
    assert {PLACE + WAL.key(3), PLACE + WAL.key(4)} <= objects(store).keys()
    left = {"d0", "d3", "d4", "d5"}
    assert set(is_whole_afterwards(store)) == left
    reader = database(store).namespace(NAME, "r")
    assert {change.id for change in reader.changes()} == left
    assert {d["id"] for d in reader.at(lsn=5).scan().documents()} == {"d0", "d3"}
    writer = database(store).namespace(NAME, maintain=False)
    writer.write(upserts=[{"id": "new", "n": 1}])
    folded = writer.index()
    assert folded is not None
    assert set(is_whole_afterwards(store)) == {*left, "new"}
    assert {d["id"] for d in reader.at(lsn=5).scan().documents()} == {"d0", "d3"}


def test_a_live_writer_goes_on_beside_a_repair() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    for n in range(4):
        ns.write(upserts=[{"id": f"d{n}", "n": n}])
    damage(store, PLACE + WAL.key(3), "flip")
    assert repair(tree_of(store), apply=True).lost_lsns == ((3, 3),)
    assert set(contents(store)) == {"d0", "d2", "d3"}
    ns.write(upserts=[{"id": "d4", "n": 4}])
    # It held the slot in memory, and lets go of it as everybody does.
    assert ns.get("d1") is None
    ns.index()
    assert set(is_whole_afterwards(store)) == {"d0", "d2", "d3", "d4"}


def test_a_damaged_end_of_the_log_was_never_committed() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    ns.write(upserts=[{"id": "b", "n": 1}])
    ns.close()
    damage(store, PLACE + WAL.key(3), "cut")
    assert set(contents(store)) == {"a"}
    assert not verify(tree_of(store)).sound
    repair(tree_of(store), apply=True)
    assert set(is_whole_afterwards(store)) == {"a"}


def test_folded_log_that_is_damaged_costs_history_only(
    original: tuple[dict[str, bytes], Documents],
) -> None:
    content, model = original
    store = copied(content)
    damage(store, PLACE + WAL.key(4), "flip")
    done = repair(tree_of(store), apply=True)
    assert done.lost_lsns == ()
    assert done.quarantined == (WAL.key(4),)
    assert is_whole_afterwards(store) == model
    with database(store).namespace(NAME, "r") as ns, pytest.raises(reef.PastRetention):
        ns.at(lsn=4)


def rows_in_groups(store: Store) -> tuple[SegmentReader, Documents]:
    """One segment of several row groups, and nothing else that holds its rows."""
    settings = reef.Settings(retention=0, grace=0)
    ns = database(store).namespace(NAME, maintain=False, settings=settings)
    ns.write(upserts={"id": [f"{n:05}" for n in range(20_000)], "n": list(range(20_000))})
    ns.index()
    ns.gc(apply=True)
    ns.gc(apply=True)
    (info,) = ns._tree.head.manifest.segments
    reader = ns._tree.reader_of(info)
    assert len(reader.groups()) == 3
    ns.close()
    return reader, contents(store)


def test_a_slot_below_the_floor_is_not_lost_with_its_segment(
    original: tuple[dict[str, bytes], Documents],
) -> None:
    content, model = original
    store = copied(content)
    for key in keys_of(store, "segments/00000000000000000005"):
        damage(store, key, "remove")
    done = repair(tree_of(store), apply=True)
    assert (done.lost_lsns, done.lost_ids, done.quarantined) == ((), (), ())
    assert is_whole_afterwards(store) == model


@pytest.mark.parametrize("group", [0, 1, 2])
def test_whole_groups_of_a_damaged_segment_are_salvaged(group: int) -> None:
    store = MemoryStore()
    reader, model = rows_in_groups(store)
    start, length = reader.tail().index.span(group)
    low, high = reader.group_bounds(group)
    key = PLACE + reader.key
    data = bytearray(store.get(key).data)
    data[start + length // 2] ^= 1
    store.put(key, bytes(data))
    with pytest.raises(Corruption):
        contents(store)
    dry = repair(tree_of(store))
    done = repair(tree_of(store), apply=True)
    assert dry.lost_ids == done.lost_ids == ((low, high),)
    assert done.lost_lsns == ((2, 2),)
    left = {id: d for id, d in model.items() if not low <= id <= high}  # type: ignore[operator]
    assert is_whole_afterwards(store) == left


@pytest.mark.parametrize("part", ["filter", "index", "footer", "trailer"])
def test_a_damaged_tail_costs_what_it_must(part: str) -> None:
    store = MemoryStore()
    reader, model = rows_in_groups(store)
    footer = reader.tail().footer
    at = {
        "filter": footer.filter.offset + 20,
        "index": footer.index.offset + footer.index.length // 2,
        "footer": footer.index.offset + footer.index.length + 3,
        "trailer": reader.info.size - 4,
    }[part]
    key = PLACE + reader.key
    data = bytearray(store.get(key).data)
    data[at] ^= 1
    store.put(key, bytes(data))
    done = repair(tree_of(store), apply=True)
    now = is_whole_afterwards(store)
    if part == "index":
        assert now == {}
        assert done.lost_ids == (("00000", "19999"),)
    else:
        assert now == model
        assert done.lost_ids == ()


def test_on_a_folder(folder_store: FolderStore) -> None:
    model = make(folder_store)
    damage(folder_store, keys_of(folder_store, "segments/")[3], "flip")
    damage(folder_store, PLACE + WAL.key(8), "cut")
    damage(folder_store, PLACE + MANIFESTS.key(7), "cut")
    damage(folder_store, f"{PLACE}hint.json", "cut")
    done = repair(tree_of(folder_store), apply=True)
    check_promise(done, is_whole_afterwards(folder_store), model)
    assert done.lost_lsns == ((8, 8),)


def test_namespaces_repair_themselves(original: tuple[dict[str, bytes], Documents]) -> None:
    content, model = original
    store = copied(content)
    with database(store).namespace(NAME, "r") as ns:
        damage(store, keys_of(store, "segments/")[3], "flip")
        assert ns.repair().actions
        assert not ns.repair().applied
        assert ns.repair(apply=True).applied
        assert {d["id"]: d for d in ns.scan().documents()} == model


def test_without_any_manifest_it_says_so(original: tuple[dict[str, bytes], Documents]) -> None:
    content, _ = original
    store = copied(content)
    for key in [*keys_of(store, "manifest/"), f"{PLACE}hint.json"]:
        damage(store, key, "cut")
    with pytest.raises(Corruption):
        repair(tree_of(store), apply=True)


def test_a_live_writer_and_a_compactor_beside_a_restoration() -> None:
    store = MemoryStore()
    faulty = FaultyStore(store)
    ns = database(faulty).namespace(NAME, maintain=False)
    for n in range(3):
        ns.write(upserts=[{"id": f"a{n}", "n": n}, {"id": f"b{n}", "n": n}], deletes=["b0"])
        ns.index()
    ns.compact(full=True)
    ns.write(patches=[{"id": "a1", "text": "later"}])
    ns.index()

    def meanwhile() -> None:
        (whole,) = [info for info in ns._tree.head.manifest.segments if info.level == 1]
        damage(store, PLACE + whole.key, "flip")
        epoch = tree_of(store).register.head().manifest.compactor_epoch
        done = repair(tree_of(store), apply=True)
        assert tree_of(store).register.head().manifest.compactor_epoch == epoch + 1
        assert not done.lost_ids
        assert not done.lost_lsns

    faulty.pause_before(request("put", "/segments/"), meanwhile)
    with pytest.raises(ConcurrentPublication):
        ns.compact(full=True)
    ns.write(patches=[{"id": "a2", "text": "last"}])
    ns.index()
    expected = {
        "a0": {"id": "a0", "n": 0},
        "a1": {"id": "a1", "n": 1, "text": "later"},
        "a2": {"id": "a2", "n": 2, "text": "last"},
        "b1": {"id": "b1", "n": 1},
        "b2": {"id": "b2", "n": 2},
    }
    assert {d["id"]: d for d in ns.scan().documents()} == expected
    assert is_whole_afterwards(store) == expected
    ns.compact(full=True)
    assert is_whole_afterwards(store) == expected

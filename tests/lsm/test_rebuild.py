"""Rebuilding: the bucket alone is enough."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

import reef.lsm.repair.rebuild
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
from reef.errors import ConcurrentPublication, Corruption, NamespaceNotFound
from reef.log import WAL
from reef.lsm.repair.health import needs
from reef.lsm.repair.rebuild import rebuild
from reef.lsm.repair.verify import verify
from reef.lsm.tree import Tree
from reef.manifest import MANIFESTS
from reef.store import FolderStore, MemoryStore, Store
from support.faults import Crash, FaultyStore


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level("CRITICAL", logger="reef"):
        yield


@pytest.fixture(scope="module")
def original() -> tuple[dict[str, bytes], Documents]:
    store = MemoryStore()
    model = make(store)
    return objects(store), model


def without_manifests(store: Store) -> None:
    for key in [*keys_of(store, "manifest/"), f"{PLACE}hint.json"]:
        store.delete(key)


def is_sound(store: Store) -> Documents:
    report = verify(tree_of(store), deep=True)
    assert report.sound, report.problems
    return contents(store)


def goes_on(store: Store, model: Documents) -> None:
    """It can be written, folded, compacted and collected as if nothing had happened."""
    ns = database(store).namespace(NAME, maintain=False)
    for n in range(3):
        ns.write(upserts=[{"id": f"new{n}", "n": n}])
        ns.index()
    ns.compact(full=True)
    ns.gc(apply=True)
    expected = {**model, **{f"new{n}": {"id": f"new{n}", "n": n} for n in range(3)}}
    assert {d["id"]: d for d in ns.scan().documents()} == expected
    assert is_sound(store) == expected


def test_from_manifests_it_reads_the_same(
    original: tuple[dict[str, bytes], Documents],
) -> None:
    content, model = original
    store = copied(content)
    done = rebuild(tree_of(store))
    assert (done.base, done.rows, done.segments) == (7, len(model), 1)
    assert done.log_slots == 4
    assert is_sound(store) == model
    with database(store).namespace(NAME, "r") as ns:
        assert ns.status().unfolded_objects == 0
        assert ns.count() == len(model)
        assert {d["id"] for d in ns.at(lsn=3).scan().documents()} >= {"b1"}
    writer = database(store).namespace(NAME, maintain=False)
    for key, lsn in (("one", 3), ("two", 5), ("three", 8)):
        assert writer.write(upserts=[{"id": "x"}], idempotency_key=key).lsn == lsn
    writer.close()
    goes_on(store, model)


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_around_a_damaged_segment(original: tuple[dict[str, bytes], Documents], how: str) -> None:
    content, model = original
    for key in [key for key in content if "segments/" in key]:
        store = copied(content)
        damage(store, key, how)
        try:
            rebuild(tree_of(store))
        except Corruption:
            # Only what a load brought is nowhere else.
            assert any(f"segments/{n:020d}" in key for n in (6, 7))
            assert objects(store).keys() == copied(content)._objects.keys() - (
                {key} if how == "remove" else set()
            )
            continue
        assert contents(store) == model


def test_a_damaged_log_is_for_repair(original: tuple[dict[str, bytes], Documents]) -> None:
    content, _ = original
    store = copied(content)
    damage(store, PLACE + WAL.key(7), "flip")
    before = objects(store)
    with pytest.raises(Corruption, match="repair"):
        rebuild(tree_of(store))
    assert objects(store) == before


def test_from_objects_alone(original: tuple[dict[str, bytes], Documents]) -> None:
    content, model = original
    store = copied(content)
    without_manifests(store)
    with pytest.raises(NamespaceNotFound):
        contents(store)
    done = rebuild(tree_of(store), name=NAME)
    assert (done.base, done.rows, done.log_slots, done.unused) == (0, len(model), 9, ())
    assert done.generation == 8
    # Segments under way when the manifests were lost must not be published any more.
    assert tree_of(store).register.head().manifest.orphan_floor == 8
    assert is_sound(store) == model
    writer = database(store).namespace(NAME, maintain=False)
    for key, lsn in (("one", 3), ("two", 5), ("three", 8)):
        assert writer.write(upserts=[{"id": "x"}], idempotency_key=key).lsn == lsn
    writer.close()
    goes_on(store, model)


def test_from_a_folder(folder_store: FolderStore) -> None:
    model = make(folder_store)
    without_manifests(folder_store)
    rebuild(tree_of(folder_store), name=NAME)
    assert is_sound(folder_store) == model


def test_manifests_that_are_all_damaged_count_as_gone(
    original: tuple[dict[str, bytes], Documents],
) -> None:
    content, model = original
    store = copied(content)
    for key in [*keys_of(store, "manifest/"), f"{PLACE}hint.json"]:
        damage(store, key, "cut")
    done = rebuild(tree_of(store), name=NAME)
    assert done.generation == 8
    assert contents(store) == model


def test_one_more_object_lost_beside_the_manifests(
    original: tuple[dict[str, bytes], Documents],
) -> None:
    content, model = original
    for key in [key for key in content if "/wal/" in key or "/segments/" in key]:
        for how in ("flip", "remove"):
            store = copied(content)
            without_manifests(store)
            damage(store, key, how)
            done = rebuild(tree_of(store), name=NAME)
            now = is_sound(store)
            if now != model:
                assert done.unused or key == max(content), key


def compacted_without_log() -> tuple[MemoryStore, list[str]]:
    """What a compaction made out of two runs, the runs themselves, and no log."""
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": id, "n": 1} for id in "abcd"])
    ns.index()
    ns.write(upserts=[{"id": "e", "n": 2}], deletes=["b"])
    ns.index()
    ns.compact(full=True)
    ns.close()
    without_manifests(store)
    for key in keys_of(store, "wal/"):
        store.delete(key)
    return store, keys_of(store, "segments/")


def test_what_a_compaction_dropped_stays_dead() -> None:
    store, (_, tombstones, _) = compacted_without_log()
    store.delete(tombstones)
    done = rebuild(tree_of(store), name=NAME)
    assert set(is_sound(store)) == set("acde")
    assert done.unused == ()


def test_what_cannot_be_shown_to_be_dead_comes_back() -> None:
    store, (_, tombstones, outcome) = compacted_without_log()
    store.delete(tombstones)
    store.delete(outcome)
    rebuild(tree_of(store), name=NAME)
    assert set(is_sound(store)) == set("abcd")


def test_slots_that_wrote_rows_are_never_won_again() -> None:
    store, _ = compacted_without_log()
    rebuild(tree_of(store), name=NAME)
    with database(store).namespace(NAME, maintain=False) as ns:
        assert ns.write(upserts=[{"id": "a", "n": 9}]).lsn > 3
        assert ns.get("a") == {"id": "a", "n": 9}


def loaded(*, finished: bool, log: bool) -> MemoryStore:
    store = MemoryStore()
    faulty = FaultyStore(store)
    ns = database(faulty).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": "a", "n": 1}])
    ns.index()
    if not finished:
        faulty.crash_before(lambda kind, key: kind == "create" and "/wal/" in key)
    with contextlib.suppress(Crash):
        ns.load([{"id": "a", "n": 2}, {"id": "b", "n": 2}])
    without_manifests(store)
    if not log:
        for key in keys_of(store, "wal/"):
            store.delete(key)
    return store


def test_a_load_takes_its_place_from_the_log() -> None:
    store = loaded(finished=True, log=True)
    assert rebuild(tree_of(store), name=NAME).unused == ()
    assert is_sound(store) == {"a": {"id": "a", "n": 2}, "b": {"id": "b", "n": 2}}


def test_a_load_that_was_never_finished_is_left_out() -> None:
    store = loaded(finished=False, log=True)
    (reason,) = rebuild(tree_of(store), name=NAME).unused
    assert "no load that was finished" in reason
    assert is_sound(store) == {"a": {"id": "a", "n": 1}}


def test_a_load_without_its_record_is_older_than_all() -> None:
    store = loaded(finished=True, log=False)
    done = rebuild(tree_of(store), name=NAME)
    assert any("taken as older" in reason for reason in done.unused)
    assert is_sound(store) == {"a": {"id": "a", "n": 1}, "b": {"id": "b", "n": 2}}


@pytest.mark.parametrize("manifests", [True, False], ids=["manifests", "objects"])
def test_dying_between_any_two_requests(
    original: tuple[dict[str, bytes], Documents], manifests: bool
) -> None:
    content, model = original
    for nth in count(1):
        store = copied(content)
        if not manifests:
            without_manifests(store)
        faulty = FaultyStore(store)
        faulty.crash_before(nth=nth)
        try:
            rebuild(tree_of(faulty), name=NAME)
        except Crash:
            pass
        else:
            assert nth > 3
            return
        rebuild(tree_of(store), name=NAME)
        assert is_sound(store) == model


def test_nothing_at_all_is_no_namespace() -> None:
    with pytest.raises(NamespaceNotFound):
        rebuild(tree_of(MemoryStore()), name=NAME)


def test_namespaces_rebuild_themselves(original: tuple[dict[str, bytes], Documents]) -> None:
    content, model = original
    store = copied(content)
    with database(store).namespace(NAME, "r") as ns:
        assert ns.rebuild().generation == 8
        assert ns.generation == 8
        assert {d["id"]: d for d in ns.scan().documents()} == model
    with database(store).namespace(NAME, maintain=False) as ns:
        ns.rebuild()
        ns.write(upserts=[{"id": "z", "n": 27}])
        assert ns.get("z") == {"id": "z", "n": 27}
    assert PLACE + MANIFESTS.key(8) in objects(store)


def test_what_a_slow_rebuild_wrote_is_collected(
    original: tuple[dict[str, bytes], Documents], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, model = original
    store = copied(content)
    honest = reef.lsm.repair.rebuild.rewrite

    def rewrite(tree: Tree, executor: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        named = {info.key for info in needs(tree.register.head().manifest)}
        tree.register.publish(
            lambda manifest: msgspec.structs.replace(manifest, orphan_floor=manifest.generation)
        )
        for info in inputs:
            if not info.lsn and info.key not in named:
                tree.store.delete(info.key)
        return honest(tree, executor, inputs, *rest, **more)

    monkeypatch.setattr(reef.lsm.repair.rebuild, "rewrite", rewrite)
    with pytest.raises(ConcurrentPublication, match="try again"):
        rebuild(tree_of(store))
    assert is_sound(store) == model

"""Objects that are damaged, missing, or not what they should be."""

from __future__ import annotations

import logging

import msgspec
import pytest
from crc32c import crc32c

import reef
from reef import Corruption, UnsupportedFormat
from reef.documents import Database, Namespace
from reef.log import WAL
from reef.log.codec import VERSION
from reef.lsm.repair.repair import repair
from reef.lsm.repair.verify import verify
from reef.manifest import MANIFESTS
from reef.store import MemoryStore, Store
from support.faults import FaultyStore, request

PREFIX = "namespaces/n/"


def open_writer(store: Store) -> Namespace:
    return reef.connect(store).namespace("n", maintain=False)


def flip(store: Store, key: str, offset: int = -1) -> None:
    data = bytearray(store.get(key).data)
    data[offset] ^= 0x40
    store.put(key, bytes(data))


def log_key(lsn: int) -> str:
    return PREFIX + WAL.key(lsn)


def manifest_key(generation: int) -> str:
    return PREFIX + MANIFESTS.key(generation)


def test_a_damaged_head_falls_back_loudly(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    ns = open_writer(store)
    ns.write(upserts=[{"id": "a"}])
    hint = bytes(store.get(f"{PREFIX}hint.json").data)
    ns.index()
    store.put(f"{PREFIX}hint.json", hint)
    head = ns.generation
    flip(store, manifest_key(head), 100)
    with caplog.at_level(logging.ERROR, "reef"):
        reader = reef.connect(store).namespace("n", "r")
    assert "falling back" in caplog.text
    assert manifest_key(head).removeprefix(PREFIX) in caplog.text
    assert reader.generation == head - 1
    assert reader.get("a") == {"id": "a"}
    assert not reader.verify().sound
    again = open_writer(store)
    assert again.generation == head + 1
    again.write(upserts=[{"id": "b"}])
    again.index()
    assert [row["id"] for row in again.scan().documents()] == ["a", "b"]


@pytest.mark.parametrize("damage", ["flip", "empty", "garbage", "gone"])
def test_a_damaged_hint_costs_only_time(memory_store: MemoryStore, damage: str) -> None:
    ns = open_writer(memory_store)
    ns.write(upserts=[{"id": "a"}])
    ns.index()
    key = f"{PREFIX}hint.json"
    if damage == "flip":
        flip(memory_store, key, 80)
    elif damage == "gone":
        memory_store.delete(key)
    else:
        memory_store.put(key, b"" if damage == "empty" else b"\xff" * 100)
    reader = reef.connect(memory_store).namespace("n", "r")
    assert reader.generation == ns.generation
    assert reader.get("a") == {"id": "a"}
    with pytest.raises(reef.NamespaceExists):
        reef.connect(memory_store).create("n")


def test_every_manifest_damaged_is_corruption(memory_store: MemoryStore) -> None:
    open_writer(memory_store)
    for info in list(memory_store.list(PREFIX)):
        if "manifest/" in info.key or "hint" in info.key:
            flip(memory_store, info.key, 100)
    with pytest.raises(Corruption):
        reef.connect(memory_store).namespace("n", "r")
    with pytest.raises(Corruption):
        open_writer(memory_store)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "garbage"])
def test_a_damaged_last_log_object_never_was(store: Store, damage: str) -> None:
    ns = open_writer(store)
    ns.write(upserts=[{"id": "a"}])
    last = ns.write(upserts=[{"id": "b"}]).lsn
    key = log_key(last)
    if damage == "flip":
        flip(store, key, 150)
    else:
        data = bytes(store.get(key).data)
        store.put(key, {"cut": data[:-9], "empty": b"", "garbage": b"\0" * 500}[damage])
    reader = reef.connect(store).namespace("n", "r")
    assert [row["id"] for row in reader.scan().documents()] == ["a"]
    again = open_writer(store)
    receipt = again.write(upserts=[{"id": "c"}])
    assert receipt.lsn == last + 2
    reader.refresh()
    fresh = reef.connect(store).namespace("n", "r")
    for handle in (again, reader, fresh):
        assert [row["id"] for row in handle.scan().documents()] == ["a", "c"]
        assert [change.id for change in handle.changes()] == ["a", "c"]
    again.index()
    assert [row["id"] for row in again.scan().documents()] == ["a", "c"]


def test_a_reader_that_passed_over_a_slot_reads_it_when_it_turns_out_well(
    memory_store: MemoryStore,
) -> None:
    ns = open_writer(memory_store)
    ns.write(upserts=[{"id": "a"}])
    key = log_key(ns.write(upserts=[{"id": "b"}]).lsn)
    whole = bytes(memory_store.get(key).data)
    memory_store.put(key, whole[:-1])
    reader = reef.connect(memory_store).namespace("n", "r")
    assert reader.get("b") is None
    memory_store.put(key, whole)
    ns.write(upserts=[{"id": "c"}])
    reader.refresh()
    assert [row["id"] for row in reader.scan().documents()] == ["a", "b", "c"]


def test_a_damaged_log_object_in_the_middle_is_corruption(store: Store) -> None:
    ns = open_writer(store)
    for name in "abc":
        ns.write(upserts=[{"id": name}])
    flip(store, log_key(3), 150)
    for mode in ("r", "w"):
        with pytest.raises(Corruption) as caught:
            reef.connect(store).namespace("n", mode, maintain=False)
        assert log_key(3).endswith(caught.value.key)
    assert not ns.verify().sound


def test_a_lost_log_object_in_the_middle_is_corruption(memory_store: MemoryStore) -> None:
    ns = open_writer(memory_store)
    for name in "abc":
        ns.write(upserts=[{"id": name}])
    memory_store.delete(log_key(3))
    with pytest.raises(Corruption):
        reef.connect(memory_store).namespace("n", "r")


def test_a_damaged_segment_is_never_a_wrong_answer(memory_store: MemoryStore) -> None:
    ns = open_writer(memory_store)
    ns.write(upserts=[{"id": f"d{n}", "n": n} for n in range(50)])
    ns.index()
    (segment,) = memory_store.list(f"{PREFIX}segments/")
    whole = bytes(memory_store.get(segment.key).data)
    for offset in range(0, len(whole), 37):
        data = bytearray(whole)
        data[offset] ^= 1
        memory_store.put(segment.key, bytes(data))
        reader = Database(memory_store, reef.Options(), reef.Environment()).namespace("n", "r")
        try:
            found = {row["id"]: row["n"] for row in reader.scan().documents()}
        except Corruption:
            assert not reader.verify(deep=True).sound
            continue
        except UnsupportedFormat:
            continue
        assert found == {f"d{n}": n for n in range(50)}


def newer(manifest: bytes) -> bytes:
    start = manifest.index(b'"manifest":') + len(b'"manifest":')
    value = msgspec.json.decode(manifest[start:-1])
    text = msgspec.json.encode({**value, "format": 99})
    return b'{"checksum":"%08x","manifest":%b}' % (crc32c(text), text)


def test_a_manifest_of_a_newer_format_is_refused(memory_store: MemoryStore) -> None:
    ns = open_writer(memory_store)
    key = f"{PREFIX}hint.json"
    memory_store.put(key, newer(bytes(memory_store.get(key).data)))
    with pytest.raises(UnsupportedFormat):
        reef.connect(memory_store).namespace("n", "r")
    memory_store.delete(key)
    key = manifest_key(ns.generation)
    memory_store.put(key, newer(bytes(memory_store.get(key).data)))
    before = [info.key for info in memory_store.list("")]
    for mode in ("r", "w"):
        with pytest.raises(UnsupportedFormat):
            reef.connect(memory_store).namespace("n", mode, maintain=False)
    assert [info.key for info in memory_store.list("")] == before


def test_a_log_object_of_a_newer_format_is_refused(memory_store: MemoryStore) -> None:
    ns = open_writer(memory_store)
    key = log_key(ns.write(upserts=[{"id": "a"}]).lsn)
    data = bytearray(memory_store.get(key).data)
    data[8] = VERSION + 1
    data[-4:] = crc32c(bytes(data[:-8])).to_bytes(4, "little")
    memory_store.put(key, bytes(data))
    before = [info.key for info in memory_store.list("")]
    for mode in ("r", "w"):
        with pytest.raises(UnsupportedFormat):
            reef.connect(memory_store).namespace("n", mode, maintain=False)
    assert len(list(memory_store.list(""))) <= len(before) + 1


@pytest.mark.parametrize("place", ["manifest/readme.txt", "wal/x.wal", "segments/x.seg", "other"])
def test_strange_objects_are_left_alone(memory_store: MemoryStore, place: str) -> None:
    ns = open_writer(memory_store)
    memory_store.put(PREFIX + place, b"what is this")
    ns.write(upserts=[{"id": "a"}])
    ns.index()
    ns.gc(apply=True)
    again = open_writer(memory_store)
    assert again.get("a") == {"id": "a"}
    assert again.verify(deep=True).sound
    assert memory_store.head(PREFIX + place).size == 12


def test_a_store_that_fails_a_read_gives_a_typed_error(memory_store: MemoryStore) -> None:
    faulty = FaultyStore(memory_store)
    ns = open_writer(faulty)
    ns.write(upserts=[{"id": "a"}])
    ns.index()
    faulty.refuse(request("get_range", "segments/"))
    with pytest.raises(reef.StoreUnavailable):
        ns.get("a")
    assert ns.get("a") == {"id": "a"}


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_live_segment_that_is_missing_is_told_as_lost(mode: str) -> None:
    store = MemoryStore()
    database = reef.connect(store)
    with database.namespace("n", maintain=False) as ns:
        ns.write(upserts=[{"id": "a", "n": 1}])
        ns.index()
    (segment,) = store.list("namespaces/n/segments/")
    store.delete(segment.key)
    with reef.connect(store).namespace("n", mode, maintain=False) as ns:
        for read in (
            lambda: ns.get("a"),
            lambda: ns.get_many(["a"]),
            lambda: list(ns.scan()),
            lambda: ns.count("n = 1"),
        ):
            with pytest.raises(Corruption, match="missing") as lost:
                read()
            assert lost.value.key in segment.key


def test_a_manifest_of_another_namespace_is_damage(memory_store: MemoryStore) -> None:
    database = reef.connect(memory_store)
    for name in ("n", "m"):
        with database.namespace(name, maintain=False) as ns:
            ns.write(upserts=[{"id": name}])
    head = manifest_key(2)
    memory_store.put(head, memory_store.get(head.replace("/n/", "/m/")).data)
    hint = f"{PREFIX}hint.json"
    memory_store.put(hint, memory_store.get(hint.replace("/n/", "/m/")).data)
    with database.namespace("n", "r") as ns:
        assert [row["id"] for row in ns.scan().documents()] == ["n"]
        report = ns.verify()
        assert {problem.key for problem in report.problems} == {"hint.json", head[len(PREFIX) :]}
        assert all("namespace 'm'" in problem.meaning for problem in report.problems)
        ns.repair(apply=True)
        assert ns.verify().sound
    assert reef.connect(memory_store).namespace("n", "r").get("n") == {"id": "n"}


def test_a_hint_alone_brings_nothing_back_unless_repaired(memory_store: MemoryStore) -> None:
    with open_writer(memory_store) as ns:
        ns.write(upserts=[{"id": "a"}])
        ns.index()
    for info in list(memory_store.list(f"{PREFIX}manifest/")):
        memory_store.delete(info.key)
    with pytest.raises(Corruption, match="only the hint"):
        reef.connect(memory_store).namespace("n", "r")
    with pytest.raises(Corruption, match="only the hint"):
        reef.connect(memory_store).create("n")
    tree = reef.connect(memory_store)._tree("n")
    assert not verify(tree).sound
    repair(tree, apply=True)
    assert reef.connect(memory_store).namespace("n", "r").get("a") == {"id": "a"}

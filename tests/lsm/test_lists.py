"""A namespace whose segments are named by lists: reads, upkeep, collection, damage and repair."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import reef
from lsm.damaging import NAME, PLACE, contents, copied, damage, database, make, objects, tree_of
from reef.errors import Corruption
from reef.lsm.repair.rebuild import rebuild
from reef.lsm.repair.repair import repair
from reef.lsm.repair.verify import verify
from reef.manifest import listing, retiring
from reef.manifest.lists import PREFIX as LISTS
from reef.store import MemoryStore
from support.faults import Clock

HOW = ["flip", "cut", "remove"]
EACH_RUN = {"LARGE_RUN": 1, "SMALL_RUN": 1, "MOST_NAMED": 0, "MOST_SEGMENTS": 2}
SHARED = {"LARGE_RUN": 99, "SMALL_RUN": 99, "MOST_NAMED": 0, "MOST_SEGMENTS": 100}


@pytest.fixture(params=[EACH_RUN, SHARED], ids=["a list each", "shared lists"], autouse=True)
def _small_lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lists for what a root would otherwise name itself."""
    for name, value in request.param.items():
        monkeypatch.setattr(listing, name, value)
    monkeypatch.setattr(retiring, "MOST_NAMED", 1)
    monkeypatch.setattr(retiring, "_STAYING", 1)
    monkeypatch.setattr(retiring, "_MOST_ENTRIES", 2)
    monkeypatch.setattr(retiring, "MOST_SPANS", 2)
    logging.getLogger("reef").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("reef").setLevel(logging.NOTSET)


def list_keys(store: MemoryStore) -> list[str]:
    return [key for key in objects(store) if key.startswith(PLACE + LISTS)]


def named_lists(store: MemoryStore) -> set[str]:
    manifest = tree_of(store).register.head().manifest
    named = {info.key for info in manifest.lists}
    return named | {retired.list.key for retired in manifest.retired}


def test_what_lists_name_is_read_by_everybody() -> None:
    store = MemoryStore()
    model = make(store)
    manifest = tree_of(store).register.head().manifest
    assert manifest.lists
    assert manifest.retired
    assert manifest.format == 2
    assert manifest.segments.named == ()
    assert len(model) > 40
    with database(store).namespace(NAME, "r") as ns:
        assert {d["id"]: d for d in ns.scan().documents()} == model
        assert [ns.get(id) for id in model] == list(model.values())
        assert ns.count() == len(model)
        assert ns.verify(deep=True).sound


@pytest.mark.parametrize("how", HOW)
def test_a_damaged_list_is_named_and_made_anew(how: str) -> None:
    original = MemoryStore()
    model = make(original)
    content = objects(original)
    tried = 0
    for key in list_keys(original):
        store = copied(content)
        damage(store, key, how)
        report = verify(tree_of(store), deep=True)
        if key.removeprefix(PLACE) not in named_lists(store):
            assert report.sound
            continue
        tried += 1
        assert [problem.key for problem in report.problems] == [key.removeprefix(PLACE)]
        with pytest.raises(Corruption, match="lists/"):
            rebuild(tree_of(store), name=NAME)
        planned = repair(tree_of(store), apply=False)
        assert planned.actions
        done = repair(tree_of(store), apply=True)
        assert planned.actions == done.actions[: len(planned.actions)]
        assert (done.lost_ids, done.lost_lsns, done.lost_keys) == ((), (), ())
        assert contents(store) == model
        assert verify(tree_of(store), deep=True).sound
        assert repair(tree_of(store), apply=True).actions == ()
    assert tried


def test_a_list_and_a_segment_of_its_run_are_damaged() -> None:
    store = MemoryStore()
    make(store)
    manifest = tree_of(store).register.head().manifest
    run = max(manifest.segments.runs, key=lambda run: run.summary.rows)
    damage(store, PLACE + run.segments[0].key, "remove")
    for info in manifest.lists:
        if info.id in run.homes:
            damage(store, PLACE + info.key, "flip")
    with pytest.raises(Corruption, match="rebuild may help"):
        repair(tree_of(store), apply=True)
    with (
        database(store).namespace(NAME, "r") as ns,
        pytest.raises((Corruption, reef.PastRetention)),
    ):
        ns.scan().to_table()


def test_lists_are_collected_when_nothing_names_them() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    db = reef.connect(store, environment=clock.environment())
    ns = db.namespace(NAME, maintain=False)
    for number in range(12):
        ns.write(upserts=[{"id": f"{number % 5}", "n": number}])
        ns.index()
        if number % 4 == 3:
            ns.compact(full=True)
    assert ns.gc(apply=True).deleted == 0
    for _ in range(4):
        clock.advance(4000)
        ns.write(upserts=[{"id": "x", "n": 1}])
        ns.index()
        ns.gc(apply=True)
    assert {key.removeprefix(PLACE) for key in list_keys(store)} == named_lists(store)
    assert ns.verify(deep=True).sound
    assert {d["id"]: d["n"] for d in ns.scan().documents()} == {
        **{f"{n % 5}": n for n in range(12)},
        "x": 1,
    }


def test_time_travel_through_lists() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    receipts = []
    for number in range(6):
        receipts.append(ns.write(upserts=[{"id": "a", "n": number}]))
        ns.index()
    ns.compact(full=True)
    for number, receipt in enumerate(receipts):
        assert ns.at(lsn=receipt.lsn).get("a") == {"id": "a", "n": number}


def test_a_list_is_read_when_its_run_is() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": f"{n}", "n": n} for n in range(50)])
    ns.index()
    tree = tree_of(store)
    tree.recover()
    (run,) = tree.head.manifest.segments.runs
    assert run.summary.rows == 50
    assert "segments" not in vars(run)
    assert tree.view.get("7") == {"id": "7", "n": 7}
    assert "segments" in vars(run)


def test_a_run_stays_the_same_while_others_come() -> None:
    store = MemoryStore()
    ns = database(store).namespace(NAME, maintain=False)
    ns.write(upserts=[{"id": f"{n}", "n": n} for n in range(50)])
    ns.index()
    reader = tree_of(store)
    reader.recover()
    (run,) = reader.head.manifest.segments.runs
    ns.write(upserts=[{"id": "x", "n": 1}])
    ns.index()
    reader.refresh()
    assert run in reader.head.manifest.segments.runs
    assert len(reader.head.manifest.segments.runs) == 2

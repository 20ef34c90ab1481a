"""Folding and compacting: nothing is lost, nothing comes back, and the pieces stay small."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import reef
from reef import Options, Settings
from reef.documents import Namespace
from reef.lsm.upkeep.fold import fold_from_log, fold_from_memory
from reef.store import MemoryStore


def opened(store: MemoryStore, **options: Any) -> Namespace:
    return reef.connect(store, options=Options(**options)).namespace("n", maintain=False)


def contents(ns: Namespace) -> dict[str, Any]:
    return {str(row.pop("id")): row for row in ns.scan().documents()}


def test_nothing_to_fold(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    assert ns.index() is not None
    assert ns.index() is None
    assert fold_from_log(ns._tree) is None
    assert ns.compact() is None
    assert ns.compact(full=True) is None


@pytest.mark.parametrize("how", [fold_from_log, fold_from_memory])
def test_a_fold_takes_about_as_much_as_it_may(memory_store: MemoryStore, how: Any) -> None:
    ns = opened(memory_store, fold_bytes=3_000)
    noise = random.Random(0)
    for number in range(20):
        ns.write(upserts=[{"id": f"{number:02}", "s": noise.randbytes(300).hex()}])
    expected = contents(ns)
    spans = []
    while (folded := how(ns._tree)) is not None:
        spans.append((folded.first, folded.last))
        ns._tree.advance(folded.head)
        assert contents(ns) == expected
    assert len(spans) > 3
    assert spans[0][0] == 1
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(spans))
    assert spans[-1][1] == ns.lsn


def test_one_entry_over_the_limit_is_folded_alone(memory_store: MemoryStore) -> None:
    ns = opened(memory_store, fold_bytes=1)
    ns.write(upserts=[{"id": "a", "s": "x" * 10_000}])
    assert [ns.index() is not None for _ in range(3)] == [True, True, False]


def test_patches_find_their_documents_wherever_they_are(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "old", "n": 1, "s": "x"}])
    ns.index()
    ns.load([{"id": "loaded", "n": 1, "s": "x"}])
    ns.write(upserts=[{"id": "log", "n": 1, "s": "x"}])
    for name in ("old", "loaded", "log"):
        ns.write(patches=[{"id": name, "n": 2}])
        ns.write(patches=[{"id": name, "s": None, "fresh": True}])
    expected = {name: {"n": 2, "s": None, "fresh": True} for name in ("old", "loaded", "log")}
    assert contents(ns) == expected
    ns.index()
    assert contents(ns) == expected
    ns.compact(full=True)
    assert contents(ns) == expected
    assert ns.get("loaded") == {"id": "loaded", **expected["loaded"]}


def test_a_patch_below_a_load_is_gone_with_its_document(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "a", "n": 1, "m": 1}])
    ns.index()
    ns.write(patches=[{"id": "a", "m": 2}])
    ns.load([{"id": "a", "n": 3}])
    for _ in range(2):
        assert contents(ns) == {"a": {"n": 3}}
        ns.index()


def test_tombstones_stay_while_they_hide_something(memory_store: MemoryStore) -> None:
    ns = opened(memory_store, fan_in=2, most_inputs=2)
    ns.write(upserts=[{"id": "a"}, {"id": "z"}])
    ns.index()
    ns.write(upserts=[{"id": "b"}], deletes=["a", "nobody", "zz"])
    folded = ns.index()
    # "zz" is in no older segment's range.
    assert folded is not None
    assert folded.tombstones == 2
    ns.write(deletes=["b"])
    ns.index()
    assert contents(ns) == {"z": {}}
    ns.compact(full=True)
    assert contents(ns) == {"z": {}}
    assert sum(level.tombstones for level in ns.status().levels) == 0


def test_compacting_some_runs_keeps_what_they_hide_hidden(memory_store: MemoryStore) -> None:
    """The two smallest runs are merged; the document that their tombstone hides is in the third."""
    ns = opened(memory_store, fan_in=2, most_inputs=2)
    noise = random.Random(0)
    ns.write(upserts=[{"id": f"{n:04}", "s": noise.randbytes(200).hex()} for n in range(2000)])
    ns.index()
    ns.write(deletes=["0500"])
    ns.index()
    ns.write(upserts=[{"id": "0100", "s": "new"}])
    ns.index()
    done = ns.compact()
    assert done is not None
    assert done.inputs == 2
    assert ns.get("0500") is None
    assert ns.count() == 1999
    assert ns.get("0100") == {"id": "0100", "s": "new"}


def test_everything_deleted_leaves_no_segment(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "a"}, {"id": "b"}])
    ns.index()
    ns.write(deletes=["a", "b"])
    ns.index()
    ns.compact(full=True)
    assert ns.status().levels == ()
    assert ns.count() == 0
    ns.write(upserts=[{"id": "a", "n": 1}])
    ns.index()
    assert contents(ns) == {"a": {"n": 1}}


def test_segments_of_a_run_are_cut_to_size(memory_store: MemoryStore) -> None:
    ns = opened(memory_store, segment_bytes=100_000)
    noise = random.Random(0)
    ns.write(upserts=[{"id": f"{n:05}", "s": noise.randbytes(400).hex()} for n in range(4000)])
    ns.index()
    infos = ns._tree.head.manifest.segments
    assert len(infos) > 2
    assert len({info.run for info in infos}) == 1
    ordered = sorted(infos, key=lambda info: info.min_id)
    assert all(
        a.max_id < b.min_id  # type: ignore[operator]
        for a, b in itertools.pairwise(ordered)
    )
    assert ns.get("03999") is not None
    assert ns.count() == 4000
    assert [row["id"] for row in ns.scan(start="01000", stop="01003").documents()] == [
        "01000", "01001", "01002"
    ]  # fmt: skip


def test_a_truncating_load_replaces_everything(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "a"}, {"id": "b"}])
    ns.index()
    ns.write(upserts=[{"id": "c"}])
    ns.load([{"id": "d"}], truncate=True)
    assert contents(ns) == {"d": {}}
    ns.write(upserts=[{"id": "e"}], patches=[{"id": "a", "n": 1}])
    assert contents(ns) == {"d": {}, "e": {}}
    ns.index()
    assert contents(ns) == {"d": {}, "e": {}}
    assert reef.connect(memory_store).namespace("n", "r").count() == 2


def test_a_load_in_several_stretches(memory_store: MemoryStore) -> None:
    from reef.documents.load import load

    ns = opened(memory_store)
    pieces = (
        [{"id": f"{n % 700:04}", "n": n} for n in range(s, s + 100)] for s in range(0, 2000, 100)
    )
    receipt = load(ns._tree, pieces, stretch_bytes=5_000)
    assert receipt.upserted == 700
    expected = {f"{n % 700:04}": {"n": n} for n in range(2000)}
    assert contents(ns) == expected
    ns.index()
    assert contents(ns) == expected


def test_the_schema_survives_what_it_came_with(memory_store: MemoryStore) -> None:
    ns = opened(memory_store)
    ns.write(upserts=[{"id": "a", "gone": 1}])
    ns.index()
    ns.write(deletes=["a"])
    ns.index()
    ns.compact(full=True)
    again = opened(memory_store)
    with pytest.raises(reef.SchemaConflict):
        again.write(upserts=[{"id": "a", "gone": "text"}])


def test_settings_are_the_namespaces_own(memory_store: MemoryStore) -> None:
    database = reef.connect(memory_store)
    database.create("n", settings=Settings(retention=5, grace=7))
    ns = database.namespace("n", maintain=False, settings=Settings(retention=50))
    assert (ns.status().retention, ns.status().grace) == (5, 7)

"""Documents that are patched again and again: every read is right, and none of them walks far."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import reef
from reef import Options
from reef.data.plain import PlainRows, Types
from reef.data.rows import ID, KIND, PATCH, UPSERT
from reef.data.types import parse_type
from reef.lsm.memtable import Memtable
from reef.lsm.patches import MergedPatches
from reef.lsm.read.view import View


def plain(id: str, kind: int, **attributes: Any) -> PlainRows:
    types = Types({name: parse_type("int64") for name in attributes}, "string")
    return PlainRows([{ID: id, **attributes}], bytes([kind]), types)


def arrow(id: str, kind: int, **attributes: int) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        ID: pa.array([id], pa.string()),
        KIND: pa.array([kind], pa.uint8()),
    }
    columns |= {name: pa.array([value], pa.int64()) for name, value in attributes.items()}
    return pa.RecordBatch.from_pydict(columns)


def test_a_chain_is_as_short_as_it_was_after_ten_patches() -> None:
    table = Memtable()
    table.add(1, plain("a", UPSERT, n=0))
    for lsn in range(2, 2002):
        table.add(lsn, plain("a", PATCH, n=lsn))
        if lsn % 7 == 0:
            assert len(table.find("a")) <= 10
    versions = table.find("a")
    assert len(versions) <= 10
    assert (versions[0][0], versions[-1][0]) == (2001, 1)
    bases = table.find_bases(["a", "b"])
    assert bases[1] is None
    assert bases[0] is not None
    assert bases[0][0] == 1


def test_what_was_merged_is_kept_apart_below() -> None:
    table = Memtable()
    for lsn in range(1, 30):
        table.add(lsn, plain("a", PATCH, **{f"x{lsn % 3}": lsn}))
        table.find("a")
    raw = []
    for lsn, rows, row in table.find("a"):
        if isinstance(rows, MergedPatches):
            assert rows.first_lsn == 1
            raw += [version[0] for version in rows.versions()]
        else:
            raw.append(lsn)
            assert row == 0
    assert raw == list(range(29, 0, -1))
    assert table.find_bases(["a"]) == [None]


def test_patches_in_arrow_batches_lie_between() -> None:
    table = Memtable()
    table.add(1, arrow("a", UPSERT, n=0))
    expected = {"n": 0}
    for lsn in range(2, 60):
        make = arrow if lsn % 20 == 0 else plain
        table.add(lsn, make("a", PATCH, **{f"x{lsn % 5}": lsn}))
        expected[f"x{lsn % 5}"] = lsn
        table.find("a")
    assert [lsn for lsn, _, _ in table.find("a")][-1] == 1
    assert len(table.find("a")) < 25
    found: dict[str, Any] = {}
    for _, rows, row in reversed(table.find("a")):
        if isinstance(rows, PlainRows):
            found.update(rows.document(row))
        else:
            found.update({n: rows.column(n)[row].as_py() for n in rows.schema.names if n != KIND})
    assert found == {"id": "a", **expected}


def model_write(model: dict[str, Any], kind: str, id: str, changed: dict[str, Any]) -> None:
    if kind == "upsert":
        model[id] = {"id": id, **changed}
    elif kind == "patch" and id in model:
        model[id].update(changed)
    elif kind == "delete":
        model.pop(id, None)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_written_in_between(seed: int) -> None:
    """Few ids, almost only patches; loads, large batches, deletes, folds and reopenings between
    them; nulls and absent attributes told apart."""
    chance = random.Random(seed)
    database = reef.connect("memory://", options=Options(large_batch_bytes=1 << 30))
    large = Options(large_batch_bytes=1)
    ns = database.namespace("n", maintain=False)
    model: dict[str, Any] = {}
    ids = ["a", "b", "c"]
    past: list[tuple[int, dict[str, Any]]] = []
    for step in range(300):
        id = chance.choice(ids)
        changed = {
            name: chance.choice([None, step]) for name in ("x", "y", "z") if chance.random() < 0.5
        }
        kind = chance.choices(["patch", "upsert", "delete"], [60, 2, 1])[0]
        if kind == "delete":
            ns.write(deletes=[id])
        elif kind == "upsert":
            ns.write(upserts=[{"id": id, **changed}])
        else:
            receipt = ns.write(patches=[{"id": id, **changed}])
            assert (receipt.patched, receipt.missing) == ((1, 0) if id in model else (0, 1))
        model_write(model, kind, id, changed)
        event = chance.random()
        if event < 0.02:
            ns.load([{"id": id, "x": -step}])
            # A load is somebody else's: the writer meets it at its next commit.
            ns.write(patches=[{"id": "none", "x": 0}], upserts=[{"id": "k", "x": step}])
            model_write(model, "upsert", id, {"x": -step})
            model_write(model, "upsert", "k", {"x": step})
        elif event < 0.03:
            ns.index()
        elif event < 0.04:
            ns.close()
            ns = database.namespace("n", maintain=False, options=chance.choice([None, large]))
        assert ns.get(id) == model.get(id)
        if step % 20 == 0:
            assert ns.get_many([*ids, "k"]) == [model.get(each) for each in [*ids, "k"]]
            assert {row["id"]: row for row in ns.scan().documents()} == model
            past.append((ns.lsn, {key: dict(value) for key, value in model.items()}))
    for lsn, state in past:
        assert {row["id"]: row for row in ns.at(lsn=lsn).scan().documents()} == state
        assert ns.at(lsn=lsn).get_many(ids) == [state.get(each) for each in ids]


def test_admitting_a_patch_looks_at_no_other_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    ns = reef.connect("memory://").namespace("n", maintain=False)
    ns.write(upserts=[{"id": "a", "n": 0}])
    ns.write(upserts=[{"id": "b", "n": 0}])
    ns.write(deletes=["b"])
    rows = [{"id": f"{number}", "n": 0} for number in range(40)]
    ns.write(upserts=rows)
    monkeypatch.setattr(Memtable, "_versions", None)
    monkeypatch.setattr(View, "get_many", None)
    for number in range(30):
        receipt = ns.write(patches=[{"id": "a", "n": number}, {"id": "b", "n": number}])
        assert (receipt.patched, receipt.missing) == (1, 1)
        assert ns.write(patches=rows).patched == 40  # an Arrow batch
    monkeypatch.undo()
    assert ns.get("a") == {"id": "a", "n": 29}

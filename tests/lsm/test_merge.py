"""The merge against a model: dictionaries, applied oldest first."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.data import measure as measuring
from reef.data.documents import documents_of
from reef.data.rows import DELETE, ID, KIND, LSN, PATCH, UPSERT, kinds_of, lsns_of, null_flag
from reef.lsm import gathered, memory_runs, pieces
from reef.lsm.memtable import Memtable
from reef.lsm.read.combine import Versions
from reef.lsm.read.merge import merge

Version = tuple[str, int, int, dict[str, int | None]]
"""Id, LSN, kind, attributes (None is an explicit null)."""

IDS = ["a", "b", "ba", "c", "é", "z" * 40]
attributes = st.dictionaries(st.sampled_from(["x", "y"]), st.none() | st.integers(0, 9))
versions = st.lists(
    st.tuples(
        st.sampled_from(IDS),
        st.integers(1, 10**6),
        st.sampled_from([UPSERT, DELETE, PATCH]),
        attributes,
    ),
    max_size=30,
    unique_by=lambda version: version[1],
)


def batch_of(rows: list[Version], names: tuple[str, ...] = ("x", "y")) -> pa.RecordBatch:
    columns: dict[str, pa.Array] = {
        ID: pa.array([row[0] for row in rows], pa.string()),
        LSN: pa.array([row[1] for row in rows], pa.uint64()),
        KIND: pa.array([row[2] for row in rows], pa.uint8()),
    }
    values = [{} if row[2] == DELETE else row[3] for row in rows]
    for name in names:
        if not any(name in row for row in values):
            continue
        columns[name] = pa.array([row.get(name) for row in values], pa.int64())
        nulls = [name in row and row[name] is None for row in values]
        if any(nulls):
            columns[null_flag(name)] = pa.array(nulls, pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


def model(rows: list[Version]) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = {}
    for id, _, kind, values in sorted(rows, key=lambda row: row[1]):
        if kind == DELETE:
            documents.pop(id, None)
        elif kind == UPSERT:
            documents[id] = {"id": id, **values}
        elif id in documents:
            documents[id] |= values
    return documents


def dead(rows: list[Version]) -> dict[str, int]:
    """Deleted ids, and the LSN of the tombstone that counts."""
    found: dict[str, int] = {}
    for id, lsn, kind, _ in sorted(rows, key=lambda row: row[1]):
        if kind == DELETE:
            found[id] = lsn
        elif kind == UPSERT:
            found.pop(id, None)
    return found


def source_of(rows: list[Version], size: int, reverse: bool) -> list[pa.RecordBatch]:
    """A sorted source in batches of few ids; all versions of an id are in one of them."""
    by_id: dict[str, list[Version]] = {}
    for row in sorted(rows, key=lambda row: (row[0], -row[1])):
        above = by_id.setdefault(row[0], [])
        # As a memtable gives them: nothing below the newest version that is no patch.
        if not above or above[-1][2] == PATCH:
            above.append(row)
    ids = list(by_id)
    batches = [
        batch_of([row for id in ids[start : start + size] for row in by_id[id]])
        for start in range(0, len(ids), size)
    ]
    return batches[::-1] if reverse else batches


@settings(max_examples=300)
@given(
    versions,
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 2, 5, 64]),
    st.sampled_from([1, 60, 200, 1 << 20]),
    st.booleans(),
    st.data(),
)
def test_against_the_model(
    rows: list[Version],
    count: int,
    size: int,
    window: int,
    nbytes: int,
    reverse: bool,
    data: st.DataObject,
) -> None:
    places = [data.draw(st.integers(0, count - 1)) for _ in rows]
    sources = [
        source_of([row for row, at in zip(rows, places, strict=True) if at == n], size, reverse)
        for n in range(count)
    ]
    expected = model(rows)
    limits = {"reverse": reverse, "window_rows": window, "window_bytes": nbytes}
    merged = list(merge(sources, **limits))  # type: ignore[arg-type]
    found = [document for batch in merged for document in documents_of(batch)]
    assert [row["id"] for row in found] == sorted(expected, reverse=reverse)
    assert {row["id"]: row for row in found} == expected
    with_dead = list(merge(sources, keep_tombstones=True, **limits))  # type: ignore[arg-type]
    tombstones = {
        id: int(lsn)
        for batch in with_dead
        for id, kind, lsn in zip(
            batch.column(ID).to_pylist(), kinds_of(batch), lsns_of(batch), strict=True
        )
        if kind == DELETE
    }
    assert tombstones == dead(rows)
    live = [
        document
        for batch in with_dead
        for document, kind in zip(documents_of(batch), kinds_of(batch), strict=True)
        if kind != DELETE
    ]
    assert live == found


@settings(max_examples=200)
@given(versions)
def test_merging_what_was_merged_changes_nothing(rows: list[Version]) -> None:
    """A fold in two steps is a fold in one: patches of the second half apply to the first's."""
    ordered = sorted(rows, key=lambda row: row[1])
    half = len(ordered) // 2
    older, newer = ordered[:half], ordered[half:]
    below = list(merge([source_of(older, 2, False)], keep_tombstones=True))
    merged = list(merge([source_of(newer, 2, False), below]))
    found = {row["id"]: row for batch in merged for row in documents_of(batch)}
    assert found == model(rows)


def test_a_patched_row_takes_the_newest_lsn() -> None:
    rows: list[Version] = [("a", 3, UPSERT, {"x": 1}), ("a", 9, PATCH, {"y": 2})]
    (batch,) = merge([[batch_of(sorted(rows, key=lambda row: -row[1]))]])
    assert lsns_of(batch).tolist() == [9]
    assert kinds_of(batch).tolist() == [UPSERT]


@pytest.mark.parametrize("reverse", [False, True])
def test_many_rows_in_windows(reverse: bool) -> None:
    sources = []
    for start in range(3):
        numbers = np.arange(start, 30_000, 3)
        batches = [
            pa.RecordBatch.from_pydict(
                {
                    ID: pa.array([f"{n:06}" for n in part]),
                    LSN: pa.array(np.full(len(part), start + 1, dtype=np.uint64)),
                    KIND: pa.array(np.zeros(len(part), dtype=np.uint8)),
                }
            )
            for part in np.array_split(numbers, 7)
        ]
        sources.append(batches[::-1] if reverse else batches)
    ids = [id for b in merge(sources, reverse=reverse, window_rows=512) for id in b[ID].to_pylist()]
    assert ids == sorted((f"{n:06}" for n in range(30_000)), reverse=reverse)


@settings(max_examples=200)
@given(versions, st.sampled_from([1, 100, 1 << 20]), st.booleans(), st.data())
def test_the_memtable_is_the_same_merge(
    rows: list[Version], nbytes: int, reverse: bool, data: st.DataObject
) -> None:
    """Batches of the log in order, in the memtable and gathered, agree with the model."""
    with (
        patch.object(gathered, "SLICE_BYTES", nbytes),
        patch.object(pieces, "CHUNK_BYTES", 4 * nbytes),
        patch.object(memory_runs, "_SMALL_ROWS", 2),
        patch.object(measuring, "_ROUGH_BYTES", 0),
    ):
        _check_memtable(rows, reverse, data)


def _check_memtable(rows: list[Version], reverse: bool, data: st.DataObject) -> None:
    ordered = sorted(rows, key=lambda row: row[1])
    table = Memtable()
    log: list[tuple[int, pa.RecordBatch]] = []
    start = 0
    while start < len(ordered):
        stop = start + data.draw(st.integers(1, 4))
        part = ordered[start:stop]
        batch = batch_of(part).drop_columns([LSN])
        table.add(part[-1][1], batch)
        log.append((part[-1][1], batch))
        if data.draw(st.booleans()):
            table.find("a")
        if data.draw(st.booleans()):
            table.sorted()
        start = stop
    expected = model(rows)
    merged = merge(table.sorted().sources(reverse=reverse), reverse=reverse)
    found = [row for batch in merged for row in documents_of(batch)]
    assert [row["id"] for row in found] == sorted(expected, reverse=reverse)
    assert {row["id"]: row for row in found} == expected
    low, high = data.draw(st.sampled_from(IDS)), data.draw(st.sampled_from(IDS))
    part = merge(
        table.sorted().sources(start=low, stop=high, columns=["x"], reverse=reverse),
        reverse=reverse,
    )
    found = [row for batch in part for row in documents_of(batch)]
    assert found == [
        {name: value for name, value in expected[id].items() if name != "y"}
        for id in sorted(expected, reverse=reverse)
        if low <= id < high
    ]
    if log:
        cut = data.draw(st.sampled_from(log))[0]
        rest = merge(table.after(cut).sorted().sources(), keep_tombstones=True)
        again = Memtable()
        for lsn, batch in log:
            if lsn > cut:
                again.add(lsn, batch)
        whole = merge(again.sorted().sources(), keep_tombstones=True)
        assert [row for batch in rest for row in documents_of(batch)] == [
            row for batch in whole for row in documents_of(batch)
        ]
    every = table.find_many(IDS)
    assert every == [table.find(id) for id in IDS]
    for id, some in zip(IDS, every, strict=True):
        kinds = [kinds_of(batch)[row] for _, batch, row in some]
        assert all(kind == PATCH for kind in kinds[:-1])
        base = kinds[-1] if kinds else DELETE
        assert (id in expected) == (base == UPSERT)


@pytest.mark.parametrize("reverse", [False, True])
def test_combiner_and_filters_are_arguments(reverse: bool) -> None:
    """Counters as a merge operator would have them: what patches bring is added up."""

    def added_up(versions: Versions, keep_tombstones: bool) -> pa.RecordBatch:
        rows = versions.rows.take(versions.order)
        firsts = np.flatnonzero(versions.starts)
        sums = np.add.reduceat(np.asarray(rows.column("x")), firsts)
        kept = rows.take(pa.array(firsts))
        kinds = pa.array(np.full(len(firsts), UPSERT, np.uint8))
        for name, values in (("x", pa.array(sums)), (KIND, kinds)):
            place = kept.schema.get_field_index(name)
            kept = kept.set_column(place, kept.schema.field(place), values)
        return kept

    def without_a(rows: pa.RecordBatch) -> pa.RecordBatch:
        ids = rows.column(ID).to_pylist()
        assert ids == sorted(ids)
        return rows.filter(pa.array([id != "a" for id in ids]))

    rows: list[Version] = [
        (id, lsn, PATCH if lsn > 3 else UPSERT, {"x": lsn})
        for lsn, id in enumerate(["a", "b", "c", "a", "b", "b"], 1)
    ]
    sources = [source_of(rows[:3], 1, reverse), source_of(rows[3:], 1, reverse)]
    for nbytes in (1, 1 << 20):
        merged = merge(
            sources, combine=added_up, filters=[without_a], reverse=reverse, window_bytes=nbytes
        )
        found = [(row["id"], row["x"]) for batch in merged for row in documents_of(batch)]
        assert found == sorted([("b", 2 + 5 + 6), ("c", 3)], reverse=reverse)

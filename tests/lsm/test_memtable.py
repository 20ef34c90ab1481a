"""The memtable's own promises; that it agrees with the merge is tested there."""

from __future__ import annotations

from threading import Thread

import pyarrow as pa

from reef.data.rows import ID, KIND, LSN, lsns_of
from reef.lsm.memtable import Memtable


def rows(*ids: str, kind: int = 0, x: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            ID: pa.array(ids, pa.string()),
            KIND: pa.array([kind] * len(ids), pa.uint8()),
            "x": pa.array([x] * len(ids), pa.int64()),
        }
    )


def test_an_empty_one_holds_nothing() -> None:
    table = Memtable()
    assert table.find("a") == []
    assert table.find_many(["a", "b"]) == [[], []]
    assert table.sorted().runs == ()
    assert table.batches() == []
    assert (len(table), table.rows) == (0, 0)


def test_the_newest_version_is_found() -> None:
    table = Memtable()
    table.add(1, rows("a", "b"))
    table.add(2, rows("b", "c"))
    assert [(lsn, row) for lsn, _, row in table.find("b")] == [(2, 0)]
    assert [(lsn, row) for lsn, _, row in table.find("a")] == [(1, 0)]


def test_patches_are_found_down_to_their_document() -> None:
    table = Memtable()
    table.add(1, rows("a"))
    table.add(2, rows("a"))
    table.add(3, rows("a", "b", kind=2))
    table.add(4, rows("a", kind=2))
    assert [lsn for lsn, _, _ in table.find("a")] == [4, 3, 2]
    assert [lsn for lsn, _, _ in table.find("b")] == [3]


def test_after_and_batches_cut_at_an_lsn() -> None:
    table = Memtable()
    for lsn in (2, 4, 6):
        table.add(lsn, rows(f"d{lsn}"))
    assert [lsn for lsn, _ in table.batches(4)] == [2, 4]
    assert [lsn for lsn, _ in table.batches(5)] == [2, 4]
    rest = table.after(4)
    assert rest.find("d4") == []
    assert len(rest.find("d6")) == 1
    assert rest.rows == 1
    rest.add(7, rows("e"))
    assert table.find("e") == []


def test_sorted_is_newest_first_and_leaves_out_what_is_hidden() -> None:
    table = Memtable()
    table.add(1, rows("b", "a"))
    table.add(2, rows("a"))
    table.add(3, rows("a", kind=2))
    runs = table.sorted()
    (found,) = runs.sources()[0]
    assert found.column(ID).to_pylist() == ["a", "a", "b"]
    assert lsns_of(found).tolist() == [3, 2, 1]
    assert found.schema.names[1] == LSN
    assert table.sorted() is runs
    table.add(4, rows("c"))
    assert table.sorted() is not runs


def test_readers_see_whole_batches() -> None:
    """While one thread adds, others never find one of two ids newer than the other."""
    table = Memtable()
    table.add(1, rows("a", "b", x=1))
    torn: list[tuple[int, int]] = []
    done = False

    def read() -> None:
        while not done:
            left, right = table.find_many(["a", "b"])
            if left[0][0] != right[0][0]:
                torn.append((left[0][0], right[0][0]))

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for lsn in range(2, 1500):
        table.add(lsn, rows("a", "b", x=lsn))
    done = True
    for reader in readers:
        reader.join()
    assert not torn

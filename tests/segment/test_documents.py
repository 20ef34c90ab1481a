"""Documents out of batches: every way gives the same values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from reef.data.documents import Documents, document_of, documents_of
from reef.data.rows import ID
from segment.making import ABSENT, rows, schema_of

DAY = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
SCHEMA = schema_of(
    b="bool",
    i="int64",
    f="float64",
    s="string",
    y="bytes",
    m="timestamp",
    l="list<string>",
    d="list<timestamp>",
    j="json",
    v="vector<float32, 2>",
    h="vector<float16, 1>",
)
VALUES = {
    "b": True,
    "i": -3,
    "f": 0.25,
    "s": "ü",
    "y": b"\xff",
    "m": DAY,
    "l": ["a", None, ""],
    "d": [DAY, None],
    "j": {"a": [1, None]},
    "v": [0.5, -1.0],
    "h": [0.5],
}
CELLS = {**VALUES, "j": '{"a":[1,null]}'}
BATCH = rows(
    SCHEMA,
    ["1", "2", "3", "4"],
    {name: [ABSENT, cell, None, cell] for name, cell in CELLS.items()},
)
EXPECTED = [
    {"id": "1"},
    {"id": "2", **VALUES},
    {"id": "3", **dict.fromkeys(VALUES)},
    {"id": "4", **VALUES},
]


def test_all_ways_agree() -> None:
    documents = Documents(BATCH)
    for row, expected in enumerate(EXPECTED):
        assert documents.document(row) == expected
        assert document_of(BATCH, row) == expected
        some = {name: expected[name] for name in ("id", "s", "m") if name in expected}
        assert documents.document(row, ["s", "m", "nothing"]) == some
        assert document_of(BATCH, row, ["s", "m", "nothing"]) == some
    assert documents_of(BATCH) == EXPECTED
    assert documents_of(BATCH, ["j", "nothing"])[1] == {"id": "2", "j": VALUES["j"]}


def test_slices() -> None:
    for start in range(4):
        part = BATCH.slice(start)
        documents = Documents(part)
        assert documents_of(part) == EXPECTED[start:]
        for row, expected in enumerate(EXPECTED[start:]):
            assert documents.document(row) == expected
            assert document_of(part, row) == expected


def test_moments_are_aware_and_in_utc() -> None:
    found = documents_of(BATCH)[1]["m"]
    assert isinstance(found, datetime)
    assert found.utcoffset() == timedelta(0)
    assert found.tzinfo is UTC


def test_full_columns_and_integer_ids() -> None:
    schema = schema_of("uint64", n="int64", j="json")
    batch = rows(schema, [5, 2**64 - 1], {"n": [1, 2], "j": ["null", "3"]})
    expected = [{"id": 5, "n": 1, "j": None}, {"id": 2**64 - 1, "n": 2, "j": 3}]
    assert documents_of(batch) == expected
    assert [Documents(batch).document(row) for row in (0, 1)] == expected
    assert documents_of(batch.slice(0, 0)) == []
    assert document_of(pa.RecordBatch.from_pydict({ID: ["x"]}), 0) == {"id": "x"}

"""Values that were never written: every way to make a document of them says so."""

from __future__ import annotations

import pyarrow as pa
import pytest

from reef.data.documents import Documents, document_of, documents_of
from reef.data.rows import field_of
from reef.data.schema import Schema
from reef.data.types import parse_type, type_of_arrow
from reef.errors import Corruption, InvalidInput

IDS = pa.array(["a", "b"])


def batch(kind: str, values: pa.Array) -> pa.RecordBatch:
    fields = [pa.field("id", pa.string()), field_of("x", parse_type(kind))]
    return pa.RecordBatch.from_arrays([IDS, values], schema=pa.schema(fields))


@pytest.mark.parametrize(
    "rows",
    [
        batch("json", pa.array(["{", "1"])),
        batch("json", pa.array(["[" * 5000 + "]" * 5000, "1"])),
        batch("timestamp", pa.array([2**62, 0], pa.timestamp("us", "UTC"))),
        batch("list<timestamp>", pa.array([[2**62], []], pa.list_(pa.timestamp("us", "UTC")))),
    ],
)
def test_values_that_cannot_be(rows: pa.RecordBatch) -> None:
    with pytest.raises(Corruption, match="document 'a'"):
        document_of(rows, 0)
    with pytest.raises(Corruption, match="document 'a'"):
        Documents(rows).document(0)
    with pytest.raises(Corruption, match="'a' to 'b'"):
        documents_of(rows)
    assert document_of(rows, 1) == Documents(rows).document(1)


@pytest.mark.parametrize(
    "value",
    [
        {"id": "float"},
        {"id": ["string"]},
        {"attributes": "x"},
        {"attributes": {"x": "int128"}},
        {"attributes": {"x": "vector<float32, " + "9" * 5000 + ">"}},
    ],
)
def test_schemas_that_are_none(value: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Schema.from_dict(value)


def test_vectors_have_dimensions() -> None:
    assert type_of_arrow(pa.list_(pa.float32(), 0)) is None
    assert type_of_arrow(pa.list_(pa.float32(), 65_537)) is None
    assert str(type_of_arrow(pa.list_(pa.float32(), 65_536))) == "vector<float32, 65536>"

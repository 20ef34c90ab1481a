"""Types that are not known yet: what they become, and what becomes of rows written before."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from reef import Schema, SchemaConflict
from reef.data.measure import bytes_together, rows_together
from reef.data.rows import concat
from reef.data.settling import lifted, lifted_batch, settled
from reef.data.types import parse_type, type_of_arrow

TYPES = ["null", "list<null>", "int64", "string", "list<int64>", "list<bytes>", "json"]
TYPES += ["vector<float32, 2>"]


def _expected(one: str, other: str) -> str | None:
    for first, second in ((one, other), (other, one)):
        if first in ("null", second):
            return second
        if first == "list<null>" and (second.startswith("list") or second == "json"):
            return second
    return None


@pytest.mark.parametrize(("one", "other"), list(product(TYPES, TYPES)))
def test_two_types_of_one_attribute(one: str, other: str) -> None:
    expected = _expected(one, other)
    found = settled(parse_type(one), parse_type(other))
    assert (None if found is None else str(found)) == expected
    known = Schema("string", {"a": parse_type(one)})
    if expected is None:
        with pytest.raises(SchemaConflict, match=f"'a' is {one}, not {other}"):
            known.extended({"a": parse_type(other)})
    else:
        assert str(known.extended({"a": parse_type(other)}).attributes["a"]) == expected


@pytest.mark.parametrize("text", TYPES)
def test_their_texts_and_arrow_types(text: str) -> None:
    kind = parse_type(text)
    assert str(kind) == text
    assert type_of_arrow(kind.arrow, json=text == "json") == kind
    assert Schema.from_dict(Schema(None, {"a": kind}).to_dict()).attributes["a"] == kind
    assert Schema(None, {"a": kind}).format == (2 if "null" in text else 1)


LISTS = pa.array([[], None, [None, None], [], [None]], pa.list_(pa.null()))


@pytest.mark.parametrize("start", [0, 1, 2])
@pytest.mark.parametrize("text", ["list<int64>", "list<string>", "list<timestamp>"])
def test_lists_of_nothing_become_lists_of_something(text: str, start: int) -> None:
    known = parse_type(text).arrow
    found = lifted(LISTS[start:4], known)
    found.validate(full=True)
    assert found.type == known
    assert found.to_pylist() == [[], None, [None, None], []][start:]


def test_lists_of_nothing_become_json() -> None:
    found = lifted(LISTS[1:], pa.string())
    assert found.to_pylist() == [None, "[null,null]", "[]", "[null]"]


@pytest.mark.parametrize("text", TYPES)
def test_nulls_become_nulls_of_anything(text: str) -> None:
    known = parse_type(text).arrow
    found = lifted(pa.nulls(3), known)
    assert found.type == known
    assert found.null_count == 3


def test_what_was_known_stays_the_same_array() -> None:
    for array in (pa.array([1]), pa.array(["a"]), pa.array([[1]]), pa.nulls(1)):
        for known in (pa.null(), pa.int64(), pa.list_(pa.null()), pa.list_(pa.int64())):
            if not pa.types.is_null(array.type):
                assert lifted(array, known) is array


def test_batches_are_put_together_as_those_who_know_have_it() -> None:
    ids = pa.array(["a"])
    batches = [
        pa.record_batch({"id": ids, "n": pa.nulls(1), "l": pa.array([[]], pa.list_(pa.null()))}),
        pa.record_batch({"id": ids, "l": pa.array([[7]]), "n": pa.array([5])}),
        pa.record_batch({"id": ids, "n": pa.nulls(1)}),
    ]
    found = concat(batches)
    assert found.to_pylist() == [
        {"id": "a", "n": None, "l": []},
        {"id": "a", "n": 5, "l": [7]},
        {"id": "a", "n": None, "l": None},
    ]
    assert lifted_batch(batches[0], found.schema).schema.types == found.schema.types


def test_what_they_come_to_is_counted_as_they_will_be() -> None:
    """Nulls beside vectors become as wide as vectors."""
    rows = 10_000
    nothing = pa.array([[None] * 20] * rows, pa.list_(pa.null()))
    unknown = pa.record_batch({"id": pa.array(["a"] * rows), "v": pa.nulls(rows), "l": nothing})
    vectors = pa.array([[1.0] * 64] * 10, pa.list_(pa.float32(), 64))
    known = pa.record_batch({"id": pa.array(["b"] * 10), "v": vectors})
    for batches in ([unknown, known], [known, unknown]):
        together = concat(batches)
        assert together.nbytes >= rows * 256
        assert bytes_together(batches) > 0.9 * together.nbytes
        assert rows_together(batches).sum() > 0.9 * together.nbytes

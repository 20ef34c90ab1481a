"""Ids and namespace names: what may be one, one at a time and in columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.data.convert import convert_deletes
from reef.data.ids import check_id, check_ids, check_namespace_name, ids_of_values
from reef.data.rows import DELETE, ID, KIND
from reef.data.schema import Schema
from reef.errors import InvalidId, InvalidName

STRINGS, INTEGERS, UNDECIDED = Schema("string"), Schema("uint64"), Schema()


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("a", STRINGS, "a"),
        ("a", UNDECIDED, "a"),
        ("x" * 512, STRINGS, "x" * 512),
        ("é" * 256, STRINGS, "é" * 256),
        ("a b\u00a0c/..", STRINGS, "a b\u00a0c/.."),
        (np.str_("a"), STRINGS, "a"),
        (0, INTEGERS, 0),
        (2**64 - 1, UNDECIDED, 2**64 - 1),
        (np.int8(3), INTEGERS, 3),
        (np.uint64(2**64 - 1), INTEGERS, 2**64 - 1),
    ],
)
def test_good_ids(value: Any, schema: Schema, expected: str | int) -> None:
    found = check_id(value, schema)
    assert found == expected
    assert type(found) is type(expected)
    column = ids_of_values([value, value], schema.id_kind)
    assert column.to_pylist() == [expected, expected]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("", STRINGS),
        ("x" * 513, STRINGS),
        ("é" * 257, STRINGS),
        ("a\nb", STRINGS),
        ("a\x7f", STRINGS),
        ("\x80", STRINGS),
        ("é\x9f", STRINGS),
        ("\0", STRINGS),
        ("a\ud800", STRINGS),
        ("a", INTEGERS),
        (1, STRINGS),
        (-1, INTEGERS),
        (2**64, INTEGERS),
        pytest.param(10**5000, INTEGERS, id="huge"),
        pytest.param(10**5000, STRINGS, id="huge for strings"),
        (True, INTEGERS),
        (np.bool_(True), UNDECIDED),
        (1.0, INTEGERS),
        (None, STRINGS),
        (b"a", STRINGS),
        (np.int64(-3), INTEGERS),
    ],
)
def test_bad_ids(value: Any, schema: Schema) -> None:
    with pytest.raises(InvalidId):
        check_id(value, schema)
    good: Any = 7 if schema.id_kind == "uint64" else "good"
    with pytest.raises(InvalidId, match=r"row 1\b|has (string|uint64) ids"):
        ids_of_values([good, value], schema.id_kind)


@pytest.mark.parametrize(
    ("array", "kind", "expected"),
    [
        (pa.array(["a", "b"]), "string", ["a", "b"]),
        (pa.array(["x", "a", "é"])[1:], None, ["a", "é"]),
        (pa.array(["a", "b"], pa.large_string()), "string", ["a", "b"]),
        (pa.array(["a", "b"], pa.string_view()), None, ["a", "b"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), None, ["a", "b", "a"]),
        (pa.array([1, 2], pa.int8()), None, [1, 2]),
        (pa.array([2**64 - 1], pa.uint64()), "uint64", [2**64 - 1]),
        (pa.array([], pa.string()), "uint64", []),
        (pa.nulls(0), "uint64", []),
        (pa.nulls(0), None, []),
    ],
)
def test_good_columns(array: pa.Array, kind: str | None, expected: list[Any]) -> None:
    found = check_ids(array, kind)
    assert found.to_pylist() == expected
    assert found.type in (pa.string(), pa.uint64())
    if kind is not None:
        assert str(found.type) == kind


@pytest.mark.parametrize(
    ("array", "kind", "words"),
    [
        (pa.array(["a", None]), None, "row 1 is missing"),
        (pa.array(["x", "a", ""])[1:], None, "row 1 is empty"),
        (pa.array(["a", "b" * 513]), None, "row 1 has 513 bytes"),
        (pa.array(["x", "ab", "c\td"])[1:], None, "row 1 has a control"),
        (pa.array(["é", "ok", "\x85"]), None, "row 2 has a control"),
        (pa.array([3, -1]), None, "row 1 is negative"),
        (pa.array([3, 1]), "string", "has string ids"),
        (pa.array(["a"]), "uint64", "has uint64 ids"),
        (pa.array([True]), None, "not bool"),
        (pa.array([1.0]), None, "not double"),
        (pa.nulls(2), None, "row 0 is missing"),
        (pa.array([b"a\xff"]).view(pa.string()), None, "not valid UTF-8"),
    ],
)
def test_bad_columns(array: pa.Array, kind: str | None, words: str) -> None:
    with pytest.raises(InvalidId, match=words):
        check_ids(array, kind)


@given(st.text(max_size=5))
def test_one_by_one_and_in_columns_agree(text: str) -> None:
    try:
        expected: str | None = str(check_id(text, STRINGS))
    except InvalidId:
        expected = None
    try:
        found = check_ids(pa.array(["first", text]), "string").to_pylist()[1]
    except InvalidId:
        found = None
    assert found == expected


def test_kinds_do_not_mix_in_one_batch() -> None:
    with pytest.raises(InvalidId, match="row 1"):
        ids_of_values(["a", 1], None)


def test_deletes() -> None:
    batch, schema = convert_deletes(["a", "b", "a"], UNDECIDED)
    assert schema.id_kind == "string"
    assert batch.column(ID).to_pylist() == ["a", "b", "a"]
    assert batch.column(KIND).to_pylist() == [DELETE] * 3
    batch, _ = convert_deletes(np.array([1, 2]), INTEGERS)
    assert batch.column(ID).type == pa.uint64()
    assert convert_deletes([], UNDECIDED)[1] is UNDECIDED
    with pytest.raises(InvalidId, match="row 1"):
        convert_deletes(["a", None], STRINGS)


@pytest.mark.parametrize("name", ["a", "9", "Movies_2.x-y", "a" * 128, "a.b"])
def test_good_namespace_names(name: str) -> None:
    assert check_namespace_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".a", "-a", "_a", "a..b", "a/b", "a b", "é", "a" * 129, "a\n", None, 3]
)
def test_bad_namespace_names(name: Any) -> None:
    with pytest.raises(InvalidName):
        check_namespace_name(name)

"""Order keys sort and tell apart as ids do."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.lsm.order import find_sorted, is_increasing, newest_first, order_keys

letters = st.characters(blacklist_categories=("Cs", "Cc"))
strings = st.lists(
    st.one_of(
        st.text(letters, min_size=1, max_size=12),
        st.text("ab", min_size=1, max_size=40),
        st.text("é\U0001f600z", min_size=7, max_size=12),
    ),
    max_size=40,
)
numbers = st.lists(st.integers(0, 2**64 - 1), max_size=40)


def arrays(ids: list[str] | list[int]) -> pa.Array:
    whole = pa.array(ids, pa.uint64() if ids and isinstance(ids[0], int) else pa.string())
    # A slice, for buffers begin elsewhere then.
    padded = pa.concat_arrays([whole[:1], whole])
    return padded[len(padded) - len(whole) :]


@given(strings | numbers)
def test_keys_order_as_ids(ids: list[str] | list[int]) -> None:
    keys = [tuple(key) for key in zip(*(k.tolist() for k in order_keys(arrays(ids))), strict=True)]
    by_key = [ids[place] for place in sorted(range(len(ids)), key=lambda place: keys[place])]
    assert by_key == sorted(ids)  # type: ignore[type-var]
    assert len(set(keys)) == len(set(ids))


@pytest.mark.parametrize("log_order", [False, True])
@given(
    rows=st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=35), st.integers(1, 4)), max_size=40
    )
)
def test_newest_first(log_order: bool, rows: list[tuple[str, int]]) -> None:
    ids = arrays([id for id, _ in rows])
    lsns = np.array([lsn for _, lsn in rows], dtype=np.uint64)
    order, starts = newest_first(ids, lsns, log_order=log_order)
    later = -1 if log_order else 1
    expected = sorted(range(len(rows)), key=lambda n: (rows[n][0], -rows[n][1], later * n))
    assert order.tolist() == expected
    assert [rows[n][0] for n, new in zip(expected, starts, strict=True) if new] == sorted(
        {id for id, _ in rows}
    )


@given(strings | numbers, st.data())
def test_find_sorted(ids: list[str] | list[int], data: st.DataObject) -> None:
    ids = sorted(ids)  # type: ignore[type-var]
    bound = data.draw(
        st.sampled_from(ids)
        if ids and data.draw(st.booleans())
        else st.just("b")
        if not ids or isinstance(ids[0], str)
        else st.integers(0, 2**64 - 1)
    )
    array = arrays(ids)
    assert find_sorted(array, bound, after=False) == sum(id < bound for id in ids)  # type: ignore[operator]
    assert find_sorted(array, bound, after=True) == sum(id <= bound for id in ids)  # type: ignore[operator]


@given(strings | numbers)
def test_is_increasing(ids: list[str] | list[int]) -> None:
    assert is_increasing(arrays(ids)) == all(
        a < b  # type: ignore[operator]
        for a, b in itertools.pairwise(ids)
    )


def test_long_ids_that_differ_at_the_end() -> None:
    ids = ["x" * 511 + last for last in "cab"] + ["x" * 32, "x" * 33]
    order, starts = newest_first(pa.array(ids), np.ones(5, dtype=np.uint64), log_order=True)
    assert [ids[n] for n in order] == sorted(ids)
    assert starts.all()

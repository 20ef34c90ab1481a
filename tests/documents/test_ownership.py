"""What was written stays what it was, whatever its owner does with the arrays afterwards."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reef


def _columns(values: np.ndarray) -> object:
    return {"id": np.arange(4, dtype=np.uint64), "x": values}


def _table(values: np.ndarray) -> object:
    return pa.table({"id": np.arange(4, dtype=np.uint64), "x": values})


def _frame(values: np.ndarray) -> object:
    return pd.DataFrame({"id": np.arange(4, dtype=np.uint64), "x": values}, copy=False)


@pytest.mark.parametrize("make", [_columns, _table, _frame])
def test_arrays_changed_after_the_write_change_nothing(make: object) -> None:
    values = np.arange(4.0)
    assert callable(make)
    with reef.connect("memory://").namespace("n", maintain=False) as namespace:
        namespace.write(upserts=make(values))
        values[:] = 99.0
        assert namespace.get(1) == {"id": 1, "x": 1.0}
        namespace.index()
        assert namespace.get(1) == {"id": 1, "x": 1.0}

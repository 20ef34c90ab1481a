"""The table that the Spark benchmarks use, as Parquet files with ids in random order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.data import texts

COLUMNS = ("id", "n", "price", "category", "text", "v")
DIMENSIONS = 32
PARTS = 8
_CATEGORIES = 20
_SEED = 20_261_115


def make_table(folder: Path, rows: int, parts: int) -> None:
    """Write the rows as that many files. `n` grows with the id, so it is clustered."""
    folder.mkdir(parents=True)
    order = np.random.default_rng(_SEED).permutation(rows)
    for number, numbers in enumerate(np.array_split(order, parts)):
        pq.write_table(rows_of(number, numbers), folder / f"{number:03d}.parquet")


def rows_of(part: int, numbers: np.ndarray) -> pa.Table:
    """The rows of those numbers; what is random in them depends on the part's number."""
    random = np.random.default_rng([_SEED, part])
    count = len(numbers)
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0")
    values = random.standard_normal(count * DIMENSIONS, dtype=np.float32)
    return pa.table(
        {
            "id": pc.binary_join_element_wise("id-", digits, ""),
            "n": pa.array(numbers.astype(np.int64)),
            "price": pa.array(np.round(random.lognormal(3.0, 1.0, count), 2)),
            "category": pc.take(
                pa.array([f"category-{value:02d}" for value in range(_CATEGORIES)]),
                pa.array(random.integers(0, _CATEGORIES, count)),
            ),
            "text": texts(random, count),
            "v": pa.ListArray.from_arrays(
                np.arange(0, count * DIMENSIONS + 1, DIMENSIONS, dtype=np.int32), pa.array(values)
            ),
        }
    )

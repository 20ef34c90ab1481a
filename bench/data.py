"""The data that every benchmark uses: the same rows on every run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DIMENSIONS = 128
TEXT_LENGTH = 200
_SEED = 20_240_229
_VOCABULARY = 2_000
_CATEGORIES = 20
_LETTERS = np.frombuffer(b"etaoinshrdlucmfwypvbgk", np.uint8)
_CHUNK = 50_000


@lru_cache(maxsize=2)
def documents(count: int, dimensions: int = DIMENSIONS) -> pa.Table:
    """Documents in random id order: id, category, year, price, text, and an embedding if wanted.

    The first rows are the same whatever the count.
    """
    chunks = []
    for number, start in enumerate(range(0, count, _CHUNK)):
        rows = _chunk(number, dimensions).slice(0, min(_CHUNK, count - start))
        chunks.append(rows)
    return pa.Table.from_batches(chunks).combine_chunks()


@lru_cache(maxsize=16)
def _chunk(number: int, dimensions: int) -> pa.RecordBatch:
    random = np.random.default_rng([_SEED, number])
    columns = {
        "id": _ids(random, _CHUNK),
        "category": pc.take(
            pa.array([f"category-{value:02d}" for value in range(_CATEGORIES)]),
            pa.array(random.integers(0, _CATEGORIES, _CHUNK)),
        ),
        "year": pa.array(random.integers(1950, 2025, _CHUNK)),
        "price": pa.array(np.round(random.lognormal(3.0, 1.0, _CHUNK), 2)),
        "text": texts(random, _CHUNK),
    }
    if dimensions:
        values = random.standard_normal(_CHUNK * dimensions, dtype=np.float32)
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(values), dimensions)
    return pa.RecordBatch.from_pydict(columns)


def _ids(random: np.random.Generator, count: int) -> pa.Array:
    text = random.bytes(count * 8).hex().encode()
    return pa.Array.from_buffers(
        pa.string(),
        count,
        [
            None,
            pa.py_buffer(np.arange(0, (count + 1) * 16, 16, dtype=np.int32)),
            pa.py_buffer(text),
        ],
    )


@lru_cache(maxsize=1)
def _vocabulary() -> pa.Array:
    random = np.random.default_rng(_SEED)
    lengths = random.integers(3, 10, _VOCABULARY)
    return pa.array([random.choice(_LETTERS, length).tobytes().decode() for length in lengths])


def texts(random: np.random.Generator, count: int) -> pa.Array:
    """Texts of 200 letters over a small vocabulary."""
    words_each = TEXT_LENGTH // 4 + 1
    words = _vocabulary().take(pa.array(random.integers(0, _VOCABULARY, count * words_each)))
    lists = pa.ListArray.from_arrays(
        np.arange(0, count * words_each + 1, words_each, dtype=np.int32), words
    )
    return pc.utf8_slice_codeunits(pc.binary_join(lists, " "), 0, TEXT_LENGTH)


@dataclass(frozen=True)
class Pairs:
    """Key-values: a 16-letter id and 100 random bytes, in random order."""

    ids: list[str]
    keys: list[bytes]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.ids)

    def table(self, start: int, stop: int) -> pa.Table:
        """Some of them as an Arrow table."""
        return pa.table(self.columns(start, stop))

    def columns(self, start: int, stop: int) -> dict[str, list[str] | list[bytes]]:
        """Some of them as Python lists."""
        return {"id": self.ids[start:stop], "value": self.values[start:stop]}


@lru_cache(maxsize=2)
def pairs(count: int) -> Pairs:
    """Key-values, the same on every run."""
    random = np.random.default_rng(_SEED + 1)
    ids = _ids(random, count).to_pylist()
    flat = random.bytes(count * 100)
    values = [flat[start : start + 100] for start in range(0, len(flat), 100)]
    return Pairs(ids, [identity.encode() for identity in ids], values)

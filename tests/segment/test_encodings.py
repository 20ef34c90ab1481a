"""Each encoding is chosen where it should be, is small, and is undone exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from reef.data.types import parse_type
from reef.errors import Corruption
from reef.segment.block import decode_block, encode_block
from reef.segment.decode import MalformedNode, decode_column, decode_keys
from reef.segment.encode import encode_column, encode_keys
from reef.segment.node import (
    BITS,
    DECIMALS,
    DICTIONARY,
    LISTS,
    NODE,
    NOTHING,
    OFFSETS,
    PLAIN,
    STEPS,
    TEXT,
)

N = 1000
_random = np.random.default_rng(7)
_unsorted = _random.integers(0, 200, N)


def _body(values: pa.Array, name: str, nulls: np.ndarray | None = None) -> bytes:
    return b"".join(encode_column(values, parse_type(name), nulls))


CASES: list[tuple[str, Any, int, int, int]] = [
    # type, values, tag, width, largest body
    ("int64", [7] * N, OFFSETS, 0, 16),
    ("int64", [-(2**63)] * N, OFFSETS, 0, 16),
    ("int64", (_unsorted - 100).tolist(), OFFSETS, 1, N + 16),
    ("int64", (_unsorted * 300).tolist(), OFFSETS, 2, 2 * N + 16),
    ("int64", (_unsorted * 300_000).tolist(), OFFSETS, 4, 4 * N + 16),
    ("int64", [2**63 - 1, -(2**63), *_unsorted.tolist()], PLAIN, 8, 8 * (N + 2) + 8),
    ("int64", list(range(10**12, 10**12 + N)), STEPS, 0, 24),
    ("int64", np.cumsum(_unsorted * 10**6).tolist(), STEPS, 4, 4 * N + 32),
    ("timestamp", (np.arange(N) * 1000 + 10**15).tolist(), STEPS, 0, 24),
    ("float64", [1.5] * N, OFFSETS, 0, 16),
    ("float64", [math.nan] * N, OFFSETS, 0, 16),
    ("float64", (_unsorted / 100).tolist(), DECIMALS, 0, N + 32),
    ("float64", [float(n) for n in _unsorted], DECIMALS, 0, N + 32),
    ("float64", [-0.0, *_unsorted.tolist()], PLAIN, 8, 8 * N + 24),
    ("float64", [math.inf, *_unsorted.tolist()], PLAIN, 8, 8 * N + 24),
    ("float64", _random.random(N).tolist(), PLAIN, 8, 8 * N + 8),
    ("bool", [True, False] * (N // 2), BITS, 0, N // 8 + 16),
    ("string", ["red", "green", "blue", "red"] * (N // 4), DICTIONARY, 0, N + 120),
    ("string", [f"{n:04}" for n in range(N)], TEXT, 0, 4 * N + 40),
    ("string", ["x" * n for n in range(N)], TEXT, 0, N * N // 2 + 40),
    ("string", [""] * 3, TEXT, 0, 40),
    ("bytes", [b"\xff\x00"] * N, DICTIONARY, 0, 80),
    ("json", ["[]"] * N, DICTIONARY, 0, 80),
    ("list<int64>", [[1, 2], [], [3, None]], LISTS, 0, 80),
    ("list<string>", [[], [], []], LISTS, 0, 40),
    ("vector<float32, 4>", [[0.5, 1.5, 2.5, 3.5]] * N, PLAIN, 4, 16 * N + 8),
    ("vector<float16, 2>", np.ones((N, 2), np.float16).tolist(), PLAIN, 2, 4 * N + 8),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}-{case[3]}")
def test_encoding(case: tuple[str, Any, int, int, int]) -> None:
    name, values, tag, width, largest = case
    kind = parse_type(name)
    array = pa.array(values, kind.arrow)
    # A slice in the middle of a longer array must encode as the array itself.
    padded = pa.concat_arrays([array[:1], array, array[-1:]])[1 : len(array) + 1]
    body = _body(padded, name)
    assert NODE.unpack_from(body)[:3] == (tag, width, 0)
    assert len(body) <= largest
    got = decode_column(pa.py_buffer(body), kind, len(array)).values
    got.validate(full=True)
    assert got.type == array.type
    assert _same(got, array)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}-{case[3]}")
def test_encoding_with_missing_values(case: tuple[str, Any, int, int, int]) -> None:
    name, values, *_ = case
    kind = parse_type(name)
    mask = np.arange(len(values)) % 3 == 1
    array = pa.array(
        [None if gone else value for gone, value in zip(mask, values, strict=True)], kind.arrow
    )
    nulls = np.arange(len(values)) % 6 == 1
    got = decode_column(pa.py_buffer(_body(array, name, nulls)), kind, len(array))
    got.values.validate(full=True)
    assert _same(got.values, array)
    assert got.nulls is not None
    assert got.nulls.to_pylist() == nulls.tolist()
    nothing = pa.nulls(5, kind.arrow)
    body = _body(nothing, name, np.ones(5, bool))
    assert NODE.unpack_from(body)[0] == NOTHING
    assert decode_column(pa.py_buffer(body), kind, 5).values.equals(nothing)


def _same(left: pa.Array, right: pa.Array) -> bool:
    return repr(left.to_pylist()) == repr(right.to_pylist())


@pytest.mark.parametrize(
    ("ids", "largest"),
    [
        (pa.array(np.arange(N, dtype=np.uint64) + np.uint64(2**63)), 80),
        (pa.array([0, 2**64 - 1], pa.uint64()), 100),
        (pa.array([f"{n:06}" for n in range(N)]), 6 * N + 100),
    ],
)
def test_keys(ids: pa.Array, largest: int) -> None:
    count = len(ids)
    lsns = np.full(count, 2**64 - 1, np.uint64)
    body = b"".join(encode_keys(ids, lsns, np.zeros(count, np.uint8)))
    assert len(body) <= largest
    keys = decode_keys(pa.py_buffer(body), ids.type, count)
    assert keys.ids.equals(ids)
    assert keys.lsns is not None
    assert (keys.lsns == lsns).all()
    assert not keys.kinds.any()


def test_random_floats_stay_raw_and_are_not_copied() -> None:
    kind = parse_type("vector<float32, 128>")
    numbers = _random.standard_normal(128 * 500).astype(np.float32)
    array = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 128)
    parts, length, crc = encode_block(encode_column(array, kind, None))
    data = memoryview(b"".join(parts))
    assert length == len(data) == numbers.nbytes + 24
    body = decode_block("k", 0, data, length, crc)
    got = decode_column(body, kind, 500).values
    address = np.frombuffer(data, np.uint8).ctypes.data
    assert address <= got.values.buffers()[1].address < address + len(data)
    assert got.equals(array)


def test_text_is_compressed() -> None:
    array = pa.array([f"the quick brown fox number {n}" for n in range(N)])
    _, length, _ = encode_block(encode_column(array, parse_type("string"), None))
    assert length < array.nbytes / 4


@pytest.mark.parametrize("name", ["int64", "string", "list<int64>", "vector<float32, 2>", "bool"])
def test_a_body_cut_anywhere_is_refused(name: str) -> None:
    kind = parse_type(name)
    values: Any = {
        "int64": [1, 500, 3],
        "string": ["a", "bb", ""],
        "list<int64>": [[1], [2, 3], []],
        "vector<float32, 2>": [[1, 2], [3, 4], [5, 6]],
        "bool": [True] * 3,
    }[name]
    body = _body(pa.array(values, kind.arrow), name)
    end = len(body)
    while end and body[end - 1] == 0:
        end -= 1
    for length in range(end):
        with pytest.raises((MalformedNode, ValueError)):
            decode_column(pa.py_buffer(body[:length]), kind, 3)


def test_lengths_that_claim_too_much_are_refused_without_allocating() -> None:
    kind = parse_type("string")
    body = bytearray(_body(pa.array(["a", "b"]), "string"))
    body[16:24] = (2**60).to_bytes(8, "little")
    with pytest.raises(MalformedNode):
        decode_column(pa.py_buffer(body), kind, 2)
    parts, length, crc = encode_block([b"x" * 1000])
    data = bytearray(b"".join(parts))
    data[8:12] = b"\xff\xff\xff\xff"
    crc = crc32c(data[8:])
    data[4:8] = crc.to_bytes(4, "little")
    with pytest.raises(Corruption):
        decode_block("k", 0, memoryview(data), length, crc)

"""The id filter never lacks an id and seldom has one too many."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.errors import Corruption
from reef.segment.bloom import BloomFilter, build_filter, hash_id, hash_ids


def filter_of(ids: pa.Array) -> BloomFilter:
    return BloomFilter("k", 0, memoryview(build_filter(hash_ids(ids))))


@given(st.sets(st.text(min_size=1), min_size=1) | st.sets(st.integers(0, 2**64 - 1), min_size=1))
def test_one_and_many_agree(ids: set[str] | set[int]) -> None:
    kind = pa.string() if isinstance(next(iter(ids)), str) else pa.uint64()
    array = pa.array(sorted(ids), kind)  # type: ignore[type-var]
    hashes = hash_ids(array)
    assert hashes.tolist() == [hash_id(identity) for identity in array.to_pylist()]
    bloom = filter_of(array[: len(array) // 2 + 1])
    many = bloom.may_contain_hashes(hashes).tolist()
    assert many == [bloom.may_contain(identity) for identity in array.to_pylist()]
    assert all(many[: len(array) // 2 + 1])


@pytest.mark.parametrize("kind", ["string", "uint64"])
def test_false_positives_are_about_one_in_a_hundred(kind: str) -> None:
    values = range(20_000)
    all_ids = pa.array([str(v) for v in values] if kind == "string" else list(values))
    all_ids = all_ids.cast(pa.string() if kind == "string" else pa.uint64())
    bloom = filter_of(all_ids[:10_000])
    assert bloom.nbytes <= 10_000 * 10 // 8 + 8
    wrong = bloom.may_contain_hashes(hash_ids(all_ids[10_000:])).sum()
    assert wrong < 200


def test_a_slice_hashes_as_itself() -> None:
    ids = pa.array(["a", "bb", "ccc"])
    assert hash_ids(ids[1:]).tolist() == hash_ids(pa.array(["bb", "ccc"])).tolist()


@pytest.mark.parametrize(
    "data", [b"", b"x" * 15, bytes(16), (64).to_bytes(8, "little") + bytes(16)]
)
def test_other_shapes_are_refused(data: bytes) -> None:
    with pytest.raises(Corruption):
        BloomFilter("k", 0, memoryview(data))

"""Damage is found and named, and never gives a wrong answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c

from reef.data.rows import ID, concat
from reef.errors import Corruption, ObjectNotFound, UnsupportedFormat
from reef.segment import BlockCache, SegmentInfo, SegmentReader, describe, encoded_group
from reef.segment import reader as reader_module
from reef.segment.layout import TRAILER, VERSION, Footer, encode_footer
from reef.segment.tail import Tail
from reef.store import MemoryStore
from segment.making import ABSENT, bits, encoded, rows, schema_of

SCHEMA = schema_of(n="int64", t="string", l="list<int64>", v="vector<float32, 2>")
IDS = [f"{i:03}" for i in range(8)]
BATCH = rows(
    SCHEMA,
    IDS,
    {
        "n": [None if i == 3 else i * i for i in range(8)],
        "t": ["a text that repeats itself"] * 7 + [ABSENT],
        "l": [[1, None]] * 4 + [[]] * 4,
        "v": [[i, i / 2] for i in range(8)],
    },
    kinds=[0] * 7 + [1],
)
DATA, INFO = encoded([BATCH], SCHEMA, group_bytes=220)
EXPECTED = bits(BATCH)
STORE = MemoryStore()
BROKEN = (Corruption, UnsupportedFormat)


def reader_of(data: bytes | bytearray, info: SegmentInfo = INFO) -> SegmentReader:
    STORE.put("segment", bytes(data))
    return SegmentReader(STORE, "segment", info, BlockCache(1 << 20))


@pytest.fixture(params=["whole", "ranges"])
def fetching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small segments are fetched whole, others by ranges: both must be safe."""
    if request.param == "ranges":
        monkeypatch.setattr(reader_module, "SMALL_SEGMENT", 0)
    return str(request.param)


def test_the_sample_has_several_groups_and_is_sound() -> None:
    reader = reader_of(DATA)
    assert len(reader.groups()) >= 3
    assert reader.verify(deep=True) == []
    assert reader.verify() == []


def test_every_flipped_byte_is_found_and_no_read_lies(fetching: str) -> None:
    tail_start = INFO.size - INFO.tail
    for position in range(len(DATA)):
        data = bytearray(DATA)
        data[position] ^= 1 << position % 8
        reader = reader_of(data)
        if fetching == "ranges":
            # Verification fetches in one way only.
            problems = reader.verify(deep=True)
            assert problems, position
            assert all(problem.key == "segment" for problem in problems)
            assert all(0 <= problem.offset <= len(DATA) for problem in problems)
            assert position < tail_start or reader.verify(), position
        with suppress(*BROKEN):
            assert bits(concat(list(reader.read(reader.groups())))) == EXPECTED
        with suppress(*BROKEN):
            assert bits(concat(list(reader.lookup(pa.array(IDS))))) == EXPECTED
        for row in (0, 3, 7):
            with suppress(*BROKEN):
                found = reader.find(IDS[row])
                assert found is not None
                n = BATCH.column("n")[row].as_py()
                assert found[0].document(found[1], ["n"]) == {"id": IDS[row], "n": n}


def test_every_truncation_is_found(fetching: str) -> None:
    edges = {0, 1, 15, 16, 17, INFO.size - INFO.tail, INFO.size - 1}
    index = reader_of(DATA).tail().index
    for group in range(index.count):
        for place in index.places(group).values():
            edges |= {place.offset, place.offset + 8, place.offset + place.length}
    for length in sorted(edges):
        reader = reader_of(DATA[:length])
        with pytest.raises(Corruption) as caught:
            list(reader.read(reader.groups()))
        assert caught.value.key == "segment"
        assert caught.value.offset <= len(DATA)
        with pytest.raises(Corruption):
            reader.find(IDS[0])
        assert reader.verify()
        assert reader.verify(deep=True)


def test_trailing_bytes_are_found() -> None:
    assert reader_of(DATA + b"x").verify()


def test_blocks_that_were_swapped_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "SMALL_SEGMENT", 0)
    schema = schema_of(n="int64")
    batch = rows(schema, ["a", "b"], {"n": [1, 2]})
    data, info = encoded([batch], schema, group_bytes=1)
    first, second = (reader_of(data, info).tail().index.places(g)["n"] for g in (0, 1))
    assert first.length == second.length
    swapped = bytearray(data)
    swapped[first.offset : first.offset + first.length] = data[
        second.offset : second.offset + second.length
    ]
    reader = reader_of(swapped, info)
    with pytest.raises(Corruption) as caught:
        list(reader.read(reader.groups()))
    assert caught.value.offset == first.offset


def test_another_segment_in_its_place_is_found() -> None:
    other = msgspec.structs.replace(INFO, id="other")
    with pytest.raises(Corruption):
        reader_of(DATA, other).groups()
    assert reader_of(DATA, other).verify()


def test_a_missing_object() -> None:
    reader = SegmentReader(MemoryStore(), "segment", INFO, BlockCache(1))
    with pytest.raises(ObjectNotFound):
        reader.groups()
    (problem,) = reader.verify()
    assert "missing" in str(problem)


def _with_trailer(data: bytes, *, length: int | None = None, version: int | None = None) -> bytes:
    size, known, _, zero, magic = TRAILER.unpack(data[-TRAILER.size :])
    body = data[-TRAILER.size - size : -TRAILER.size]
    size = size if length is None else length
    known = known if version is None else version
    covered = size.to_bytes(4, "little") + known.to_bytes(4, "little")
    return data[: -TRAILER.size] + TRAILER.pack(
        size, known, crc32c(covered, crc32c(body)), zero, magic
    )


def test_a_newer_format_is_told_from_damage(fetching: str) -> None:
    newer = _with_trailer(DATA, version=VERSION + 1)
    with pytest.raises(UnsupportedFormat):
        reader_of(newer).groups()
    store = MemoryStore()
    store.put("segment", newer)
    with pytest.raises(UnsupportedFormat):
        describe(store, "segment")
    assert reader_of(newer).verify()
    head = DATA[:8] + (VERSION + 1).to_bytes(4, "little") + DATA[12:]
    assert any(
        f"format {VERSION + 1}" in problem.meaning for problem in reader_of(head).verify(deep=True)
    )


def _with_footer(change: Any) -> tuple[bytes, SegmentInfo]:
    """The sample with a footer that was changed and is sound by its checksum."""
    tail = Tail("segment", memoryview(DATA), len(DATA))
    start = tail.footer.index.offset + tail.footer.index.length
    footer: Footer = change(tail.footer)
    data = DATA[:start] + encode_footer(footer, 1)
    size = len(data)
    return data, msgspec.structs.replace(
        INFO, size=size, tail=size - tail.footer.data_end, checksum=crc32c(data)
    )


@pytest.mark.parametrize("huge", [2**31, 2**60, 2**63, -1])
@pytest.mark.parametrize("field", ["offset", "length", "raw"])
@pytest.mark.parametrize("section", ["filter", "index"])
def test_absurd_claims_do_not_allocate(section: str, field: str, huge: int) -> None:
    def change(footer: Footer) -> Footer:
        claimed = msgspec.structs.replace(getattr(footer, section), **{field: huge})
        return msgspec.structs.replace(footer, **{section: claimed})

    data, info = _with_footer(change)
    with pytest.raises(Corruption):
        reader_of(data, info).groups()
    with pytest.raises(Corruption):
        reader_of(_with_trailer(DATA, length=2**32 - 1)).groups()


def test_disagreements_are_found_by_verify() -> None:
    data, info = _with_footer(lambda footer: msgspec.structs.replace(footer, max_lsn=5))
    (problem,) = reader_of(data, info).verify()
    assert "LSN" in problem.meaning


def test_wrong_statistics_and_filters_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_group, "bounds_of", lambda values, kind: (3, 5))
    schema = schema_of(n="int64")
    data, info = encoded([rows(schema, ["a", "b"], {"n": [4, 6]})], schema)
    assert any("bound" in p.meaning for p in reader_of(data, info).verify(deep=True))
    assert reader_of(data, info).verify() == []
    monkeypatch.undo()
    monkeypatch.setattr(encoded_group, "hash_ids", lambda ids: np.zeros(len(ids), np.uint64))
    data, info = encoded([rows(schema, ["a", "b"], {"n": [4, 6]})], schema)
    assert any("filter" in p.meaning for p in reader_of(data, info).verify(deep=True))


def test_a_segment_describes_itself() -> None:
    store = MemoryStore()
    store.put("segment", DATA)
    assert describe(store, "segment") == INFO
    for cut in (0, 10, len(DATA) - 1):
        store.put("segment", DATA[:cut])
        with pytest.raises(Corruption):
            describe(store, "segment")


def test_two_rows_share_no_id() -> None:
    assert len(set(BATCH.column(ID).to_pylist())) == INFO.rows

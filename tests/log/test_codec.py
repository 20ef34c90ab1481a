"""RFWAL1: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef.errors import Corruption, UnsupportedFormat
from reef.log import BatchHeader, LogHeader, decode, encode

json_values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
batches = st.builds(
    BatchHeader,
    st.integers(0, 2**40),
    st.none() | st.text(),
    st.none() | st.dictionaries(st.text(), json_values),
    st.none() | st.dictionaries(st.text(), json_values),
)
headers = st.builds(
    LogHeader,
    lsn=st.integers(1, 2**63),
    writer=st.text(),
    epoch=st.integers(0, 2**63),
    nonce=st.text(),
    created_at=st.floats(0, 1e12),
    guest=st.booleans(),
    skips=st.lists(st.integers(1, 2**63), max_size=3).map(tuple),
    batches=st.lists(batches, max_size=3).map(tuple),
)
records = st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=3), max_size=4)

HEADER = LogHeader(
    7, "me", 3, "abcd", 12.5, batches=(BatchHeader(2, "key", {"kind": "absent"}, {"deleted": 1}),)
)
OBJECT = b"".join(encode(HEADER, [[b"first ", b"record"], [b""], [b"third"]]))


def decoded(data: bytes) -> object:
    return decode("k", memoryview(data))


@given(headers, records)
def test_round_trip(header: LogHeader, payload: list[list[bytes]]) -> None:
    data = b"".join(encode(header, payload))
    entry = decode("k", memoryview(data))
    assert entry.header == header
    assert [bytes(record) for record in entry.records] == [b"".join(parts) for parts in payload]
    assert entry.size == len(data)
    assert entry.lsn == header.lsn


def test_every_bit_flip_is_detected() -> None:
    for offset in range(len(OBJECT)):
        for bit in range(8):
            data = bytearray(OBJECT)
            data[offset] ^= 1 << bit
            with pytest.raises(Corruption) as caught:
                decoded(bytes(data))
            assert caught.value.key == "k"
            assert 0 <= caught.value.offset < len(OBJECT)


def test_every_truncation_is_detected() -> None:
    for length in range(len(OBJECT)):
        with pytest.raises(Corruption):
            decoded(OBJECT[:length])


@pytest.mark.parametrize("extra", [b"\0", b"x" * 8, OBJECT[-8:], OBJECT])
def test_what_follows_is_detected(extra: bytes) -> None:
    with pytest.raises(Corruption):
        decoded(OBJECT + extra)


@pytest.mark.parametrize("length", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_lengths_that_lie(length: int) -> None:
    for offset in (12, OBJECT.index(b"first ") - 8):
        if struct.unpack_from("<I", OBJECT, offset)[0] == length:
            continue
        data = bytearray(OBJECT)
        struct.pack_into("<I", data, offset, length)
        with pytest.raises(Corruption):
            decoded(bytes(data))


@given(st.binary(max_size=200))
def test_garbage_is_corruption(data: bytes) -> None:
    with pytest.raises(Corruption):
        decoded(data)
    with pytest.raises(Corruption):
        decoded(OBJECT[:12] + data)


def resealed(data: bytes) -> bytes:
    from crc32c import crc32c

    return data[:-4] + crc32c(data[:-8]).to_bytes(4, "little")


def test_a_newer_format_is_named() -> None:
    data = bytearray(OBJECT)
    data[8] = 9
    with pytest.raises(UnsupportedFormat, match="9"):
        decoded(resealed(bytes(data)))


def test_a_header_that_is_not_one() -> None:
    from crc32c import crc32c

    whole = b'{"lsn":7,"writer":"%b","epoch":3,"nonce":"a","created_at":1.5,"later":%b}'
    deep = b"[" * 5000 + b"]" * 5000
    lies = (whole % (b"\xff", b"1"), whole % (b"w", deep), whole % (b"w", b"9" * 5000 + b"x"))
    for text in (b"", b"{}", b"[]", b'{"lsn":"x"}', b"\xff", *lies):
        start = OBJECT[:12] + struct.pack("<II", len(text), crc32c(text)) + text
        with pytest.raises(Corruption):
            decoded(start + struct.pack("<II", 0, crc32c(start)))


def test_records_that_went_missing_between_whole_ones() -> None:
    first = OBJECT.index(b"first ") - 8
    third = OBJECT.index(b"third") - 8
    with pytest.raises(Corruption):
        decoded(OBJECT[:first] + OBJECT[third:])

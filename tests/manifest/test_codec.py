"""Manifests as bytes."""

from __future__ import annotations

import json

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.errors import Corruption, UnsupportedFormat
from reef.manifest import LogSpan, Manifest, Settings, Superseded
from reef.manifest.codec import decode, encode
from reef.segment import SegmentInfo

numbers = st.integers(0, 2**63)
identities = st.text(max_size=8) | numbers
segments = st.builds(
    SegmentInfo,
    id=st.text(max_size=8),
    birth=numbers,
    run=st.text(max_size=8),
    level=numbers,
    rows=numbers,
    tombstones=numbers,
    min_id=identities,
    max_id=identities,
    min_lsn=numbers,
    max_lsn=numbers,
    size=numbers,
    tail=numbers,
    checksum=numbers,
    lsn=numbers,
)
manifests = st.builds(
    Manifest,
    generation=numbers,
    namespace=st.text(max_size=8),
    created_at=st.floats(0, 1e12),
    publisher=st.text(max_size=8),
    nonce=st.text(max_size=8),
    settings=st.builds(Settings, st.floats(0, 1e9), st.floats(0, 1e9), numbers),
    writer_epoch=numbers,
    wal_floor=numbers,
    segments=st.lists(segments, max_size=3).map(tuple),
    window=st.lists(segments, max_size=1).map(tuple),
    superseded=st.lists(st.builds(Superseded, st.text(), numbers), max_size=2).map(tuple),
    folded=st.lists(st.builds(LogSpan, numbers, numbers, numbers), max_size=2).map(tuple),
)
MANIFEST = Manifest(
    3, "n", 1.5, "p", "x", segments=(SegmentInfo("s", 1, "r", 0, 1, 0, "a", "b", 1, 1, 9, 9, 9),)
).with_schema(Schema("string", {"v": parse_type("vector<float32, 4>")}))


@given(manifests)
def test_round_trip(manifest: Manifest) -> None:
    assert decode("k", memoryview(encode(manifest))) == manifest


def test_it_is_json_that_any_tool_reads() -> None:
    value = json.loads(encode(MANIFEST))
    assert value["manifest"]["generation"] == 3
    assert value["manifest"]["segments"][0]["min_id"] == "a"
    assert MANIFEST.parsed_schema().attributes["v"].dimension == 4


def test_every_byte_flip_and_truncation_is_detected() -> None:
    data = encode(MANIFEST)
    for offset in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[offset] ^= 1 << bit
            with pytest.raises(Corruption):
                decode("k", memoryview(bytes(damaged)))
        with pytest.raises(Corruption):
            decode("k", memoryview(data[:offset]))
    with pytest.raises(Corruption):
        decode("k", memoryview(data + b"}"))


def sealed(text: bytes) -> memoryview:
    return memoryview(b'{"checksum":"%08x","manifest":%b}' % (crc32c(text), text))


def test_a_newer_format_is_named() -> None:
    value = json.loads(encode(MANIFEST))["manifest"]
    with pytest.raises(UnsupportedFormat, match="7"):
        decode("k", sealed(json.dumps({**value, "format": 7, "segments": "other"}).encode()))


_TEXT = (
    b'{"generation":1,"namespace":"%b","created_at":1,"publisher":"p","nonce":"n","branches":%b}'
)
_DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{}", b"[]", b"null", b'{"generation":"x"}', b"\xff", b"{"),
        _TEXT % (b"\xff", b"{}"),
        _TEXT % (b"n", _DEEP),
    ],
)
def test_what_is_no_manifest(text: bytes) -> None:
    assert decode("k", sealed(_TEXT % (b"n", b"{}"))).generation == 1
    with pytest.raises(Corruption):
        decode("k", sealed(text))


@given(st.binary(max_size=100))
def test_garbage(data: bytes) -> None:
    with pytest.raises(Corruption):
        decode("k", memoryview(data))


def test_fields_of_later_versions_of_this_format_are_passed_over() -> None:
    value = json.loads(encode(MANIFEST))["manifest"]
    assert decode("k", sealed(json.dumps({**value, "later": 1}).encode())) == MANIFEST

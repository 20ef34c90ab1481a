"""A manifest as bytes: JSON that any tool can read, with a checksum over its exact text.

{"checksum":"<crc32c of the manifest's text, 8 hex digits>","manifest":<the manifest>}
"""

from __future__ import annotations

import re

import msgspec
from crc32c import crc32c

from reef.errors import Corruption, UnsupportedFormat
from reef.manifest.model import FORMAT, Manifest

_START = re.compile(rb'\{"checksum":"([0-9a-f]{8})","manifest":')
_START_LENGTH = len(b'{"checksum":"00000000","manifest":')


# The latter two for text that is no Unicode, or nests too deep.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


class _Version(msgspec.Struct):
    format: int = FORMAT


_decode_manifest = msgspec.json.Decoder(Manifest).decode


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes."""
    text = msgspec.json.encode(manifest)
    return b'{"checksum":"%08x","manifest":%b}' % (crc32c(text), text)


def decode(key: str, data: memoryview) -> Manifest:
    """The manifest, or `Corruption`, or `UnsupportedFormat` if a newer Reef wrote it."""
    start = _START.match(bytes(data[:_START_LENGTH]))
    if start is None or bytes(data[-1:]) != b"}":
        raise Corruption(key, "it is not a manifest")
    text = data[_START_LENGTH:-1]
    if crc32c(text) != int(start[1], 16):
        raise Corruption(key, "the checksum of the manifest is wrong", _START_LENGTH)
    try:
        manifest = _decode_manifest(text)
        version = manifest.format
    except _UNREADABLE as error:
        # One of another format need not look like a manifest of this one.
        version = _version(text)
        if version == FORMAT:
            raise Corruption(key, f"the manifest cannot be read ({error})", _START_LENGTH) from None
    if version != FORMAT:
        raise UnsupportedFormat(f"{key} has manifest format {version}; this Reef reads {FORMAT}")
    return manifest


def _version(text: memoryview) -> int:
    try:
        return msgspec.json.decode(text, type=_Version).format
    except _UNREADABLE:
        return FORMAT

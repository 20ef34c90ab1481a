"""A root as bytes: JSON that any tool can read, with a checksum over its exact text.

{"checksum":"<crc32c of the root's text, 8 hex digits>","manifest":<the root>}

The word before the root says what it is the root of: "manifest" for a namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
from crc32c import crc32c

from reef.errors import Corruption, UnsupportedFormat
from reef.manifest.model import FORMAT, Manifest
from reef.manifest.retired import Retired, Superseded
from reef.manifest.root import Root
from reef.manifest.runs import Segments
from reef.segment.info import SegmentInfo

R = TypeVar("R", bound=Root)

# The latter two for text that is no Unicode, or nests too deep.
_UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)


class _Version(msgspec.Struct):
    format: int | None = None


@dataclass(frozen=True)
class RootCodec(Generic[R]):
    """The codec of roots of one type: their word, and the newest format, which is written."""

    type: type[R]
    word: str
    format: int = 1
    _start: re.Pattern[bytes] = field(init=False, repr=False, compare=False)
    _encoder: Any = field(init=False, repr=False, compare=False)
    _decoder: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        start = rb'\{"checksum":"([0-9a-f]{8})","%b":' % self.word.encode()
        object.__setattr__(self, "_start", re.compile(start))
        object.__setattr__(self, "_encoder", msgspec.json.Encoder(enc_hook=_to_stored))
        object.__setattr__(self, "_decoder", msgspec.json.Decoder(self.type, dec_hook=_from_stored))

    def encode(self, root: R) -> bytes:
        """The root's bytes."""
        text = self._encoder.encode(root)
        return b'{"checksum":"%08x","%b":%b}' % (crc32c(text), self.word.encode(), text)

    def decode(self, key: str, data: memoryview) -> R:
        """The root, or `Corruption`, or `UnsupportedFormat` if a newer Reef wrote it."""
        at = len(b'{"checksum":"00000000","":') + len(self.word)
        start = self._start.match(bytes(data[:at]))
        if start is None or bytes(data[-1:]) != b"}":
            raise Corruption(key, f"it is not a {self.word}")
        text = data[at:-1]
        if crc32c(text) != int(start[1], 16):
            raise Corruption(key, f"the checksum of the {self.word} is wrong", at)
        try:
            root: R = self._decoder.decode(text)
            version = root.format
        except _UNREADABLE as error:
            # One of another format need not look like one of this.
            version = self._version(text)
            if version <= self.format:
                raise Corruption(key, f"the {self.word} cannot be read ({error})", at) from None
        if not 1 <= version <= self.format:
            raise UnsupportedFormat(
                f"{key} has {self.word} format {version}; this Reef reads {self.format}"
            )
        return root

    def _version(self, text: memoryview) -> int:
        try:
            said = msgspec.json.decode(text, type=_Version).format
        except _UNREADABLE:
            return self.format
        return 1 if said is None else said


def _to_stored(value: object) -> object:
    """What stands in a root for a value that it does not hold itself."""
    if isinstance(value, Segments):
        return value.named
    if isinstance(value, Retired):
        return value.named
    raise NotImplementedError(f"a root cannot hold a {type(value).__name__}")


def _from_stored(kind: type, value: object) -> object:
    if kind is Segments:
        return Segments.of(msgspec.convert(value, tuple[SegmentInfo, ...]))
    if kind is Retired:
        return Retired(msgspec.convert(value, tuple[Superseded, ...]))
    raise NotImplementedError(f"a root cannot hold a {kind.__name__}")


MANIFEST = RootCodec(Manifest, "manifest", FORMAT)
encode = MANIFEST.encode
decode = MANIFEST.decode

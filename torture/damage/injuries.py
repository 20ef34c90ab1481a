"""The injuries: every way in which one object of a specimen is damaged, each with a name.

A name is `specimen/key:kind:detail`, and says all that is needed to do it again. What is done:

- `flip`: one byte changed, by one bit or (`ff`) by all of them; detail is mask@offset
- `cut`: the object ends at an offset: at every boundary of its parts and one byte beside
- `empty`, `junk` (bytes behind the end), `remove`
- `swap`: exchanged with another object, every one of its kind and one of each other kind
- `older`: an earlier version of an object that is overwritten
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reef.log.codec import _FRAME, _PREAMBLE
from reef.segment.index import Index
from reef.segment.layout import HEAD, TRAILER, decode_footer
from torture.damage.specimen import Specimen

JUNK = b"RFSEG1\0\0}}"
FIRST_BYTE = len(b'{"checksum":"00000000","manifest":')


@dataclass(frozen=True)
class Injury:
    """One case. `keys` are the objects that are not what they were."""

    specimen: str
    kind: str
    key: str
    detail: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects that are injured."""
        return (self.key, self.detail) if self.kind == "swap" else (self.key,)

    def __str__(self) -> str:
        return f"{self.specimen}/{self.key}:{self.kind}:{self.detail}"

    def of(self, content: dict[str, bytes], hints: list[bytes]) -> dict[str, bytes | None]:
        """What the injured objects become; None for one that is gone."""
        data = content[self.key]
        if self.kind == "flip":
            mask, _, offset = self.detail.partition("@")
            at = int(offset)
            return {self.key: data[:at] + bytes([data[at] ^ int(mask, 16)]) + data[at + 1 :]}
        if self.kind == "cut":
            return {self.key: data[: int(self.detail)]}
        if self.kind == "empty":
            return {self.key: b""}
        if self.kind == "junk":
            return {self.key: data + JUNK}
        if self.kind == "swap":
            return {self.key: content[self.detail], self.detail: data}
        if self.kind == "older":
            return {self.key: hints[int(self.detail)]}
        assert self.kind == "remove", self.kind
        return {self.key: None}


def parse(name: str) -> Injury:
    """The injury of that name."""
    specimen, _, rest = name.partition("/")
    key, kind, detail = rest.split(":")
    return Injury(specimen, kind, key, detail)


def kind_of(key: str) -> str:
    """The kind of object that a key is of."""
    return key.partition("/")[0]


def flips(specimen: Specimen, turn: int = 0) -> Iterator[Injury]:
    """Every byte of every object, once: by a bit that its offset chooses on the first turn, all
    of its bits on the second, and one after the other of the remaining bits on later turns."""
    for key, data in specimen.content().items():
        for offset in range(len(data)):
            yield flip(specimen.name, key, offset, turn)


def flip(specimen: str, key: str, offset: int, turn: int = 0) -> Injury:
    """One of `flips`."""
    mask = 0xFF if turn == 1 else 1 << (offset + turn) % 8
    return Injury(specimen, "flip", key, f"{mask:02x}@{offset}")


def others(specimen: Specimen) -> Iterator[Injury]:
    """Everything that is not a flip."""
    content = specimen.content()
    keys = list(content)
    for key, data in content.items():
        yield Injury(specimen.name, "remove", key)
        if data:
            yield Injury(specimen.name, "empty", key)
        yield Injury(specimen.name, "junk", key)
        for offset in boundaries(key, data):
            yield Injury(specimen.name, "cut", key, str(offset))
        strangers: set[str] = set()
        for other in keys:
            same = kind_of(other) == kind_of(key)
            if other == key or (same and other < key) or kind_of(other) in strangers:
                continue
            if not same:
                strangers.add(kind_of(other))
            if content[other] != data:
                yield Injury(specimen.name, "swap", key, other)
    for number, hint in enumerate(specimen.hints):
        if hint != content["hint.json"]:
            yield Injury(specimen.name, "older", "hint.json", str(number))


def boundaries(key: str, data: bytes) -> list[int]:
    """Where the object can be cut between its parts, and a byte before and after each."""
    edges = {len(data) // 2, len(data)}
    kind = kind_of(key)
    if kind == "wal" or key.startswith("quarantine/wal/"):
        edges |= _log_edges(data)
    elif kind == "segments":
        edges |= _segment_edges(key, data)
    elif data:
        edges.add(FIRST_BYTE)
        edges |= {at for at, byte in enumerate(data) if byte in b"{[]}"}
    beside = {edge + step for edge in edges for step in (-1, 0, 1)}
    return sorted(at for at in beside if 0 < at < len(data))


def _log_edges(data: bytes) -> set[int]:
    edges = {_PREAMBLE.size}
    at = _PREAMBLE.size
    while at + _FRAME.size <= len(data) - _FRAME.size:
        length, _ = _FRAME.unpack_from(data, at)
        edges.add(at + _FRAME.size)
        at += _FRAME.size + length
        edges.add(at)
    return edges


def _segment_edges(key: str, data: bytes) -> set[int]:
    view = memoryview(data)
    footer, _ = decode_footer(key, view, len(data))
    section = footer.index
    stored = view[section.offset : section.offset + section.length]
    index = Index(key, section, stored, footer.data_end)
    edges = {HEAD.size, footer.data_end, section.offset, section.offset + section.length}
    edges.add(len(data) - TRAILER.size)
    for group in range(index.count):
        for place in index.places(group).values():
            edges |= {place.offset, place.offset + place.length}
    return edges

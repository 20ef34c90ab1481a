"""Where the slots of a log lie. Pure: a slot's key, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

_DIGITS = 20
_HEX_DIGITS = 16
_BUCKET = 4096


class Naming(Protocol):
    """The keys of a log's slots. Listing the prefix in key order is listing the log in order."""

    @property
    def prefix(self) -> str:
        """What all keys of the log begin with."""

    def key(self, lsn: int) -> str:
        """Where a slot lies. Slots are numbered from 1; the key of 0 sorts before all."""

    def lsn_of(self, key: str) -> int | None:
        """The slot that a key names, or None if it is no log object's key."""


@dataclass(frozen=True)
class Flat:
    """One folder: `<prefix><lsn, 20 digits><suffix>`."""

    prefix: str
    suffix: str

    def key(self, lsn: int) -> str:
        """Zero-padded, so that listing order is log order."""
        return f"{self.prefix}{lsn:0{_DIGITS}d}{self.suffix}"

    def lsn_of(self, key: str) -> int | None:
        """The slot, or None."""
        name = key.removeprefix(self.prefix).removesuffix(self.suffix)
        if len(name) != _DIGITS or not name.isdecimal():
            return None
        lsn = int(name)
        return lsn if self.key(lsn) == key else None


@dataclass(frozen=True)
class Bucketed:
    """Folders of 4,096 slots: `<prefix><folder, 16 hex digits>/<lsn, 16 hex digits>`, for logs of
    which a folder, or a listing of one, would grow too large."""

    prefix: str

    def key(self, lsn: int) -> str:
        """Slots 1 to 4096 are in folder 0, the next 4096 in folder 1."""
        folder = max(lsn - 1, 0) // _BUCKET
        return f"{self.prefix}{folder:0{_HEX_DIGITS}x}/{lsn:0{_HEX_DIGITS}x}"

    def lsn_of(self, key: str) -> int | None:
        """The slot, or None."""
        name = key.rpartition("/")[2]
        try:
            lsn = int(name, 16) if len(name) == _HEX_DIGITS else 0
        except ValueError:
            return None
        return lsn if lsn > 0 and self.key(lsn) == key else None


WAL = Flat("wal/", ".wal")
"""The log of a namespace."""

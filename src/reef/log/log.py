"""Slots of the log: reading them, and winning the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    CommitUncertain,
    Corruption,
    ObjectNotFound,
    StoreUnavailable,
)
from reef.log.codec import LogEntry, LogHeader, decode, encode
from reef.store.contract import Buffer, ObjectInfo, Store

PREFIX = "wal/"
_SUFFIX = ".wal"
_DIGITS = 20
_ATTEMPTS = 6
_FIRST_WAIT = 0.02


class Log:
    """The log objects below a namespace's prefix."""

    def __init__(self, store: Store, environment: Environment) -> None:
        self.store = store
        self.environment = environment

    @staticmethod
    def key(lsn: int) -> str:
        """Where a slot lies: zero-padded, so that listing order is log order."""
        return f"{PREFIX}{lsn:0{_DIGITS}d}{_SUFFIX}"

    @staticmethod
    def lsn_of(key: str) -> int | None:
        """The slot that a key names, or None if it is no log object's key."""
        name = key.removeprefix(PREFIX).removesuffix(_SUFFIX)
        return int(name) if len(name) == _DIGITS and name.isdecimal() else None

    def read(self, lsn: int) -> LogEntry:
        """The entry in a slot; `ObjectNotFound` if it is free, `Corruption` if damaged."""
        key = self.key(lsn)
        entry = decode(key, self.store.get(key).data)
        if entry.lsn != lsn:
            raise Corruption(key, f"it says that it is slot {entry.lsn}")
        return entry

    def list(self, first: int) -> Iterable[tuple[int, ObjectInfo]]:
        """The occupied slots from `first` on, in order."""
        for info in self.store.list(PREFIX, start_after=self.key(first - 1)):
            lsn = self.lsn_of(info.key)
            if lsn is not None:
                yield lsn, info

    def is_stranded(self, lsn: int) -> bool:
        """Whether a slot just won may be one that was collected: the slot before it is gone."""
        return self.store.has_lost(self.key(lsn - 1))

    def append(self, header: LogHeader, records: Sequence[Sequence[Buffer]]) -> LogEntry | None:
        """Put the entry into its slot. None when it is there; otherwise who holds the slot.

        Nobody's word but the slot's own is taken: after a refusal or a lost answer the slot
        is read, and the entry's writer and nonce tell whose it is. Raises `CommitUncertain`
        only when the store would not say.
        """
        key = self.key(header.lsn)
        data = encode(header, records)
        trouble: StoreUnavailable | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.environment.sleep(_FIRST_WAIT * 2**attempt)
            try:
                self.store.create(key, data)
                return None
            except AlreadyExists:
                pass
            except StoreUnavailable as failure:
                trouble = failure
            try:
                holder = self.read(header.lsn)
            except (ObjectNotFound, StoreUnavailable):
                continue
            if holder.header.writer == header.writer and holder.header.nonce == header.nonce:
                return None
            return holder
        raise CommitUncertain(
            f"the store did not say whether slot {header.lsn} was written"
            + (f": {trouble}" if trouble else "")
        ) from trouble

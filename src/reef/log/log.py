"""Slots of the log: reading them, and winning the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reef.environment import Environment
from reef.errors import (
    AlreadyExists,
    CommitUncertain,
    Corruption,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
)
from reef.log.codec import LogEntry, LogHeader, decode, encode
from reef.log.naming import WAL, Naming
from reef.store.contract import Buffer, ObjectInfo, Store

_ATTEMPTS = 6
_FIRST_WAIT = 0.02
_WAITS_BEFORE_NEW_LOOKS = (0.005, 0.02, 0.05)


@dataclass(frozen=True)
class Lineage:
    """Where a log begins in another one: the slots before `below` are that log's."""

    log: Log
    below: int


class Log:
    """The log objects below a prefix of the bucket, named as `naming` says.

    With a `lineage` the slots below its own first one are read from the log that it descends
    from, which may descend from another in turn. It only ever appends to its own.
    """

    def __init__(
        self,
        store: Store,
        environment: Environment,
        naming: Naming = WAL,
        lineage: Lineage | None = None,
    ) -> None:
        self.store = store
        self.environment = environment
        self.naming = naming
        self.lineage = lineage

    def home(self, lsn: int) -> Log:
        """The log that holds a slot: this one, or one that it descends from."""
        log = self
        while log.lineage is not None and lsn < log.lineage.below:
            log = log.lineage.log
        return log

    def key(self, lsn: int) -> str:
        """Where a slot lies, below the prefix of the log that holds it."""
        return self.home(lsn).naming.key(lsn)

    def read(self, lsn: int) -> LogEntry:
        """The entry in a slot; `ObjectNotFound` if it is free, `Corruption` if damaged.

        Damage is believed after several looks, some time apart: it may have been done on the way.
        """
        home = self.home(lsn)
        for wait in _WAITS_BEFORE_NEW_LOOKS:
            try:
                return home._look(lsn)
            except Corruption:
                self.environment.sleep(wait)
        return home._look(lsn)

    def _look(self, lsn: int) -> LogEntry:
        key = self.naming.key(lsn)
        entry = decode(key, self.store.get(key).data)
        if entry.lsn != lsn:
            raise Corruption(key, f"it says that it is slot {entry.lsn}")
        return entry

    def list(self, first: int) -> Iterable[tuple[int, ObjectInfo]]:
        """The occupied slots from `first` on, in order."""
        own = first
        if self.lineage is not None and first < self.lineage.below:
            own = self.lineage.below
            for lsn, info in self.lineage.log.list(first):
                if lsn >= own:
                    break
                yield lsn, info
        naming = self.naming
        for info in self.store.list(naming.prefix, start_after=naming.key(own - 1)):
            found = naming.lsn_of(info.key)
            if found is not None:
                yield found, info

    def is_stranded(self, lsn: int) -> bool:
        """Whether a slot just won may be one that was collected: the slot before it is gone."""
        home = self.home(lsn - 1)
        return home.store.has_lost(home.naming.key(lsn - 1))

    def append(self, header: LogHeader, records: Sequence[Sequence[Buffer]]) -> LogEntry | None:
        """Put the entry into its slot. None when it is there; otherwise who holds the slot.

        Nobody's word but the slot's own is taken: after a refusal or a lost answer the slot
        is read, and the entry's writer and nonce tell whose it is. Raises `CommitUncertain`
        only when the store would not say; `InvalidInput` for what cannot be encoded and any
        other error of the store when nothing was written; `Corruption` if the slot holds an
        object, whosever it is, that cannot be read.
        """
        lsn = header.lsn
        if self.lineage is not None and lsn < self.lineage.below:
            raise ValueError(f"slot {lsn} is one of the log that this one descends from")
        key = self.naming.key(lsn)
        data = encode(header, records)
        doubt: StoreError | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                self.environment.sleep(_FIRST_WAIT * 2**attempt)
            try:
                self.store.create(key, data)
                return None
            except (AlreadyExists, StoreUnavailable) as failure:
                doubt = failure
            except StoreError as refusal:
                if doubt is None:
                    raise
                raise _uncertain(lsn, refusal) from refusal
            try:
                holder = self.read(lsn)
            except (ObjectNotFound, StoreUnavailable):
                continue
            except StoreError as refusal:
                raise _uncertain(lsn, refusal) from refusal
            if holder.header.writer == header.writer and holder.header.nonce == header.nonce:
                return None
            return holder
        raise _uncertain(lsn, doubt) from doubt


def _uncertain(lsn: int, cause: StoreError | None) -> CommitUncertain:
    return CommitUncertain(f"the store did not say whether slot {lsn} was written: {cause}")

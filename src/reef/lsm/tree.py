"""A tree as one process sees it: the newest manifest it knows, and the unfolded log above it.

Recovery (and every refresh) is one way: take the newest manifest, replay the log from its floor.
"""

from __future__ import annotations

from threading import RLock

from reef.environment import Environment
from reef.log import Log, LogEntry, LogTail
from reef.log.tail import MissingSlot
from reef.lsm.options import Options
from reef.lsm.read.view import Readers, View
from reef.lsm.records import Record
from reef.lsm.retention.reachability import first_retained_slot
from reef.lsm.unfolded import Unfolded
from reef.manifest import Manifest, manifest_register
from reef.manifest.register import Head
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store.contract import Store


class Tree:
    """Access to one namespace's objects, and the state that was last read of them.

    `store` is the bucket below the prefix of the namespace `name`. `identity` tells this process's
    appends and publications from everybody else's. The lock guards the state; `view` may be
    taken at any time without it, and stays consistent whatever happens afterwards. `closing`
    asks long work to give up. `unsettled` says that an append of this process ended without
    anybody knowing whether it is in its slot, so that the state may lack it.
    """

    def __init__(
        self,
        store: Store,
        environment: Environment,
        options: Options,
        cache: BlockCache,
        name: str = "",
    ) -> None:
        self.store = store
        self.name = name
        self.environment = environment
        self.options = options
        self.cache = cache
        self.identity = environment.unique_id()
        self.register = manifest_register(store, environment, self.identity, name)
        self.log = Log(store, environment)
        self.lock = RLock()
        self.discarded: tuple[int, ...] = ()
        self.closing = False
        self.unsettled = False
        self.readers = Readers(store, cache)
        self._head: Head[Manifest] | None = None
        self._view: View | None = None

    @property
    def head(self) -> Head[Manifest]:
        """The newest manifest known to this process."""
        assert self._head is not None
        return self._head

    @property
    def view(self) -> View:
        """The state known to this process."""
        assert self._view is not None
        return self._view

    def reader_of(self, info: SegmentInfo) -> SegmentReader:
        """The reader of a segment."""
        return self.readers.of(info)

    def recover(self, head: Head[Manifest] | None = None) -> None:
        """Read the whole state anew from the bucket."""
        with self.lock:
            head = head or self.register.head()
            while True:
                try:
                    unfolded = unfolded_above(head.manifest)
                    self._replay(unfolded)
                    if self.confirmed(head, head.manifest.wal_floor) is not None:
                        break
                    head = self.register.head()
                except MissingSlot as gap:
                    head = self.past(gap)
            self.install(head, unfolded)

    def refresh(self) -> None:
        """Catch up with the bucket: a newer manifest, and what was appended to the log."""
        if self._view is None or self.discarded:
            # A slot that was passed over must be skipped by the entry behind it, or else it is
            # one that was damaged only on its way here.
            self.recover()
            return
        with self.lock:
            head = self.register.head()
            if head.manifest.generation < self.head.manifest.generation:
                head = self.head
            while True:
                try:
                    unfolded = self._caught_up(head.manifest)
                    first = unfolded.next_lsn
                    self._replay(unfolded)
                    if self.confirmed(head, first) is not None:
                        break
                    head = self.register.head()
                except MissingSlot as gap:
                    head = self.past(gap)
            self.install(head, unfolded)

    def _caught_up(self, manifest: Manifest) -> Unfolded:
        current = self.view.unfolded
        if manifest.wal_floor < current.floor or manifest.last_applied_lsn >= current.next_lsn:
            return unfolded_above(manifest)
        if manifest.last_applied_lsn < current.floor:
            return current
        return current.after(manifest.last_applied_lsn, manifest.orphan_floor)

    def past(self, gap: MissingSlot) -> Head[Manifest]:
        """The newest head: a slot that is gone was folded and collected, or else it was lost, and
        the gap is raised."""
        head = self.register.head()
        if head.manifest.wal_floor <= gap.lsn:
            raise gap
        return head

    def confirmed(self, head: Head[Manifest], first: int) -> Head[Manifest] | None:
        """The head, or a newer one, if the log that was just read from that slot on belongs to
        it. None if not: after a long sleep in between, a slot may have been collected and won
        again by somebody who slept even longer."""
        asleep = self.environment.monotonic() - head.confirmed
        if asleep < head.manifest.settings.lease:
            return head
        newest = self.register.head()
        return newest if first_retained_slot(newest.manifest) <= first else None

    def _replay(self, unfolded: Unfolded) -> None:
        tail = LogTail(self.log, unfolded.next_lsn)
        for entry in tail:
            unfolded.apply(entry)
        unfolded.next_lsn = max(unfolded.next_lsn, tail.next_lsn)
        self.discarded = tuple(tail.discarded)

    def install(self, head: Head[Manifest], unfolded: Unfolded) -> None:
        """Make this the state that reads see."""
        with self.lock:
            self._head = head
            self._view = View(head.manifest, unfolded, self.readers, self.store)

    def apply(self, entry: LogEntry, records: list[Record] | None = None) -> None:
        """Take the entry of the next slot in."""
        with self.lock:
            unfolded = self.view.unfolded
            shape = unfolded.shape
            unfolded.apply(entry, records)
            if unfolded.shape != shape:
                self.install(self.head, unfolded)

    def advance(self, head: Head[Manifest]) -> None:
        """Take in a manifest that was just published or read, without reading the log (unless the
        root fell back, past damage, to an older floor)."""
        with self.lock:
            if self._head is not None and head.slot < self._head.slot:
                return
            current = self.view.unfolded
            manifest = head.manifest
            if manifest.wal_floor < current.floor:
                # The root fell back behind what was folded away here: that is needed again.
                self.recover(head)
                return
            if manifest.last_applied_lsn >= current.next_lsn:
                # Slots that were never read here were folded: only the manifest knows their schema.
                epoch = current.epoch
                current = unfolded_above(manifest)
                current.epoch = epoch
            elif manifest.last_applied_lsn >= current.floor:
                current = current.after(manifest.last_applied_lsn, manifest.orphan_floor)
            self.install(head, current)


def unfolded_above(manifest: Manifest) -> Unfolded:
    """An empty unfolded log on top of a manifest."""
    return Unfolded(manifest.wal_floor, manifest.parsed_schema(), manifest.orphan_floor)

"""A tree as one process sees it: the newest manifest it knows, and the unfolded log above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reef.commit import Follower
from reef.environment import Environment
from reef.errors import NamespaceDropped
from reef.log import Log, LogEntry, LogTail
from reef.log.tail import heeding_skips
from reef.lsm.options import Options
from reef.lsm.read.view import Readers, View
from reef.lsm.records import is_drop
from reef.lsm.retention.pinboard import PinBoard
from reef.lsm.retention.reachability import first_retained_slot, is_retained_slot
from reef.lsm.unfolded import Unfolded
from reef.manifest import Head, Life, Manifest, manifest_register
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store.contract import Store


class Tree(Follower[Manifest, Unfolded]):
    """Access to one namespace's objects, and the state that was last read of them.

    `store` is the bucket below the prefix of the namespace `name`. The lock guards the state, but
    `view` may be taken at any time without it, and stays consistent whatever happens afterwards.
    `closing` asks long work to give up. `life` tells which of the namespaces that had the name, one
    after the other, was read.
    """

    def __init__(
        self,
        store: Store,
        environment: Environment,
        options: Options,
        cache: BlockCache,
        name: str = "",
    ) -> None:
        identity = environment.unique_id()
        register = manifest_register(store, environment, identity, name)
        super().__init__(register, Log(store, environment), environment, identity)
        self.store = store
        self.name = name
        self.options = options
        self.cache = cache
        self.board = PinBoard(store, environment, identity, name)
        self.closing = False
        self.life: Life | None = None
        self.readers = Readers(store, cache)
        self._view: View | None = None
        self._shape = 0

    @property
    def view(self) -> View:
        """The state known to this process."""
        if self._state is None:
            self._restored()
        view = self._view
        assert view is not None
        return view

    def reader_of(self, info: SegmentInfo) -> SegmentReader:
        """The reader of a segment."""
        return self.readers.of(info)

    def install(self, head: Head[Manifest], state: Unfolded) -> None:
        """Make this the state that reads see."""
        with self.lock:
            self.check_root(head.manifest)
            self.life = head.manifest.life
            view = View(head.manifest, state, self.readers, self.store)
            self._shape = state.shape
            self._head, self._state, self._view = head, state, view
            self._looked_at(head)

    def take(self, entry: LogEntry, records: Any = None) -> None:
        """Take in the entry of the next slot, which fits."""
        with self.lock:
            unfolded = self.state
            self._apply(unfolded, entry, records)
            if unfolded.shape != self._shape:
                self.install(self.head, unfolded)

    def check_root(self, root: Manifest) -> None:
        """`NamespaceDropped` if the namespace that was read here is not the one of that manifest,
        but one that was created in its place."""
        if root.dropped:
            raise NamespaceDropped(self.name)
        if self.life is not None and root.life != self.life:
            again = "it was dropped, and another one was created since; open that"
            raise NamespaceDropped(self.name, since=again)

    def check_state(self, state: Unfolded) -> None:
        """`NamespaceDropped` if the log says so."""
        if state.dropped_at:
            raise NamespaceDropped(self.name, state.dropped_at)

    def check_entry(self, entry: LogEntry) -> None:
        """`NamespaceDropped` if that entry says so."""
        if is_drop(entry):
            raise NamespaceDropped(self.name, entry.lsn)

    def floor_of(self, root: Manifest) -> int:
        """The first slot that is not folded."""
        return root.wal_floor

    def first_retained(self, root: Manifest) -> int:
        """The slot from which on the whole log is retained."""
        return first_retained_slot(root)

    def is_retained(self, root: Manifest, lsn: int) -> bool:
        """Whether a slot is unfolded, or folded but still retained."""
        return is_retained_slot(root, lsn)

    def epoch_of(self, root: Manifest) -> int:
        """The epoch of the writer that the manifest knows."""
        return root.writer_epoch

    def start(self, root: Manifest) -> Unfolded:
        """An empty unfolded log on top of a manifest."""
        return unfolded_above(root)

    def rest(self, state: Unfolded, root: Manifest) -> Unfolded:
        """What is left of the unfolded log on top of a manifest that has folded its beginning."""
        return state.after(root.last_applied_lsn, root.orphan_floor)


def replayed(
    tree: Tree,
    manifest: Manifest,
    last: int | None = None,
    included: Callable[[LogEntry], bool] | None = None,
) -> Unfolded:
    """What the log from a manifest's floor on amounts to: through slot `last`, and up to the
    first entry that is not `included`, or to where the namespace ended. The tree itself stays as it
    is."""

    def read(skips: frozenset[int]) -> Unfolded:
        unfolded = unfolded_above(manifest)
        tail = LogTail(tree.log, unfolded.next_lsn, last, skips)
        for entry in tail:
            if included is not None and not included(entry):
                return unfolded
            unfolded.apply(entry)
            if unfolded.dropped_at:
                break
        # Slots that were given up hold nothing, and are behind us all the same.
        unfolded.next_lsn = max(unfolded.next_lsn, tail.next_lsn)
        return unfolded

    return heeding_skips(read)


def unfolded_above(manifest: Manifest) -> Unfolded:
    """An empty unfolded log on top of a manifest."""
    return Unfolded(manifest.wal_floor, manifest.parsed_schema(), manifest.orphan_floor)

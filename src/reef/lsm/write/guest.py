"""Appending to the log without being its writer: bulk loads and collectors do.

A guest takes the next slot like anybody, under the epoch it found, and fences nobody: the
writer that meets the entry in its slot applies it and goes on to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reef.errors import CommitUncertain, ReefError
from reef.log import BatchHeader, LogHeader, decode, encode
from reef.lsm.read.view import View
from reef.lsm.retention.reachability import is_retained_slot
from reef.lsm.tree import Tree
from reef.manifest import Manifest
from reef.store.contract import Buffer, as_bytes

Records = tuple[Sequence[BatchHeader], Sequence[Sequence[Buffer]]]


def append_as_guest(tree: Tree, decide: Callable[[View], Records | None]) -> View:
    """Append what `decide` makes of the newest state, and return the state that has it.

    `decide` sees everything that comes before the slot, and is asked again when another append
    came first. It returns None, or raises, to let it be. Nothing is appended then.
    """
    with tree.lock:
        tree.refresh()
        while True:
            decided = decide(tree.view)
            if decided is None:
                return tree.view
            batches, records = decided
            unfolded = tree.view.unfolded
            header = LogHeader(
                lsn=unfolded.next_lsn,
                writer=tree.identity,
                epoch=unfolded.epoch,
                nonce=tree.environment.nonce(),
                created_at=tree.environment.now(),
                guest=True,
                skips=tree.discarded,
                batches=tuple(batches),
            )
            began = tree.head.confirmed
            tree.unsettled = True
            holder = tree.log.append(header, records)
            if holder is None:
                settings = tree.head.manifest.settings
                slept = tree.environment.monotonic() - began >= settings.lease
                if slept or tree.log.is_stranded(header.lsn):
                    # As a writer does: a slot that was collected meanwhile can be won again.
                    manifest = _root(tree, header.lsn)
                    if not is_retained_slot(manifest, header.lsn):
                        raise CommitUncertain(
                            f"slot {header.lsn} was folded and collected in the middle of the"
                            " append; nobody can tell any more which came first"
                        )
                tree.discarded = ()
                key = tree.log.key(header.lsn)
                tree.apply(decode(key, memoryview(as_bytes(encode(header, records)))))
                tree.unsettled = False
                return tree.view
            tree.apply(holder)
            tree.unsettled = False


def _root(tree: Tree, lsn: int) -> Manifest:
    try:
        return tree.register.head().manifest
    except ReefError as failure:
        raise CommitUncertain(
            f"slot {lsn} was written, but the root could not be read to confirm it: {failure}"
        ) from failure

"""Winning a slot of the log: for writers, guests and repairs, whatever they put into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reef.commit.contents import Contents
from reef.commit.follower import Follower
from reef.errors import (
    CommitUncertain,
    ConcurrentPublication,
    Corruption,
    Fenced,
    ReefError,
)
from reef.log import LogEntry, LogHeader
from reef.store.contract import as_bytes, size_of


def win(follower: Follower[Any, Any], contents: Contents, epoch: int | None = None) -> int | None:
    """Put the contents into the slot behind the state, and take them into it. The slot; None when
    somebody else held it or the root has moved on: that has been taken in, so decide anew.

    A writer gives its `epoch`, and is `Fenced` by a higher one; a guest has none, and fences
    nobody. `CommitUncertain` when nobody can tell whether the slot was won; with any other error
    nothing was written.
    """
    state = follower.state
    lsn: int = state.next_lsn
    if follower.slept():
        # Better to know before the PUT than to be in doubt after it.
        follower.look()
        state = follower.state
        if state.next_lsn != lsn:
            return None
    if epoch is not None:
        # What this process took in of the root and the log (to fold, to load, to collect) may
        # have told it already; then the next slot is free, and not for it.
        newest = max(follower.epoch_of(follower.head.root), state.epoch)
        if newest > epoch:
            raise Fenced(f"writer epoch {epoch} was superseded by {newest}")
    header = LogHeader(
        lsn=lsn,
        writer=follower.identity,
        epoch=state.epoch if epoch is None else epoch,
        nonce=follower.environment.nonce(),
        created_at=follower.environment.now(),
        guest=epoch is None,
        skips=follower.discarded,
        batches=tuple(contents.batches),
    )
    before = follower.unsettled
    follower.unsettled = True
    try:
        holder = follower.log.append(header, contents.records)
    except CommitUncertain:
        raise
    except Corruption as damage:
        # Somebody's object, perhaps this very one, cannot be read. If it is the last of the log it
        # is taken as none, and the next entry says so; if not, reading raises.
        follower.recover()
        follower.unsettled = False
        if lsn in follower.discarded or lsn in follower.skips:
            return None
        raise CommitUncertain(f"whose slot {lsn} is could not be read: {damage}") from damage
    except ReefError:
        follower.unsettled = before
        raise
    if holder is not None:
        follower.check_entry(holder)
        if epoch is not None and holder.header.epoch > epoch:
            raise Fenced(
                f"writer epoch {epoch} was superseded by {holder.header.epoch} in slot {lsn},"
                f" which {holder.header.writer} holds"
            )
        follower.apply(holder)
        follower.unsettled = False
        return None
    if follower.slept() or follower.log.is_stranded(lsn):
        _confirm(follower, lsn)
    if header.skips:
        follower.skips = follower.skips.union(header.skips)
        follower.discarded = ()
    if follower.state.next_lsn <= lsn:  # or else somebody has folded it already
        follower.take(_entry(header, contents), contents.applied)
    follower.unsettled = False
    return lsn


def _entry(header: LogHeader, contents: Contents) -> LogEntry:
    records = contents.records
    size = sum(map(size_of, records))
    if contents.applied is not None:
        return LogEntry(header, (), size)
    return LogEntry(header, tuple(memoryview(as_bytes(record)) for record in records), size)


def _confirm(follower: Follower[Any, Any], lsn: int) -> None:
    """Before the acknowledgement: is the slot that was won one that will be read?

    One that slept may win a slot that somebody else filled, folded and collected; one that looked
    at the root a moment ago cannot, and is not asked. A slot above the floor is read by everybody,
    and one that the root lists as folded still had its object when it was won. Of any other nobody
    can tell any more whether it was won before it was folded or after.
    """
    try:
        root = follower.look()
    except ReefError as failure:
        raise CommitUncertain(
            f"slot {lsn} was written, but the root could not be read to confirm it: {failure}"
        ) from failure
    if not follower.is_retained(root, lsn):
        raise CommitUncertain(
            f"slot {lsn} was folded and collected in the middle of the commit, and nobody can tell"
            f" any more which came first; the writer's epoch is {follower.epoch_of(root)} now"
        )


def give_up(follower: Follower[Any, Any], first: int, epoch: int, slots: Iterable[int]) -> int:
    """Append, in the first free slot from `first` on, an entry that gives the slots up; the slot
    that it took. Works without a state: what cannot be read is what it is for."""
    skips = tuple(slots)
    lsn = first
    while follower.log.append(_empty(follower, lsn, epoch, skips), []) is not None:
        lsn += 1
    if lsn < follower.first_retained(follower.register.head(lone_hint=True).root):
        raise ConcurrentPublication(f"slot {lsn} was folded and collected before it was won")
    return lsn


def plug(follower: Follower[Any, Any], lsn: int) -> None:
    """Fill a slot that is empty though later ones are not with an entry of nothing, or else one
    that slept could win it. Under no epoch: entries of writers that were fenced later follow."""
    follower.log.append(_empty(follower, lsn, 0, ()), [])


def _empty(follower: Follower[Any, Any], lsn: int, epoch: int, skips: tuple[int, ...]) -> LogHeader:
    return LogHeader(
        lsn=lsn,
        writer=follower.identity,
        epoch=epoch,
        nonce=follower.environment.nonce(),
        created_at=follower.environment.now(),
        guest=True,
        skips=skips,
    )

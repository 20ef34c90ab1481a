"""The writer: takes batches, makes them durable one slot after the other.

Threads that commit form groups. The first that finds nobody at work leads: it admits what is
waiting, puts it into the next slot as one log object, applies it, and hands out receipts. What
arrives meanwhile waits for the next leader, who is named before the others are woken, so that
the next PUT starts at once. A lone thread never waits for anybody.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from threading import Lock
from typing import Any

from reef.data.plain import ids_of, join
from reef.data.schema import Schema
from reef.errors import (
    Closed,
    CommitUncertain,
    Fenced,
    ObjectNotFound,
    ReefError,
    StoreUnavailable,
)
from reef.log import BatchHeader, LogEntry, LogHeader
from reef.lsm.records import Ingest, Record, encode_ingest, encode_rows
from reef.lsm.retention.reachability import is_retained_slot
from reef.lsm.tree import Tree
from reef.lsm.write.admission import Admitted, admit
from reef.lsm.write.batch import Receipt, WriteBatch
from reef.lsm.write.idempotency import recall
from reef.lsm.write.upload import check_not_condemned
from reef.manifest import Manifest, take_over
from reef.store.contract import Buffer, size_of

_LONGEST_WINDOW = 0.005


class _Ticket:
    """A batch in the queue. `wake` is held until its thread, if it waits, is to go on."""

    __slots__ = ("admitted", "batch", "error", "receipt", "wake")

    def __init__(self, batch: WriteBatch) -> None:
        self.batch = batch
        self.wake = Lock()
        self.wake.acquire()
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self.admitted: Admitted | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None


class Writer:
    """The one writer of a tree, until another one opens it."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.epoch = 0
        self._queue: deque[_Ticket] = deque()
        self._mutex = Lock()
        self._leading = False
        self._failure: ReefError | None = None
        self._confirmed = 0.0
        self._last_group = 0
        self._window = 0.0

    def open(self) -> None:
        """Take the namespace over: raise the epoch, replay the log, and fence at its end."""
        tree = self.tree
        tree.recover()
        self.epoch, head = take_over(
            tree.register, "writer_epoch", tree.head, above=tree.view.unfolded.epoch
        )
        tree.advance(head)
        self._confirmed = head.confirmed
        while not self._append([], []):
            pass

    def commit(self, batch: WriteBatch) -> Receipt:
        """Make the batch durable and visible, and return its receipt.

        Raises `ConditionFailed`, `SchemaConflict` and the like with nothing written; `Fenced` when
        another writer took over; `CommitUncertain` if the store did not say.
        """
        ticket = _Ticket(batch)
        with self._mutex:
            if self._failure is not None:
                raise self._failure
            self._queue.append(ticket)
            lead = not self._leading
            self._leading = True
        if not lead:
            self._wait_for_turn(ticket)
            if not ticket.done:
                self._wait_for_company()
        if not ticket.done:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.receipt is not None
        return ticket.receipt

    def declare(self, schema: Schema) -> None:
        """Make sure that the namespace has these attribute types, or `SchemaConflict`.

        What is new is appended to the log, as an ingest of nothing: so it is ordered among the
        writes of everybody, and durable when this returns.
        """
        tree = self.tree
        with tree.lock:
            while tree.view.schema.extended(schema.attributes, schema.id_kind) != tree.view.schema:
                if self._failure is not None:
                    raise self._failure
                self._append([], [Ingest((), schema.to_dict())])

    def close(self) -> None:
        """Refuse further commits. What was committed is durable already."""
        with self._mutex:
            self._failure = self._failure or Closed("the namespace was closed")

    def _wait_for_turn(self, ticket: _Ticket) -> None:
        """Wait until the ticket is done or has been named to lead. A thread that is interrupted
        meanwhile takes its ticket back if it still can, and does not keep the lead."""
        try:
            ticket.wake.acquire()
        except BaseException:
            with self._mutex, suppress(ValueError):
                self._queue.remove(ticket)
            if ticket.wake.acquire(blocking=False) and not ticket.done:
                self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Name the next leader, if anybody is waiting."""
        with self._mutex:
            successor = self._queue[0] if self._queue else None
            self._leading = successor is not None
        if successor is not None:
            successor.wake.release()

    def _wait_for_company(self) -> None:
        """Under load, let those whom the last leader has just woken join: a fraction of the time
        that a PUT takes, and only while there are fewer waiting than it had."""
        if len(self._queue) < self._last_group:
            self.tree.environment.sleep(self._window)

    def _lead(self, own: _Ticket) -> None:
        """Commit groups until the own ticket is done, then name the next leader."""
        finished: list[_Ticket] = []
        try:
            while not own.done:
                self._commit_group(finished)
        finally:
            if not own.done:
                with self._mutex, suppress(ValueError):
                    self._queue.remove(own)
            self._hand_over()
            for ticket in finished:
                if ticket is not own:
                    ticket.wake.release()

    def _commit_group(self, finished: list[_Ticket]) -> None:
        """One log object: whoever is at the front of the queue, as far as they go together.

        Tickets that are done, well or badly, are added to `finished`. An interruption of this
        thread is passed on when they have been told that their outcome is uncertain.
        """
        with self._mutex:
            waiting = list(self._queue)
            self._queue.clear()
        try:
            with self.tree.lock:
                while waiting:
                    if self._failure is not None:
                        raise self._failure
                    group, decided, later = self._admit(waiting)
                    if decided and self.tree.unsettled:
                        for ticket in decided:
                            ticket.receipt = ticket.error = None
                        self._settle()
                        continue
                    finished += decided
                    waiting = group
                    with self._mutex:
                        self._queue.extendleft(reversed(later))
                    if group and self._commit_admitted(group):
                        break
        except BaseException as failure:
            if isinstance(failure, Fenced):
                self._failure = failure
            for ticket in waiting:
                ticket.error = failure if isinstance(failure, ReefError) else _interrupted(failure)
            if not isinstance(failure, Exception):
                raise
        finally:
            finished += waiting

    def _admit(self, waiting: list[_Ticket]) -> tuple[list[_Ticket], list[_Ticket], list[_Ticket]]:
        """Split into those that go together now, those decided already, and those for later.

        A batch whose outcome depends on what is there cannot be decided before an earlier
        batch of the same group that touches its ids: it waits for the next group. A batch of
        segments has a slot to itself, since all that is in one slot is equally new.
        """
        tree = self.tree
        view = tree.view
        schema = view.schema
        group: list[_Ticket] = []
        decided: list[_Ticket] = []
        keys: set[str] = set()
        size = 0
        for place, ticket in enumerate(waiting):
            batch = ticket.batch
            if group and (
                batch.segments
                or size + batch.nbytes > tree.options.group_bytes
                or (batch.key is not None and batch.key in keys)
                or (batch.reads and _meet(batch, group))
            ):
                return group, decided, waiting[place:]
            try:
                if batch.key is not None:
                    known = self._recall(batch.key)
                    if known is not None:
                        ticket.receipt = known
                        decided.append(ticket)
                        continue
                extended = (
                    schema
                    if batch.schema is schema
                    else schema.extended(batch.schema.attributes, batch.schema.id_kind)
                )
                if batch.segments:
                    check_not_condemned(view.unfolded.orphan_floor, batch.segments)
                    assert batch.counts is not None
                    ticket.admitted = Admitted(None, batch.counts)
                    return [ticket], decided, waiting[place + 1 :]
                ticket.admitted = admit(batch, view, tree)
                if ticket.admitted.segments:
                    # It reads what others of the group may write, so it is the first of it.
                    return [ticket], decided, waiting[place + 1 :]
                if ticket.admitted.rows is None and batch.key is None:
                    ticket.receipt = ticket.admitted.receipt.in_slot(view.unfolded.next_lsn - 1)
                    decided.append(ticket)
                    continue
            except ObjectNotFound as gone:
                if group:
                    return group, decided, waiting[place:]
                ticket.error = self._renew(gone)
                if ticket.error is None:
                    return group, decided, waiting[place:]
                decided.append(ticket)
                continue
            except ReefError as error:
                ticket.error = error
                decided.append(ticket)
                continue
            schema = extended
            size += batch.nbytes
            if batch.key is not None:
                keys.add(batch.key)
            group.append(ticket)
        return group, decided, []

    def _recall(self, key: str) -> Receipt | None:
        tree = self.tree
        manifest = tree.head.manifest
        return recall(
            key,
            tree.view.unfolded.keys,
            [tree.reader_of(info) for info in manifest.window],
            manifest.settings,
            tree.environment.now(),
        )

    def _commit_admitted(self, group: list[_Ticket]) -> bool:
        """Put the group into the next slot. False when somebody else held that slot: whoever it
        was has been applied, and the group must be admitted anew."""
        headers = []
        pieces = []
        for ticket in group:
            assert ticket.admitted is not None
            rows = ticket.admitted.rows
            batch = ticket.batch
            if rows is not None:
                pieces.append(rows)
            condition = batch.condition
            counts = ticket.admitted.receipt
            headers.append(
                BatchHeader(
                    counts.upserted + counts.patched + counts.deleted,
                    batch.key,
                    None if condition is None else _plain(condition.kind, condition.values),
                    counts.to_dict(),
                )
            )
        records: list[Record] = [join(pieces)] if pieces else []
        first = group[0]
        assert first.admitted is not None
        segments = first.batch.segments or first.admitted.segments
        if segments:
            records.append(Ingest(segments, first.batch.schema.to_dict()))
        lsn = self.tree.view.unfolded.next_lsn
        began = self.tree.environment.monotonic()
        if not self._append(headers, records):
            return False
        self._last_group = len(group)
        if len(group) > 1:
            taken = self.tree.environment.monotonic() - began
            self._window = min(taken / 4, _LONGEST_WINDOW)
        for ticket in group:
            assert ticket.admitted is not None
            ticket.receipt = ticket.admitted.receipt.in_slot(lsn)
        return True

    def _append(self, batches: list[BatchHeader], contents: list[Record]) -> bool:
        tree = self.tree
        lsn = tree.view.unfolded.next_lsn
        if self._slept():
            # Better to know before the PUT than to be in doubt after it.
            self._look_at_root()
            if tree.view.unfolded.next_lsn != lsn:
                return False
        # What this process took in of the root and the log (to fold, to load, to collect) may
        # have told it already; then the next slot is free, and not for it.
        epoch = max(tree.head.manifest.writer_epoch, tree.view.unfolded.epoch)
        if epoch > self.epoch:
            raise Fenced(f"writer epoch {self.epoch} was superseded by {epoch}")
        header = LogHeader(
            lsn=lsn,
            writer=tree.identity,
            epoch=self.epoch,
            nonce=tree.environment.nonce(),
            created_at=tree.environment.now(),
            skips=tree.discarded,
            batches=tuple(batches),
        )
        records: list[list[Buffer]] = []
        applied: list[Record] = []
        for content in contents:
            if isinstance(content, Ingest):
                records.append(encode_ingest(content))
                applied.append(content)
            else:
                record, stored = encode_rows(content)
                records.append(record)
                applied.append(stored)
        tree.unsettled = True
        holder = tree.log.append(header, records)
        if holder is not None:
            if holder.header.epoch > self.epoch:
                raise Fenced(
                    f"writer epoch {self.epoch} was superseded by {holder.header.epoch}"
                    f" in slot {lsn}"
                )
            tree.apply(holder)
            tree.unsettled = False
            return False
        self._confirm_lease(lsn)
        size = sum(map(size_of, records))
        tree.discarded = ()
        if tree.view.unfolded.next_lsn <= lsn:  # or else somebody has folded it already
            tree.apply(LogEntry(header, (), size), applied)
        tree.unsettled = False
        return True

    def _settle(self) -> None:
        """After a commit whose fate nobody could tell: claim its slot, or take in what is there.

        Until then the state is not known, and what takes no PUT must not be decided against it:
        neither that a condition fails nor that there is nothing to write. A PUT finds out itself.
        """
        while self.tree.unsettled:
            try:
                self._append([], [])
            except CommitUncertain as still:
                raise StoreUnavailable(
                    f"nothing was written: the commit before is not settled yet ({still})"
                ) from still

    def _slept(self) -> bool:
        """Whether it is so long since this process looked at the root that anything may be gone."""
        tree = self.tree
        self._confirmed = max(self._confirmed, tree.head.confirmed)
        asleep = tree.environment.monotonic() - self._confirmed
        return asleep >= tree.head.manifest.settings.lease

    def _look_at_root(self) -> Manifest:
        head = self.tree.register.head()
        self._confirmed = head.confirmed
        self.tree.advance(head)
        return head.manifest

    def _renew(self, gone: ObjectNotFound) -> ReefError | None:
        """Read the root again after an object that it names was found gone: compacted away and
        collected since. Returns what is wrong if that was not it."""
        before = self.tree.head.slot
        try:
            self._look_at_root()
        except ReefError as failure:
            return failure
        return None if self.tree.head.slot > before else gone

    def _confirm_lease(self, lsn: int) -> None:
        """Before the acknowledgement: is the slot that was won one that will be read?

        A writer that slept may win a slot that its successor filled, folded and collected. One
        that looked at the root a moment ago cannot have. A slot above the floor is read by
        everybody, and one that the root lists as folded still had its object when it was won. Of
        any other nobody can tell any more whether it was won before it was folded or after.
        """
        if not self._slept() and not self.tree.log.is_stranded(lsn):
            return
        try:
            manifest = self._look_at_root()
        except ReefError as failure:
            raise CommitUncertain(
                f"slot {lsn} was written, but the root could not be read to confirm it: {failure}"
            ) from failure
        if not is_retained_slot(manifest, lsn):
            raise CommitUncertain(
                f"slot {lsn} was folded and collected while writer epoch {self.epoch} was in the"
                f" middle of its commit; the epoch is {manifest.writer_epoch} now"
            )


def _interrupted(failure: BaseException) -> CommitUncertain:
    uncertain = CommitUncertain(f"the commit was interrupted by {failure!r}")
    uncertain.__cause__ = failure
    return uncertain


def _plain(kind: str, values: Any) -> dict[str, Any]:
    return {"kind": kind, "values": dict(values)} if values else {"kind": kind}


def _meet(batch: WriteBatch, group: list[_Ticket]) -> bool:
    """Whether a batch that reads has an id in common with those before it."""
    if batch.delete_where is not None:
        return True
    mine: set[str | int] = set()
    for part in (batch.upserts, batch.patches):
        if part is not None:
            mine.update(ids_of(part))
    if batch.deletes is not None:
        mine.update(batch.deletes.to_pylist())
    for ticket in group:
        assert ticket.admitted is not None
        rows = ticket.admitted.rows
        if rows is not None and not mine.isdisjoint(ids_of(rows)):
            return True
    return False

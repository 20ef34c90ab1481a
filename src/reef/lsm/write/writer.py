"""The writer of a tree: what becomes of batches on their way into the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from reef.commit import Contents, Ticket
from reef.commit import Writer as LogWriter
from reef.commit.writer import refusal
from reef.data.plain import ids_of, join
from reef.data.schema import Schema
from reef.errors import ObjectNotFound, ReefError
from reef.log import BatchHeader
from reef.lsm.records import (
    Condemn,
    Drop,
    Ingest,
    Record,
    encode_drop,
    encode_ingest,
    encode_rows,
)
from reef.lsm.tree import Tree
from reef.lsm.write.admission import Admitted, admit
from reef.lsm.write.batch import Receipt, WriteBatch
from reef.lsm.write.idempotency import recall
from reef.lsm.write.upload import check_not_condemned
from reef.manifest import Manifest
from reef.store.contract import Buffer

WriteTicket = Ticket[WriteBatch, Receipt]


class Writer(LogWriter[WriteBatch, Receipt]):
    """The one writer of a tree, until another one opens it. With `dropping` its first entry is the
    end of the namespace."""

    def __init__(self, tree: Tree, *, dropping: bool = False) -> None:
        super().__init__(tree)
        self.tree = tree
        self._dropping = dropping

    def open(self) -> None:
        """Take over: read the log, raise the epoch, and fence at the log's end."""
        super().open()
        if self.tree.head.manifest.dropping and not self._dropping:
            self.tree.advance(self.tree.register.publish(self._not_dropped))

    def taken_over(self, root: Manifest) -> Manifest:
        """Says that it is about to be dropped, if it is."""
        root = super().taken_over(root)
        return msgspec.structs.replace(root, dropping=root.dropping or self._dropping)

    def fence(self) -> Contents:
        """Nothing, or the end of the namespace."""
        if not self._dropping:
            return super().fence()
        return _contents_of([], [Drop(self.tree.head.manifest.generation + 1)])

    def _not_dropped(self, newest: Manifest) -> Manifest | None:
        """Whoever had set about to drop the namespace is fenced by now."""
        if not newest.dropping or newest.writer_epoch != self.epoch:
            return None
        return msgspec.structs.replace(newest, dropping=False)

    def declare(self, schema: Schema) -> None:
        """Make sure that the namespace has these attribute types, or `SchemaConflict`.

        What is new is appended to the log, as an ingest of nothing: so it is ordered among the
        writes of everybody, and durable when this returns.
        """
        tree = self.tree
        with tree.lock:
            while tree.view.schema.extended(schema.attributes, schema.id_kind) != tree.view.schema:
                self.check_open()
                self.append(_contents_of([], [Ingest((), schema.to_dict())]))

    def admit(self, waiting: Sequence[WriteTicket]) -> tuple[list[WriteTicket], list[WriteTicket]]:
        """Split into those that go together now, and those decided already; the rest is for later.

        A batch whose outcome depends on what is there cannot be decided before an earlier
        batch of the same group that touches its ids: it waits for the next group. A batch of
        segments has a slot to itself, since all that is in one slot is equally new.
        """
        tree = self.tree
        view = tree.view
        schema = view.schema
        group: list[WriteTicket] = []
        decided: list[WriteTicket] = []
        keys: set[str] = set()
        size = 0
        for ticket in waiting:
            batch = ticket.request
            if group and (
                batch.segments
                or size + batch.nbytes > tree.options.group_bytes
                or (batch.key is not None and batch.key in keys)
                or (batch.reads and _meet(batch, group))
            ):
                return group, decided
            try:
                if batch.key is not None:
                    known = self._recall(batch.key)
                    if known is not None:
                        ticket.answer = known
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
                    return [ticket], decided
                ticket.admitted = admitted = admit(batch, view, tree)
                if admitted.segments:
                    # It reads what others of the group may write, so it is the first of it.
                    return [ticket], decided
                if admitted.rows is None and batch.key is None:
                    ticket.answer = admitted.receipt.in_slot(view.unfolded.next_lsn - 1)
                    decided.append(ticket)
                    continue
            except ObjectNotFound as gone:
                if group:
                    return group, decided
                ticket.error = self._renew(gone)
                if ticket.error is None:
                    return group, decided
                decided.append(ticket)
                continue
            except Exception as error:
                ticket.error = refusal(error)
                decided.append(ticket)
                continue
            schema = extended
            size += batch.nbytes
            if batch.key is not None:
                keys.add(batch.key)
            group.append(ticket)
        return group, decided

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

    def _renew(self, gone: ObjectNotFound) -> ReefError | None:
        """Read the root again after an object that it names was found gone: compacted away and
        collected since. Returns what is wrong if that was not it."""
        before = self.tree.head.slot
        try:
            self.tree.look()
        except ReefError as failure:
            return failure
        return None if self.tree.head.slot > before else gone

    def contents(self, group: Sequence[WriteTicket]) -> Contents:
        """The rows of the group as one record, or the segments of its one batch."""
        headers = []
        pieces = []
        for ticket in group:
            admitted: Admitted = ticket.admitted
            batch = ticket.request
            if admitted.rows is not None:
                pieces.append(admitted.rows)
            condition = batch.condition
            counts = admitted.receipt
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
        segments = first.request.segments or first.admitted.segments
        if segments:
            records.append(Ingest(segments, first.request.schema.to_dict()))
        return _contents_of(headers, records)

    def answer(self, ticket: WriteTicket, lsn: int) -> Receipt:
        """The receipt that admission made, with its slot."""
        admitted: Admitted = ticket.admitted
        return admitted.receipt.in_slot(lsn)


def _contents_of(batches: list[BatchHeader], contents: list[Record]) -> Contents:
    records: list[list[Buffer]] = []
    applied: list[Record] = []
    for content in contents:
        if isinstance(content, Ingest):
            records.append(encode_ingest(content))
            applied.append(content)
        elif isinstance(content, Drop):
            records.append(encode_drop(content))
            applied.append(content)
        else:
            assert not isinstance(content, Condemn)
            record, stored = encode_rows(content)
            records.append(record)
            applied.append(stored)
    return Contents(batches, records, applied)


def _plain(kind: str, values: Any) -> dict[str, Any]:
    return {"kind": kind, "values": dict(values)} if values else {"kind": kind}


def _meet(batch: WriteBatch, group: list[WriteTicket]) -> bool:
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

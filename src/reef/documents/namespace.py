"""A namespace, open for writing or for reading."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any

from reef.data.filter import Expression
from reef.data.schema import Schema
from reef.documents.batches import make_batch
from reef.documents.changes import Change, changes
from reef.documents.following import Following
from reef.documents.load import load
from reef.documents.reading import FrozenReading, Reading
from reef.documents.snapshot import Snapshot
from reef.documents.status import Status, status_of
from reef.errors import (
    Backpressure,
    Closed,
    CommitUncertain,
    ConcurrentPublication,
    InvalidInput,
    ObjectNotFound,
    ReadOnly,
    SchemaConflict,
)
from reef.lsm.read.history import view_at
from reef.lsm.read.view import View
from reef.lsm.repair.rebuild import Rebuilt, rebuild
from reef.lsm.repair.repair import Repaired, repair
from reef.lsm.repair.verify import Report, verify
from reef.lsm.retention.collect import collect
from reef.lsm.retention.collector import Collected
from reef.lsm.tree import Tree
from reef.lsm.upkeep.compact import Compacted, compact
from reef.lsm.upkeep.fold import Folded, fold_from_log
from reef.lsm.upkeep.loop import Upkeeper
from reef.lsm.upkeep.passes import Upkeep, fold_own_log, follow_root
from reef.lsm.write.batch import Condition, Receipt, WriteBatch
from reef.lsm.write.large import as_segments, is_large
from reef.lsm.write.writer import Writer


class Namespace(Reading):
    """Documents under one name. Made by `Database.namespace`; safe to use from many threads.

    Open for writing it is the namespace's one writer, sees its own writes at once, and (unless
    `maintain` is off) folds and compacts by itself when thresholds are passed. Open for reading it
    follows the bucket: what it shows is never older than `Options.staleness` seconds when it is
    asked. So does a writer after `CommitUncertain`, until that commit is settled.
    """

    def __init__(
        self, name: str, tree: Tree, upkeeper: Upkeeper, *, writable: bool, maintain: bool
    ) -> None:
        self.name = name
        self._tree = tree
        self._upkeeper = upkeeper
        self._closed = False
        self._in_doubt = False
        self._writer: Writer | None = None
        self._upkeep: Upkeep | None = None
        self._following = Following(tree)
        if not writable:
            tree.recover()
            return
        self._writer = Writer(tree)
        self._writer.open()
        if maintain:
            self._upkeep = Upkeep(tree)
            self._upkeep.start(upkeeper, name)

    # Writing

    def write(
        self,
        upserts: Any = None,
        patches: Any = None,
        deletes: Any = None,
        *,
        delete_where: Expression | str | None = None,
        condition: Condition | None = None,
        on_conflict: str = "refuse",
        idempotency_key: str | None = None,
    ) -> Receipt:
        """Write one batch, atomically; when this returns it is durable in the bucket.

        Upserts and patches are a list of dicts, a dict of columns, an Arrow table, or a pandas or
        polars frame; deletes are ids. They apply in the order of the arguments; of several
        operations of one sort on one id the last counts. A patch changes only the attributes it
        names; of an id that is not there it has no effect and is counted as `missing`. What
        `delete_where` matches is decided on the state before the batch; alone and without a
        condition it may match any number of documents.

        A condition is decided for every id against the state before the batch. If it fails for one,
        the batch is refused with `ConditionFailed` and nothing is written; with
        `on_conflict="skip"` the operations that hold are applied and the receipt lists the others.
        A batch with an idempotency key that was used within the window is not written again: the
        first receipt is returned.
        """
        writer = self._writer
        if writer is None:
            raise self._not_writable()
        tree = self._tree
        while True:
            schema = tree.view.unfolded.schema
            batch = make_batch(
                schema,
                tree.options,
                upserts=upserts,
                patches=patches,
                deletes=deletes,
                delete_where=delete_where,
                condition=condition,
                on_conflict=on_conflict,
                idempotency_key=idempotency_key,
            )
            self._respect_backlog()
            try:
                receipt = self._commit(writer, batch)
            except SchemaConflict:
                # What was inferred may fit another way what somebody else's write decided first.
                if tree.view.unfolded.schema is schema:
                    raise
                continue
            except CommitUncertain:
                self._doubt()
                raise
            except ObjectNotFound as gone:
                self._renewed(gone)
                raise
            if self._upkeep is not None:
                self._upkeep.changed()
            return receipt

    def declare(self, schema: Schema) -> None:
        """Add the attribute types of a schema to the namespace's, or `SchemaConflict` if one
        disagrees; a handle for reading can only check for them. Durable when this returns."""
        self._check_open()
        if self._writer is not None:
            try:
                self._writer.declare(schema)
            except CommitUncertain:
                self._doubt()
                raise
        else:
            known = self.schema
            if known.extended(schema.attributes, schema.id_kind) != known:
                raise SchemaConflict("the namespace does not have all attributes of that schema")

    def _commit(self, writer: Writer, batch: WriteBatch) -> Receipt:
        if is_large(batch, self._tree):
            try:
                return writer.commit(as_segments(batch, self._tree))
            except ConcurrentPublication:
                # The upload took so long that it was condemned; the log itself takes any batch.
                pass
        return writer.commit(batch)

    def load(
        self,
        data: Any,
        *,
        idempotency_key: str | None = None,
        truncate: bool = False,
    ) -> Receipt:
        """Bulk load rows (as `write` takes them, or an iterator of such) as segments and one log
        record: atomic, whatever the size, in bounded memory. With `truncate` they replace
        everything that was there: `load([], truncate=True)` empties the namespace. Works on any
        handle and does not disturb the live writer."""
        self._check_open()
        return load(self._tree, data, key=idempotency_key, truncate=truncate)

    def _not_writable(self) -> Exception:
        if self._closed:
            return Closed(f"namespace {self.name!r} was closed")
        return ReadOnly(f"namespace {self.name!r} is open for reading only")

    def _respect_backlog(self) -> None:
        options = self._tree.options
        folding = self._upkeep.folding if self._upkeep is not None else None
        while True:
            passes = folding.passes if folding is not None else 0
            unfolded = self._tree.view.unfolded
            if (
                unfolded.nbytes < options.backlog_bytes
                and unfolded.objects < options.backlog_objects
            ):
                return
            if folding is not None and folding.alive:
                folding.wake()
                if folding.wait_for_pass(options.backlog_wait, passes) and folding.failure is None:
                    continue
            self._check_open()
            if self._tree.closing:
                raise Closed(f"namespace {self.name!r} is being closed")
            because = f" ({folding.failure})" if folding is not None and folding.failure else ""
            raise Backpressure(
                f"{unfolded.objects} log objects with {unfolded.nbytes} bytes are not folded"
                f" yet{because}; run index() or leave maintenance on"
            )

    # Upkeep

    def index(self) -> Folded | None:
        """Fold one stretch of the log into segments now, and say which. None when nothing was left
        to fold: also because the handle's own upkeep, or another process, was faster.

        A handle for reading that is overtaken in the middle of it says `ConcurrentPublication`.
        """
        self._check_open()
        if self._writer is None:
            folded = fold_from_log(self._tree)
            self.refresh()
            return folded
        return self._upkeep.fold_now() if self._upkeep else fold_own_log(self._tree)

    def compact(self, *, full: bool = False) -> Compacted | None:
        """Do one compaction now, or all into one run. None when the tree is in shape."""
        self._check_open()
        done = compact(self._tree, full=full)
        follow_root(self._tree)
        return done

    def gc(self, *, apply: bool = False) -> Collected:
        """Find what nothing needs any more; delete what is due if `apply`."""
        self._check_open()
        collected = collect(self._tree, apply=apply)
        follow_root(self._tree)
        return collected

    def verify(self, *, deep: bool = False) -> Report:
        """Check manifests, log and segments; with `deep` every block."""
        self._check_open()
        return verify(self._tree, deep=deep)

    def repair(self, *, apply: bool = False) -> Repaired:
        """Set damaged objects aside and make the namespace whole without them, if `apply`;
        otherwise change nothing and report what would be done."""
        self._check_open()
        repaired = repair(self._tree, apply=apply)
        if apply:
            self._tree.recover()
        return repaired

    def rebuild(self) -> Rebuilt:
        """Reconstruct all segments afresh from what the bucket holds."""
        self._check_open()
        rebuilt = rebuild(self._tree, name=self.name)
        self._tree.recover()
        return rebuilt

    # Reading

    def at(
        self,
        *,
        generation: int | None = None,
        lsn: int | None = None,
        time: datetime | None = None,
    ) -> FrozenReading:
        """The state of a manifest generation, after a log slot, or at a moment."""
        self._check_open()
        if generation is None and lsn is None and time is None:
            raise InvalidInput("at() takes one of generation, lsn and time")
        view = view_at(self._tree, generation=generation, lsn=lsn, time=time)
        return FrozenReading(view, self._tree.register.head)

    def snapshot(self, *, seconds: float = 600.0) -> Snapshot:
        """The state of now, kept from collection until it is closed, however long that takes.

        It is renewed as long as this process lives; if it dies, the state is kept for `seconds`
        longer. Works on any handle, and costs a few requests that nobody else waits for.
        """
        self._check_open()
        if not isinstance(seconds, int | float) or not 0 < seconds < 1e9:
            raise InvalidInput(f"a snapshot is kept for some seconds, not {seconds!r}")
        if self._writer is None:
            self.refresh()
        return Snapshot(self._tree, seconds, self._renew, self._upkeeper)

    def changes(self, *, after: int = 0) -> Iterator[Change]:
        """The operations committed after that LSN, in order, up to now. `PastRetention` if some
        were collected; to follow, call again with the last LSN seen."""
        self._check_open()
        return changes(self._tree, after)

    def refresh(self) -> None:
        """Catch up with the bucket now. (A writer is always caught up with itself.)"""
        self._check_open()
        if self._writer is None:
            self._following.catch_up()

    @property
    def lsn(self) -> int:
        """The newest log slot that reads reflect."""
        return self._current().unfolded.next_lsn - 1

    @property
    def generation(self) -> int:
        """The newest manifest generation known."""
        return self._current().manifest.generation

    def status(self) -> Status:
        """The shape of the tree: levels, segments, unfolded log, epochs, what waits for GC."""
        return status_of(self.name, self._current(), self._tree.board.read())

    def _current(self) -> View:
        if self._closed:
            raise Closed(f"namespace {self.name!r} was closed")
        if self._writer is None:
            self._following.keep_fresh()
        elif self._in_doubt:
            self._following.keep_fresh()
            self._in_doubt = self._tree.unsettled
        return self._tree.view

    def _doubt(self) -> None:
        """A commit may be in the bucket though this handle does not show it. Until that is settled
        it reads as one that follows the bucket does."""
        self._in_doubt = True
        self._following.expire()

    def _renew(self) -> bool:
        if self._writer is None:
            self.refresh()
        else:
            follow_root(self._tree)
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"namespace {self.name!r} was closed")

    # Ending

    def close(self) -> None:
        """Stop the upkeep and refuse further calls. What was written is durable already. A
        compaction under way is given up, and leaves orphans."""
        if self._closed:
            return
        if self._writer is not None:
            self._writer.close()
        self._tree.closing = True
        if self._upkeep is not None:
            self._upkeep.stop()
        self._closed = True
        self._writer = None

    def __enter__(self) -> Namespace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

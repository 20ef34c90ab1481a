"""The log as a source of Spark: a stream of changes, or those between two versions.

A version is a slot of the log, by its LSN: one atomic write. An offset of a stream is the last slot
that it has read, `{"lsn": n}`, and a batch of it the slots above one offset through another. Slots
never change, so a batch that is read again after a failure has the same rows. They are the
smallest unit: `maxRowsPerTrigger` and `maxBytesPerTrigger` are passed by a batch only if one slot
alone does. How long the log can be read is decided by the namespace's retention alone: a stream
holds nothing back, and one that falls behind gets an error that says so.

The stream runs in Python processes that Spark starts next to the driver: Reef has to be installed
for their Python. `spark.submit.pyFiles` does not reach them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from reef.documents.changes import changes_between, ingested, microseconds
from reef.errors import InvalidInput, PastRetention
from reef.lsm.read.splits import SPLIT_BYTES
from reef.lsm.retention.reachability import first_retained_slot
from reef.lsm.tree import Tree
from reef.manifest import Manifest
from reef.manifest.register import Head
from reef.spark.feed.plan import Slot, Stretch, last_admitted, share_out
from reef.spark.feed.rows import Shape, feed_schema, not_only_upserts
from reef.spark.feed.slots import first_since, newest_slot, slots_between
from reef.spark.options import SourceOptions
from reef.spark.reading import sized

__all__ = ["KNOWN", "FeedReader", "ReefStreamReader", "feed_schema"]

_COMMON = (
    "readChangeFeed",
    "ignoreChanges",
    "startingVersion",
    "startingTimestamp",
    "failOnDataLoss",
    "splitBytes",
    "unsignedIds",
)
_STREAM = (*_COMMON, "maxRowsPerTrigger", "maxBytesPerTrigger")
_BATCH = (*_COMMON, "endingVersion", "endingTimestamp")
KNOWN = tuple(dict.fromkeys((*_STREAM, *_BATCH)))
"""readChangeFeed      true: every change, with the columns that `feed_schema` adds; false (for a
                    stream): the documents of upserts, and any other change is an error
ignoreChanges       with readChangeFeed=false: leave other changes out instead
startingVersion     the first LSN to read, 1 if not given; "latest": what is written from now on
startingTimestamp   instead: the first LSN that was committed at that time or later
endingVersion       the last LSN to read, the newest if not given
endingTimestamp     instead: the last LSN that was committed at that time or before
maxRowsPerTrigger   about how many rows a batch of a stream has at most
maxBytesPerTrigger  about how many bytes of objects it reads at most
failOnDataLoss      false: go on at the first slot that is still there when some were collected
splitBytes          how many bytes of objects a task reads, about
unsignedIds         "bigint" or "decimal": how integer ids are shown"""

_LATEST = "latest"
_MOST_REMEMBERED = 10_000
_logger = logging.getLogger("reef")


class _Feed:
    """What the options of a feed ask for."""

    def __init__(
        self, given: Mapping[str, str], known: Sequence[str], struct: StructType, is_whole: bool
    ) -> None:
        options = SourceOptions(given, known)
        self.options = options
        self.bucket = options.bucket
        self.namespace = options.namespace
        self.shape = Shape(
            struct,
            options.flag("readChangeFeed", False),
            options.flag("ignoreChanges", False),
            is_whole,
        )
        self.starting = _moment(options, "startingTimestamp")
        self.ending = _moment(options, "endingTimestamp")
        for end in ("starting", "ending"):
            if f"{end}Version" in options and f"{end}Timestamp" in options:
                raise InvalidInput(f"give one of {end}Version and {end}Timestamp, not both")
        self.from_latest = (options.text("startingVersion") or "").strip().lower() == _LATEST
        self.first = None if self.from_latest else options.number("startingVersion", 1)
        self.last = options.number("endingVersion", 1)
        self.tolerant = not options.flag("failOnDataLoss", True)
        self.split_bytes = options.number("splitBytes", 1) or SPLIT_BYTES

    def tree(self) -> Tree:
        return self.bucket.tree(self.namespace, create=False)

    def check_columns(self) -> None:
        # In a tree of its own, for the state is not needed any more.
        tree = self.tree()
        tree.recover()
        self.shape.check(tree.view.schema)

    def first_slot(self, tree: Tree, head: Head[Manifest], tip: int) -> int:
        """Where the options say to begin."""
        if self.from_latest:
            return tip + 1
        if self.starting is not None:
            retained = first_retained_slot(head.manifest)
            first = first_since(tree, retained, tip, self.starting)
            # What was collected before the first slot that is left may have been as new.
            newest = microseconds(head.manifest.created_at)
            lost = first == retained and self.starting <= newest and not self.tolerant
            return head.manifest.life.lsn if lost else first
        if self.first is not None and self.first > tip + 1:
            raise InvalidInput(
                f"startingVersion {self.first} is not written yet; the newest LSN is {tip}"
            )
        return self.first or head.manifest.life.lsn

    def last_slot(self, tree: Tree, head: Head[Manifest], tip: int) -> int:
        """Where the options say to end."""
        if self.ending is not None:
            return first_since(tree, first_retained_slot(head.manifest), tip, self.ending + 1) - 1
        if self.last is not None and self.last > tip:
            raise InvalidInput(
                f"endingVersion {self.last} is not written yet; the newest LSN is {tip}"
            )
        return self.last or tip

    def retained(self, head: Head[Manifest], first: int) -> int:
        """The slot itself if the log is there from it on. Otherwise `PastRetention`, or the first
        that is there if that may be."""
        left = first_retained_slot(head.manifest)
        if first >= left:
            return first
        life = head.manifest.life
        if first < life.lsn and not self.tolerant:
            raise PastRetention(
                f"namespace {self.namespace!r} was dropped and created anew; its log begins with"
                f" LSN {life.lsn}, and LSN {first} is to be read: use a new checkpoint, or set"
                " failOnDataLoss=false to go on with what is there now"
            )
        if not self.tolerant:
            raise PastRetention(
                f"the log of namespace {self.namespace!r} was collected up to LSN {left - 1}, and"
                f" LSN {first} is to be read: its retention is"
                f" {head.manifest.settings.retention:g} seconds after a slot was folded; set"
                " startingVersion (of a new query), or failOnDataLoss=false to go on without what"
                " is gone"
            )
        _logger.warning("LSN %d to %d were collected; passed over", first, left - 1)
        return left

    def partitions(self, slots: Sequence[Slot]) -> list[InputPartition]:
        shape = self.shape
        if not shape.change_feed and not shape.ignore_changes:
            for slot in slots:
                if slot.changes:
                    raise not_only_upserts(slot.lsn)
        return [InputPartition(pieces) for pieces in share_out(slots, self.split_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        tree = self.tree()
        columns = self.shape.columns
        # Spark makes a partition of its own, of nothing, where there are none.
        for piece in partition.value or ():
            try:
                if isinstance(piece, Stretch):
                    found = changes_between(tree, piece.first - 1, piece.last, columns)
                else:
                    found = ingested(
                        tree, piece.segments, piece.lsn, piece.created, piece.truncate, columns
                    )
                for changes in found:
                    batch = self.shape.rows(changes)
                    if batch is not None:
                        yield batch
            except PastRetention as gone:
                if not self.tolerant:
                    raise
                _logger.warning("%s; passed over", gone)


class ReefStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the log of a namespace. The columns are fixed when the query starts.

    With `is_whole` they are all that the namespace has: an attribute that appears later ends the
    query with an error, and starting it again takes up the new column. Otherwise what has no
    column is left out.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, is_whole: bool = False
    ) -> None:
        self._feed = _Feed(options, _STREAM, schema, is_whole)
        self._rows = self._feed.options.number("maxRowsPerTrigger", 1)
        self._bytes = self._feed.options.number("maxBytesPerTrigger", 1)
        self._tree: Tree | None = None
        self._target: int | None = None
        self._tip: int | None = None
        self._seen: dict[int, Slot] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_tree": None, "_seen": {}}

    def _open(self) -> Tree:
        if self._tree is None:
            if not self._feed.shape.is_whole:
                self._feed.check_columns()
            self._tree = self._feed.tree()
        return self._tree

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The slot before the first to read."""
        tree = self._open()
        head, tip = newest_slot(tree)
        return {"lsn": self._feed.first_slot(tree, head, tip) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say."""
        if self._rows is not None:
            return ReadMaxRows(self._rows)
        if self._bytes is not None:
            return ReadMaxBytes(self._bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is in the log now is all that this run reads."""
        self._target = newest_slot(self._open())[1]

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """The newest slot when that was last looked for."""
        return None if self._tip is None else {"lsn": self._tip}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The last slot of the next batch. Slots are looked at one by one only for a limit, and
        not beyond it."""
        tree = self._open()
        done = start["lsn"]
        head, tip = newest_slot(tree, done)
        self._tip = tip
        if tip < done and not self._feed.tolerant:
            raise InvalidInput(
                f"this query has read LSN {done}, and the log of namespace"
                f" {self._feed.namespace!r} ends at LSN {tip}: it was made anew, or lost its end;"
                " use a new checkpoint, or set failOnDataLoss=false to wait until it gets there"
            )
        first = self._feed.retained(head, done + 1)
        last = tip if self._target is None else min(tip, self._target)
        if last <= done:
            return start
        rows = nbytes = None
        if not isinstance(limit, ReadAllAvailable):
            rows, nbytes = self._rows, self._bytes
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            nbytes = limit.max_bytes
        if rows is None and nbytes is None:
            return {"lsn": last}
        return {"lsn": last_admitted(self._slots(tree, first, last), rows, nbytes) or last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The slots above one offset through another, shared out by bytes."""
        first, last = start["lsn"] + 1, end["lsn"]
        if first > last:
            return []
        tree = self._open()
        first = self._feed.retained(tree.register.head(), first)
        return self._feed.partitions(list(self._slots(tree, first, last)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of a partition, in the order of the log."""
        return sized(self._feed.read(partition))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for this stream, so nothing is let go."""
        self._seen = {lsn: slot for lsn, slot in self._seen.items() if lsn > end["lsn"]}

    def _slots(self, tree: Tree, first: int, last: int) -> Iterator[Slot]:
        """Those slots; such as were looked at for a limit are not looked at again to plan."""
        while first <= last and first in self._seen:
            yield self._seen[first]
            first += 1
        if first > last:
            return
        for slot in slots_between(tree, first, last):
            if slot.is_known and len(self._seen) < _MOST_REMEMBERED:
                self._seen[slot.lsn] = slot
            yield slot


class FeedReader(DataSourceReader):
    """Reads the changes between two versions, both included."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._feed = _Feed({**options, "readChangeFeed": "true"}, _BATCH, schema, False)
        if self._feed.from_latest:
            raise InvalidInput('startingVersion "latest" is for streams; give the first LSN')

    def partitions(self) -> list[InputPartition]:
        """The slots of the range, shared out by bytes."""
        feed = self._feed
        feed.check_columns()
        tree = feed.tree()
        head, tip = newest_slot(tree)
        first, last = feed.first_slot(tree, head, tip), feed.last_slot(tree, head, tip)
        if feed.first is not None and feed.last is not None and feed.first > feed.last:
            raise InvalidInput(f"startingVersion {first} is after endingVersion {last}")
        if first > last:
            return []
        first = feed.retained(head, first)
        return feed.partitions(list(slots_between(tree, first, last)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of a partition, in the order of the log."""
        return sized(self._feed.read(partition))


def _moment(options: SourceOptions, name: str) -> int | None:
    text = options.text(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            f"the option {name} is a time such as 2026-01-31 17:30:00 or"
            f" 2026-01-31T17:30:00+01:00, not {text!r}"
        ) from None
    return microseconds((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())

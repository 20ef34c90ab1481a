"""Exporting: the documents of one state as Parquet files in a folder or bucket.

The ids are cut into ranges; each becomes one file, written whole with a single PUT. A file named
`_SUCCESS` comes last and tells what there is: an export without it is not complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from reef.data.filter import Expression
from reef.documents.scan import Scan
from reef.errors import InvalidInput, ObjectNotFound, PastRetention
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.read.history import Moment, moment_of, view_of
from reef.lsm.read.ranges import WHOLE, Range
from reef.lsm.read.splits import SMALLEST_SPLIT, Aim, plan_ranges
from reef.lsm.read.view import View
from reef.lsm.tree import Tree
from reef.store import Store, open_store

SUCCESS = "_SUCCESS"
FILE_BYTES = 128 * 1024 * 1024
_ROW_GROUP_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Destination:
    """Where files go: an address, and options of the store there."""

    url: str
    storage: tuple[tuple[str, str], ...] = ()

    def open(self) -> Store:
        """The store."""
        options: dict[str, Any] = dict(self.storage)
        return open_store(self.url, **options)


@dataclass(frozen=True)
class ExportPart:
    """One file: the documents of a state with ids in a range."""

    moment: Moment
    within: Range
    columns: tuple[str, ...] | None
    filter: Expression | None
    destination: Destination
    name: str


@dataclass(frozen=True)
class ExportedFile:
    """A file that was written."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Exported:
    """What an export wrote: all documents of that generation and the log through that LSN."""

    generation: int
    lsn: int
    rows: int
    bytes: int
    files: tuple[ExportedFile, ...] = field(default=())


def destination_at(
    url: str | os.PathLike[str], storage: Mapping[str, str] | None = None
) -> Destination:
    """A destination; a folder's address is made absolute, for work that is done elsewhere."""
    address = os.fspath(url)
    if "://" not in address:
        address = os.path.abspath(os.path.expanduser(address))
    return Destination(address, tuple(sorted((storage or {}).items())))


Work = Callable[[Sequence[ExportPart]], Sequence[ExportedFile]]


def export(
    view: View,
    destination: Destination,
    work: Work,
    *,
    columns: tuple[str, ...] | None,
    filter: Expression | None,
    overwrite: bool,
    parts: int = 1,
    file_bytes: int = FILE_BYTES,
) -> Exported:
    """Write the files, each by `work`, and then the file that says so.

    A destination that holds anything is refused, or emptied first with `overwrite`.
    """
    if not isinstance(file_bytes, int) or file_bytes < 1:
        raise InvalidInput(f"a file has some bytes at least, not {file_bytes!r}")
    store = destination.open()
    try:
        _make_room(store, destination.url, overwrite)
        total = sum(info.size for info in view.segments) + view.unfolded.nbytes
        splits = max(1, -(-total // file_bytes), min(parts, total // SMALLEST_SPLIT))
        try:
            ranges = plan_ranges(view, filter, Aim(splits), store.concurrently)
        except ObjectNotFound as gone:
            raise _past(gone) from None
        moment = moment_of(view)
        files = work(
            [
                ExportPart(moment, within, columns, filter, destination, f"part-{n:05d}.parquet")
                for n, within in enumerate(ranges or [WHOLE])
            ]
        )
        done = Exported(
            moment.generation,
            moment.lsn,
            sum(file.rows for file in files),
            sum(file.bytes for file in files),
            tuple(files),
        )
        store.put(SUCCESS, msgspec.json.encode(done))
    finally:
        store.close()
    return done


def _make_room(store: Store, url: str, overwrite: bool) -> None:
    held = [info.key for info in store.list("")]
    if not held:
        return
    if not overwrite:
        raise InvalidInput(f"{url} is not empty; export to an empty place, or overwrite it")
    foreign = [key for key in held if key != SUCCESS and not key.endswith(".parquet")]
    if foreign:
        raise InvalidInput(
            f"{url} holds {foreign[0]!r}, which is not of an export; it is not overwritten"
        )
    # What is left without the mark is known to be incomplete.
    if SUCCESS in held:
        store.delete(SUCCESS)
    store.delete_many([key for key in held if key != SUCCESS])


def export_part(tree: Tree, part: ExportPart) -> ExportedFile:
    """Write one file, wherever this runs."""
    return write_file(view_of(tree, part.moment), part)


def write_file(view: View, part: ExportPart, memory: MemoryRuns | None = None) -> ExportedFile:
    """Write the documents of a range as one Parquet file; `memory` is what `View.pin` gave."""
    scan = Scan(
        lambda: view.scan(
            start=part.within.start,
            stop=part.within.stop,
            columns=part.columns,
            filter=part.filter,
            memory=memory,
        ),
        view.schema,
        part.columns,
        None,
    )
    target = io.BytesIO()
    rows = 0
    try:
        with pq.ParquetWriter(target, scan.schema, compression="zstd") as writer:
            for batches in _row_groups(scan):
                table = pa.Table.from_batches(batches, schema=scan.schema)
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                rows += table.num_rows
    except ObjectNotFound as gone:
        raise _past(gone) from None
    data = target.getbuffer()
    store = part.destination.open()
    try:
        store.put(part.name, data)
    finally:
        store.close()
    return ExportedFile(part.name, rows, data.nbytes)


def _past(gone: ObjectNotFound) -> PastRetention:
    return PastRetention(f"the state being exported is no longer retained: {gone}")


def _row_groups(scan: Scan) -> Any:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in scan:
        held.append(batch)
        size += batch.nbytes
        if size >= _ROW_GROUP_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held

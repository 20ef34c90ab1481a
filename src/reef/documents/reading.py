"""The reading half of a namespace: what any holder of a state can do with it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from reef.data.filter import Expression
from reef.data.ids import check_each, check_id
from reef.data.interval import interval_of, prefix_interval
from reef.data.rows import ID
from reef.data.schema import Schema
from reef.documents.batches import parsed_filter
from reef.documents.export import (
    FILE_BYTES,
    Exported,
    ExportedFile,
    ExportPart,
    destination_at,
    export,
    write_file,
)
from reef.documents.scan import Scan
from reef.documents.scanned_state import ScannedState
from reef.errors import InvalidInput, ObjectNotFound, PastRetention
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.read.view import View
from reef.lsm.retention.reachability import reachable_segments
from reef.lsm.upkeep.overtaken import lost
from reef.manifest.register import Head

Id = str | int
LISTS, ARRAYS = "list", "numpy"
Result = TypeVar("Result")
_ATTEMPTS = 4


class Reading(ABC):
    """Reads from the view that `_current` gives. Thread-safe."""

    @abstractmethod
    def _current(self) -> View:
        """The state to read from now."""

    @abstractmethod
    def _renew(self) -> bool:
        """Look at the bucket again after an object was gone; False if that cannot help."""

    @property
    def schema(self) -> Schema:
        """The kind of ids and the attribute types known now."""
        return self._current().schema

    def get(
        self, id: Id, *, columns: Sequence[str] | None = None, vectors: str = LISTS
    ) -> dict[str, Any] | None:
        """The document as a dict with its id under "id", or None if there is none.

        Attributes it does not have are left out; with `columns`, so are the others. With
        `vectors="numpy"` vectors are NumPy arrays, in the type of their elements.
        """
        arrays = as_arrays(vectors)
        view = self._current()
        check_id(id, view.schema)
        if columns is not None:
            columns = check_columns(columns, view.schema)
        try:
            return view.get(id, columns, arrays=arrays)
        except ObjectNotFound as gone:
            return self._again(lambda renewed: renewed.get(id, columns, arrays=arrays), gone)

    def get_many(
        self, ids: Sequence[Id], *, columns: Sequence[str] | None = None, vectors: str = LISTS
    ) -> list[dict[str, Any] | None]:
        """The documents of these ids in their order, None for each that is not there. For
        `columns` and `vectors` see `get`."""
        arrays = as_arrays(vectors)
        view = self._current()
        ids = check_each(ids, view.schema)
        if columns is not None:
            columns = check_columns(columns, view.schema)
        try:
            return view.get_many(ids, columns, arrays=arrays)
        except ObjectNotFound as gone:
            return self._again(lambda renewed: renewed.get_many(ids, columns, arrays=arrays), gone)

    def scan(
        self,
        *,
        start: Id | None = None,
        stop: Id | None = None,
        prefix: str | None = None,
        columns: Sequence[str] | None = None,
        filter: Expression | str | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Scan:
        """Documents with start <= id < stop (or of an id prefix) that the filter keeps, by id.

        Strings are ordered by code point. A bound need not be an id: it may be empty, or longer
        than any id. Only what is needed is fetched: blocks in range, columns
        asked for, groups whose statistics do not rule the filter out.
        """
        view = self._current()
        schema = view.schema
        expression = parsed_filter(filter, schema)
        wanted = None if columns is None else tuple(check_columns(columns, schema))
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidInput(f"limit must be a number from 0 on, not {limit!r}")
        if prefix is not None:
            if start is not None or stop is not None:
                raise InvalidInput("a scan takes a prefix or start and stop, not both")
            start, stop = prefix_interval(prefix, schema)
        else:
            start, stop = interval_of(start, stop, schema)

        def read(view: View, memory: MemoryRuns) -> Iterator[pa.RecordBatch]:
            return view.scan(
                start=start,
                stop=stop,
                columns=wanted,
                filter=expression,
                reverse=reverse,
                memory=memory,
            )

        state = ScannedState(view, self._renewed, _past)
        return Scan(partial(state.batches, read), schema, wanted, limit)

    def export(
        self,
        destination: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        filter: Expression | str | None = None,
        overwrite: bool = False,
        file_bytes: int = FILE_BYTES,
        storage: Mapping[str, str] | None = None,
    ) -> Exported:
        """Write the documents as Parquet files of about that size of segments each to a folder or
        bucket, which must be empty unless `overwrite`. It is complete when `_SUCCESS` is there."""
        target = destination_at(destination, storage)
        for attempt in range(_ATTEMPTS):
            view = self._current()
            memory = view.pin()
            wanted = None if columns is None else tuple(check_columns(columns, view.schema))
            try:
                return export(
                    view,
                    target,
                    partial(_write_files, view, memory),
                    columns=wanted,
                    filter=parsed_filter(filter, view.schema),
                    # What an attempt before this one left is its own.
                    overwrite=overwrite or attempt > 0,
                    file_bytes=file_bytes,
                )
            except PastRetention:
                # The state was collected: one that this handle held for long, or one that took
                # longer to write than it was retained.
                if attempt + 1 == _ATTEMPTS or not self._renew():
                    raise
        raise AssertionError

    def count(self, filter: Expression | str | None = None) -> int:
        """How many documents there are (that the filter keeps)."""
        if filter is None:
            view = self._current()
            try:
                return view.count()
            except ObjectNotFound as gone:
                return self._again(lambda renewed: renewed.count(), gone)
        return sum(batch.num_rows for batch in self.scan(columns=(ID,), filter=filter))

    def _again(self, read: Callable[[View], Result], gone: ObjectNotFound) -> Result:
        """A read that met a collected object, on newer states."""
        for _ in range(_ATTEMPTS):
            view = self._renewed(gone)
            if view is None:
                break
            try:
                return read(view)
            except ObjectNotFound as found:
                gone = found
        raise _past(gone) from None

    def _renewed(self, gone: ObjectNotFound) -> View | None:
        """A newer state after an object was gone, if there can be one. `Corruption` if that names
        the object still: what is collected is forgotten first, so this one was lost."""
        if not self._renew():
            return None
        view = self._current()
        if any(gone.key.endswith(info.key) for info in view.segments):
            raise lost(gone) from gone
        return view


def _write_files(
    view: View, memory: pa.RecordBatch | None, parts: Sequence[ExportPart]
) -> list[ExportedFile]:
    return [write_file(view, part, memory) for part in parts]


def _past(gone: ObjectNotFound) -> PastRetention:
    return PastRetention(f"the state being read is no longer retained: {gone}")


def as_arrays(vectors: str) -> bool:
    """Whether vectors are to be NumPy arrays; `InvalidInput` unless they are "list" or "numpy"."""
    if vectors not in (LISTS, ARRAYS):
        raise InvalidInput(f'vectors come as "list" or "numpy", not {vectors!r}')
    return vectors == ARRAYS


def check_columns(columns: Sequence[str], schema: Schema) -> Sequence[str]:
    """The columns, or `InvalidInput` if the schema lacks one."""
    if isinstance(columns, str):
        raise InvalidInput("columns must be a list of attribute names, not one string")
    for name in columns:
        if name != ID and name not in schema.attributes:
            raise InvalidInput(f"there is no attribute {name!r} in the schema")
    return columns


class FrozenReading(Reading):
    """A state of the past. It does not move; it ends when its retention does."""

    def __init__(self, view: View, head: Callable[[], Head] | None = None) -> None:
        """`head` reads the newest root, which tells what was lost from what was collected."""
        self._view = view
        self._head = head

    @property
    def lsn(self) -> int:
        """The newest log slot that this state reflects."""
        return self._view.unfolded.next_lsn - 1

    @property
    def generation(self) -> int:
        """The manifest generation that this state is read through."""
        return self._view.manifest.generation

    def _current(self) -> View:
        return self._view

    def _renew(self) -> bool:
        return False

    def _renewed(self, gone: ObjectNotFound) -> View | None:
        """No newer state; but `Corruption` if the object should still be there."""
        if self._head is not None:
            retained = reachable_segments(self._head().manifest, self._view.ingests)
            if any(gone.key.endswith(key) for key in retained):
                raise lost(gone) from gone
        return None

"""A row group in memory: blocks as fetched, columns decoded when first asked for."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from reef.data.documents import ABSENT, Document, Getter, build_document, getter_of
from reef.data.rows import KIND_FIELD, LSN_FIELD, field_of, id_field, null_flag
from reef.data.schema import Schema
from reef.errors import Corruption
from reef.segment.block import HEADER, decode_block, raw_length
from reef.segment.decode import Column, MalformedNode, decode_column, decode_keys
from reef.segment.index import BlockPlace

_MALFORMED = (MalformedNode, struct.error, ValueError, OverflowError, IndexError, pa.ArrowException)
_BYTES_AN_ID = 80
_FEW_SEARCHES = 4


class Group:
    """Rows of one group, in id order. Its blocks are checked when they are first decoded."""

    __slots__ = (
        "_blocks",
        "_columns",
        "_every",
        "_getters",
        "_id_at",
        "_ids",
        "_key",
        "_kinds",
        "_lsn",
        "_lsns",
        "_nbytes",
        "_places",
        "_schema",
        "_searches",
        "ids",
        "rows",
    )

    def __init__(
        self,
        key: str,
        schema: Schema,
        rows: int,
        places: Mapping[str | None, BlockPlace],
        blocks: Mapping[str | None, memoryview],
        lsn: int,
    ) -> None:
        """`blocks` has the key block under None; `lsn` is what every row has, if not 0."""
        self.rows = rows
        self._key = key
        self._schema = schema
        self._places = places
        self._blocks = blocks
        self._lsn = lsn
        self._columns: dict[str, Column] = {}
        # Vectors as lists, and as arrays.
        self._getters: tuple[dict[str, Getter], dict[str, Getter]] = ({}, {})
        self._every: list[dict[str, Getter] | None] = [None, None]
        self._ids: list[str] | list[int] | None = None
        self._id_at: Getter | None = None
        self._searches = 0
        self._nbytes = 0
        place = places[None]
        body = decode_block(key, place.offset, blocks[None], place.length, place.crc)
        try:
            keys = decode_keys(body, schema.id_type, rows, lsns=not lsn)
        except _MALFORMED as error:
            raise Corruption(key, f"a key block does not decode: {error}", place.offset) from error
        self.ids = keys.ids
        self._lsns = keys.lsns
        self._kinds = keys.kinds

    @property
    def nbytes(self) -> int:
        """Memory that the group may come to take; the same whenever it is asked."""
        if not self._nbytes:
            self._nbytes = _memory(self.rows, self._blocks)
        return self._nbytes

    @property
    def id_list(self) -> Sequence[str] | Sequence[int]:
        """The ids as Python values, made once."""
        ids = self._ids
        if ids is None:
            ids = self._ids = self.ids.to_pylist()
        return ids

    def row_of(self, identity: str | int) -> int | None:
        """The row that holds an id."""
        if self._ids is None:
            self._searches += 1
            if self._searches <= _FEW_SEARCHES:
                return self._search(identity)
        ids = self._ids or self.id_list
        row = bisect_left(ids, identity)
        return row if row < len(ids) and ids[row] == identity else None

    def _search(self, identity: str | int) -> int | None:
        """The same without ids as Python values: making them all takes longer than a few looks."""
        if self._id_at is None:
            self._id_at = getter_of(self.ids)
        id_at = self._id_at
        low, high = 0, self.rows
        while low < high:
            middle = (low + high) // 2
            if id_at(middle) < identity:  # type: ignore[operator]
                low = middle + 1
            else:
                high = middle
        return low if low < self.rows and id_at(low) == identity else None

    def lsn(self, row: int) -> int:
        """The log slot that wrote a row."""
        return self._lsn if self._lsns is None else int(self._lsns[row])

    def kind(self, row: int) -> int:
        """UPSERT, DELETE or PATCH."""
        return int(self._kinds[row])

    @property
    def lsns(self) -> np.ndarray:
        """The log slots that wrote the rows."""
        return np.full(self.rows, self._lsn, np.uint64) if self._lsns is None else self._lsns

    @property
    def kinds(self) -> np.ndarray:
        """The kinds of the rows."""
        return self._kinds

    def column(self, name: str) -> Column | None:
        """An attribute's values; None if no row of the group has it."""
        column = self._columns.get(name)
        if column is None and name in self._blocks:
            place = self._places[name]
            body = decode_block(
                self._key, place.offset, self._blocks[name], place.length, place.crc
            )
            try:
                column = decode_column(body, self._schema.attributes[name], self.rows)
            except _MALFORMED as error:
                raise Corruption(
                    self._key, f"a block of {name!r} does not decode: {error}", place.offset
                ) from error
            self._columns[name] = column
        return column

    def document(
        self, row: int, columns: Sequence[str] | None = None, *, arrays: bool = False
    ) -> Document:
        """One row as a document; of `columns`, those that it has. With `arrays` vectors are NumPy
        arrays."""
        ids = self._ids
        identity = self._id_of(row) if ids is None else ids[row]
        if columns is None:
            every = self._every[arrays]
            if every is None:
                every = self._every[arrays] = self._add_getters(self._attributes(), arrays)
            return build_document(identity, every, row, None)
        getters = self._getters[arrays]
        for name in columns:
            if name not in getters:
                self._add_getters(columns, arrays)
                break
        return build_document(identity, getters, row, columns)

    def _id_of(self, row: int) -> object:
        return self._id_at(row) if self._id_at is not None else self.id_list[row]

    def _attributes(self) -> list[str]:
        return [name for name in self._schema.attributes if name in self._blocks]

    def _add_getters(self, columns: Sequence[str], arrays: bool) -> dict[str, Getter]:
        """Getters of those attributes, kept for later too."""
        getters: dict[str, Getter] = {}
        for name in columns:
            column = self.column(name)
            if column is None:
                getters[name] = _absent
                continue
            json = self._schema.attributes[name].family == "json"
            getters[name] = getter_of(column.values, column.nulls, json=json, arrays=arrays)
        self._getters[arrays].update(getters)
        return getters

    def batch(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows as a batch; attributes that no row has are left out."""
        fields = [id_field(self._schema), LSN_FIELD, KIND_FIELD]
        arrays = [self.ids, pa.array(self.lsns), pa.array(self._kinds)]
        for name in self._attributes() if columns is None else columns:
            column = self.column(name)
            if column is None:
                continue
            fields.append(field_of(name, self._schema.attributes[name]))
            arrays.append(column.values)
            if column.nulls is not None:
                fields.append(_flag_field(name))
                arrays.append(column.nulls)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _absent(row: int) -> object:
    return ABSENT


def _flag_field(name: str) -> pa.Field:
    return pa.field(null_flag(name), pa.bool_())


def _memory(rows: int, blocks: Mapping[str | None, memoryview]) -> int:
    """Blocks as fetched, as decoded, and the ids as Python values."""
    held = rows * (_BYTES_AN_ID + 8 * len(blocks)) + 1000
    for data in blocks.values():
        held += len(data)
        if len(data) >= HEADER:
            # Not yet checked, so not believed beyond what it could be.
            held += min(raw_length(data), 64 * len(data))
    return held

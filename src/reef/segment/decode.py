"""Nodes (see `reef.segment.node`) to Arrow arrays; values stored raw are not copied."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.rows import PATCH
from reef.data.types import VECTOR_ELEMENTS, AttributeType
from reef.segment.layout import padding
from reef.segment.node import (
    BITS,
    DECIMALS,
    DICTIONARY,
    LISTS,
    NODE,
    NOTHING,
    NULLS,
    OFFSETS,
    PLAIN,
    STEPS,
    TEXT,
    TWO_WORDS,
    VALIDITY,
    WIDTHS,
    WORD,
)

LARGEST_COUNT = 1 << 27
"""As many values as a node may have: the bits of the largest list that a document can hold."""
_LARGEST_OFFSET = 0x7FFF_FFFF
_STRING = pa.string()


class MalformedNode(Exception):
    """A body that no encoder wrote, at this many bytes from its start."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.position = position


class Keys(NamedTuple):
    """The key block of a group. `lsns` is None when the caller named them."""

    ids: pa.Array
    lsns: np.ndarray | None
    kinds: np.ndarray


class Column(NamedTuple):
    """A column block of a group. `nulls` marks explicit nulls, None if there is none."""

    values: pa.Array
    nulls: pa.Array | None


def decode_keys(body: pa.Buffer, id_type: pa.DataType, rows: int, *, lsns: bool = True) -> Keys:
    """Ids, LSNs (unless they are not wanted) and kinds of a key block."""
    nodes = _Nodes(body)
    if pa.types.is_uint64(id_type):
        numbers = nodes.integers(rows)
        ids = pa.Array.from_buffers(id_type, rows, [None, pa.py_buffer(numbers)])
    else:
        ids = nodes.array(id_type, "string", rows).values
    numbers = nodes.integers(rows)
    return Keys(ids, numbers if lsns else None, nodes.kinds(rows))


def decode_column(body: pa.Buffer, kind: AttributeType, rows: int) -> Column:
    """One column block."""
    nodes = _Nodes(body)
    if kind.family == "vector":
        return nodes.vectors(kind, rows)
    if kind.family == "list":
        return nodes.lists(kind, rows)
    element = "string" if kind.family == "json" else kind.element
    return nodes.array(kind.arrow, element, rows)


class _Nodes:
    """Reads one node after the other; nothing is taken that is not there."""

    def __init__(self, body: pa.Buffer) -> None:
        self.body = body
        self.at = 0

    def skip(self, length: int) -> int:
        """Step over a padded piece of that length; where it starts."""
        start = self.at
        if length < 0 or start + length > self.body.size:
            raise MalformedNode("a node reaches past the end of its block", start)
        self.at = start + length + padding(length)
        return start

    def head(self, rows: int | None) -> tuple[int, int, int, int]:
        start = self.skip(NODE.size)
        tag, width, flags, count = NODE.unpack_from(self.body, start)
        if rows is not None and count != rows:
            raise MalformedNode(f"a node holds {count} values where {rows} belong", start)
        if width not in WIDTHS:
            raise MalformedNode(f"a node has integers of {width} bytes", start)
        if count > LARGEST_COUNT:
            raise MalformedNode(f"a node claims {count} values", start)
        return tag, width, flags, count

    def bitmaps(self, flags: int, count: int) -> tuple[pa.Buffer | None, pa.Array | None]:
        valid = self.bits(count) if flags & VALIDITY else None
        if not flags & NULLS:
            return valid, None
        return valid, pa.Array.from_buffers(pa.bool_(), count, [None, self.bits(count)])

    def bits(self, count: int) -> pa.Buffer:
        length = (count + 7) // 8
        return self.body.slice(self.skip(length), length)

    def numbers(self, dtype: str, width: int, count: int) -> np.ndarray:
        return np.frombuffer(self.body, dtype, count, self.skip(width * count))

    def integers(self, rows: int | None) -> np.ndarray:
        """An integer node as uint64."""
        tag, width, _, count = self.head(rows)
        return self.integer_values(tag, width, count)

    def kinds(self, rows: int) -> np.ndarray:
        """An integer node of kinds as uint8; most often all are the same."""
        tag, width, _, count = self.head(rows)
        if tag == OFFSETS and width == 0:
            (kind,) = WORD.unpack_from(self.body, self.skip(WORD.size))
            highest = kind
        else:
            values = self.integer_values(tag, width, count)
            highest = values.max(initial=0)
        if highest > PATCH:
            raise MalformedNode("a row is of no kind there is", self.at)
        if tag == OFFSETS and width == 0:
            return np.full(count, kind, np.uint8)
        return values.astype(np.uint8)

    def integer_values(self, tag: int, width: int, count: int) -> np.ndarray:
        if tag == PLAIN:
            # Empty blocks have no bytes to look at.
            return self.numbers("<u8", 8, count) if count else np.empty(0, np.uint64)
        if tag == OFFSETS:
            (base,) = WORD.unpack_from(self.body, self.skip(WORD.size))
            if width == 0:
                return np.full(count, base, np.uint64)
            values = self.numbers(WIDTHS[width], width, count).astype(np.uint64)
            values += np.uint64(base)
            return values
        if tag == STEPS and count:
            base, shortest = TWO_WORDS.unpack_from(self.body, self.skip(TWO_WORDS.size))
            values = np.empty(count, np.uint64)
            values[0] = base
            if width:
                steps = self.numbers(WIDTHS[width], width, count - 1)
                np.add(steps, np.uint64(shortest), out=values[1:], dtype=np.uint64)
            else:
                values[1:] = shortest
            return np.cumsum(values, out=values)
        raise MalformedNode(f"node {tag} holds no integers", self.at)

    def offsets(self, count: int) -> np.ndarray:
        """The int32 offsets that an integer node of lengths makes."""
        start = self.at
        tag, width, _, _ = self.head(count)
        if tag == OFFSETS and width < 8:
            (base,) = WORD.unpack_from(self.body, self.skip(WORD.size))
            if base * count > _LARGEST_OFFSET:
                raise MalformedNode("the lengths add up to more than a group can hold", start)
            if not width:
                steps = np.arange(count + 1, dtype=np.int32)
                return steps * np.int32(base)
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(self.numbers(WIDTHS[width], width, count), out=offsets[1:])
            if base:
                offsets += np.arange(0, base * (count + 1), base, dtype=np.int64)
        else:
            lengths = self.integer_values(tag, width, count)
            # One that is beyond could make the sum wrap, and lead back.
            if lengths.max(initial=0) > _LARGEST_OFFSET:
                raise MalformedNode("a length is beyond what a group can hold", start)
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:], dtype=np.int64)
        if offsets[-1] > _LARGEST_OFFSET:
            raise MalformedNode("the lengths add up to more than a group can hold", start)
        return offsets.astype(np.int32)

    def text(self, arrow: pa.DataType, count: int, valid: pa.Buffer | None) -> pa.Array:
        offsets = self.offsets(count)
        (size,) = WORD.unpack_from(self.body, self.skip(WORD.size))
        start = self.skip(size)
        if size != offsets[-1]:
            raise MalformedNode("the lengths do not add up to the bytes", start)
        data = self.body.slice(start, size)
        values = pa.Array.from_buffers(arrow, count, [valid, pa.py_buffer(offsets), data])
        # A look at all bytes together is much quicker than one at every text.
        if size and arrow == _STRING and np.frombuffer(data, np.uint8).max() > 127:
            values.validate(full=True)
        return values

    def array(self, arrow: pa.DataType, element: str, rows: int | None) -> Column:
        """A node of scalars."""
        start = self.at
        tag, width, flags, count = self.head(rows)
        valid, nulls = self.bitmaps(flags, count)
        if tag == NOTHING:
            return Column(pa.nulls(count, arrow), nulls)
        if element == "null":
            raise MalformedNode(f"node {tag} holds values of a type that is not known", start)
        if element in ("string", "bytes"):
            if tag == TEXT:
                return Column(self.text(arrow, count, valid), nulls)
            if tag == DICTIONARY:
                return Column(self.dictionary(arrow, count, valid), nulls)
        elif element == "bool":
            if tag == BITS:
                bits = self.bits(count)
                return Column(pa.Array.from_buffers(arrow, count, [valid, bits]), nulls)
        elif element == "float64" and tag in (PLAIN, DECIMALS):
            if tag == PLAIN:
                data = self.body.slice(self.skip(8 * count), 8 * count)
            else:
                (exponent,) = WORD.unpack_from(self.body, self.skip(WORD.size))
                integers = self.integers(count).view(np.int64)
                data = pa.py_buffer(integers.astype(np.float64) / 10.0**exponent)
            return Column(pa.Array.from_buffers(arrow, count, [valid, data]), nulls)
        elif tag in (PLAIN, OFFSETS, STEPS):
            # Also floats that are all the same: one 64-bit pattern.
            data = pa.py_buffer(self.integer_values(tag, width, count))
            return Column(pa.Array.from_buffers(arrow, count, [valid, data]), nulls)
        raise MalformedNode(f"node {tag} holds no {element}", start)

    def dictionary(self, arrow: pa.DataType, count: int, valid: pa.Buffer | None) -> pa.Array:
        start = self.at
        positions = self.integers(count)
        tag, _, _, distinct = self.head(None)
        # No encoder writes a value that is named nowhere.
        if tag != TEXT or distinct > count or int(positions.max(initial=0)) >= distinct:
            raise MalformedNode("a dictionary lacks values that its column names", start)
        values = self.text(arrow, distinct, None)
        indices = pa.Array.from_buffers(pa.uint64(), count, [valid, pa.py_buffer(positions)])
        return pc.take(values, indices, boundscheck=False)

    def lists(self, kind: AttributeType, rows: int) -> Column:
        start = self.at
        tag, _, flags, count = self.head(rows)
        valid, nulls = self.bitmaps(flags, count)
        if tag == NOTHING:
            return Column(pa.nulls(count, kind.arrow), nulls)
        if tag != LISTS:
            raise MalformedNode(f"node {tag} holds no lists", start)
        offsets = self.offsets(count)
        elements = self.array(kind.arrow.value_type, kind.element, int(offsets[-1])).values
        values = pa.Array.from_buffers(
            kind.arrow, count, [valid, pa.py_buffer(offsets)], children=[elements]
        )
        return Column(values, nulls)

    def vectors(self, kind: AttributeType, rows: int) -> Column:
        start = self.at
        tag, width, flags, count = self.head(rows)
        valid, nulls = self.bitmaps(flags, count)
        if tag == NOTHING:
            return Column(pa.nulls(count, kind.arrow), nulls)
        element = VECTOR_ELEMENTS[kind.element]
        if tag != PLAIN or width * 8 != element.bit_width:
            raise MalformedNode(f"node {tag} holds no vectors", start)
        total = count * kind.dimension
        data = self.body.slice(self.skip(total * width), total * width)
        numbers = pa.Array.from_buffers(element, total, [None, data])
        values = pa.Array.from_buffers(kind.arrow, count, [valid], children=[numbers])
        return Column(values, nulls)

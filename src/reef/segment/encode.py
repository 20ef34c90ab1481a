"""Arrow arrays to nodes (see `reef.segment.node`), small and cheap to undo."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.types import AttributeType
from reef.errors import InvalidInput
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
from reef.store.contract import Buffer

_ZEROS = bytes(8)
_SAMPLE = 64
_EXPONENTS = (0, 1, 2, 3, 4)
_LARGEST_EXACT = float(1 << 53)


class Parts(list[Buffer]):
    """The pieces of a body in order, each followed by its padding."""

    def add(self, piece: Buffer) -> None:
        """Append bytes, padded."""
        self.append(piece)
        if rest := padding(len(piece)):
            self.append(_ZEROS[:rest])

    def add_array(self, values: np.ndarray) -> None:
        """Append a NumPy array's memory, padded."""
        self.add(np.ascontiguousarray(values).view(np.uint8).data)


def encode_keys(ids: pa.Array, lsns: np.ndarray, kinds: np.ndarray) -> Parts:
    """The body of a key block: ids, then LSNs, then kinds."""
    parts = Parts()
    if pa.types.is_uint64(ids.type):
        _integers(parts, numpy_of(ids, np.dtype(np.uint64)))
    else:
        _text(parts, ids, 0)
    _integers(parts, lsns)
    _integers(parts, kinds.astype(np.uint64))
    return parts


def encode_column(values: pa.Array, kind: AttributeType, nulls: np.ndarray | None) -> Parts:
    """The body of a column block; `nulls` marks the rows that are explicitly null, if any is."""
    parts = Parts()
    _array(parts, values, kind.family, kind.element, nulls)
    return parts


def numpy_of(values: pa.Array, dtype: np.dtype) -> np.ndarray:
    """The value buffer of a fixed-width array, without a copy; anything where there is a null."""
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), dtype)
    return np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)


def _array(
    parts: Parts, values: pa.Array, family: str, element: str, nulls: np.ndarray | None
) -> None:
    count = len(values)
    flags, valid = 0, None
    if values.null_count:
        flags = VALIDITY
        valid = values.is_valid().to_numpy(zero_copy_only=False)
    if nulls is not None:
        flags |= NULLS
    if count == values.null_count:
        parts.add(NODE.pack(NOTHING, 0, flags & ~VALIDITY, count))
        if nulls is not None:
            _bitmap(parts, nulls)
        return
    head = Head(parts, flags, count, valid, nulls)
    if family == "vector":
        _vector(head, values, element)
    elif family == "list":
        _lists(head, values, element)
    elif element in ("int64", "timestamp"):
        numbers = numpy_of(values, np.dtype(np.int64))
        if valid is not None:
            numbers = np.where(valid, numbers, numbers[valid].min())
        _integers(parts, numbers, head)
    elif element == "float64":
        _floats(head, values)
    elif element == "bool":
        bits = values.fill_null(False) if valid is not None else values
        head.write(BITS)
        _bitmap(parts, bits.to_numpy(zero_copy_only=False))
    else:
        _strings(head, values)


class Head:
    """What every node of a column begins with, written once its encoding is decided."""

    def __init__(
        self,
        parts: Parts,
        flags: int,
        count: int,
        valid: np.ndarray | None,
        nulls: np.ndarray | None,
    ) -> None:
        self.parts = parts
        self.flags = flags
        self.count = count
        self.valid = valid
        self.nulls = nulls

    def write(self, tag: int, width: int = 0) -> None:
        """Append the node's head and bitmaps."""
        self.parts.append(NODE.pack(tag, width, self.flags, self.count))
        if self.valid is not None:
            _bitmap(self.parts, self.valid)
        if self.nulls is not None:
            _bitmap(self.parts, self.nulls)


def _bitmap(parts: Parts, bits: np.ndarray) -> None:
    parts.add_array(np.packbits(bits, bitorder="little"))


def _width(span: int) -> int:
    if span < 1 << 8:
        return 1 if span else 0
    if span < 1 << 16:
        return 2
    return 4 if span < 1 << 32 else 8


def _integers(parts: Parts, values: np.ndarray, head: Head | None = None) -> None:
    """64-bit integers, signed or not; all arithmetic is modulo 2^64."""
    head = head or Head(parts, 0, len(values), None, None)
    if not len(values):
        head.write(PLAIN, 8)
        return
    lowest, highest = int(values.min()), int(values.max())
    width = _width(highest - lowest)
    words = values.view(np.uint64)
    base = lowest & 0xFFFF_FFFF_FFFF_FFFF
    if width > 1 and values[0] == lowest and bool(np.all(values[1:] >= values[:-1])):
        steps = np.diff(words)
        shortest = int(steps.min())
        narrow = _width(int(steps.max()) - shortest)
        if narrow < width:
            head.write(STEPS, narrow)
            parts.append(TWO_WORDS.pack(base, shortest))
            if narrow:
                parts.add_array((steps - np.uint64(shortest)).astype(WIDTHS[narrow]))
            return
    if width == 8:
        head.write(PLAIN, 8)
        parts.add_array(words)
        return
    head.write(OFFSETS, width)
    parts.append(WORD.pack(base))
    if width:
        parts.add_array((words - np.uint64(base)).astype(WIDTHS[width]))


def _floats(head: Head, values: pa.Array) -> None:
    numbers = numpy_of(values, np.dtype(np.float64))
    if head.valid is not None:
        numbers = np.where(head.valid, numbers, numbers[head.valid][0])
    words = numbers.view(np.int64)
    if bool(np.all(words == words[0])):
        _integers(head.parts, words, head)
        return
    exponent = _exponent(numbers[:: max(1, len(numbers) // _SAMPLE)])
    if exponent is not None:
        scaled = _scaled(numbers, exponent)
        if scaled is not None:
            head.write(DECIMALS)
            head.parts.append(WORD.pack(exponent))
            _integers(head.parts, scaled)
            return
    head.write(PLAIN, 8)
    head.parts.add_array(numbers)


def _exponent(sample: np.ndarray) -> int | None:
    for exponent in _EXPONENTS:
        if _scaled(sample, exponent) is not None:
            return exponent
    return None


def _scaled(numbers: np.ndarray, exponent: int) -> np.ndarray | None:
    """The integers that give exactly these floats back, bit for bit, or None."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(numbers * 10.0**exponent)
        if not bool(np.all(np.abs(scaled) < _LARGEST_EXACT)):
            return None
        integers = scaled.astype(np.int64)
        back = integers.astype(np.float64) / 10.0**exponent
    return integers if np.array_equal(back.view(np.int64), numbers.view(np.int64)) else None


def _strings(head: Head, values: pa.Array) -> None:
    count = len(values)
    if count >= _SAMPLE // 4:
        sample = values[: min(_SAMPLE, count)].to_pylist()
        if len(set(sample)) * 2 <= len(sample):
            coded = pc.dictionary_encode(values)
            if len(coded.dictionary) * 4 <= count:
                head.write(DICTIONARY)
                positions = numpy_of(coded.indices, np.dtype(np.int32))
                if head.valid is not None:
                    positions = np.where(head.valid, positions, 0)
                _integers(head.parts, positions.astype(np.uint64))
                _text(head.parts, coded.dictionary, 0)
                return
    if head.valid is not None:
        values = pc.fill_null(values, "" if pa.types.is_string(values.type) else b"")
    _text(head.parts, values, 0, head)


def _text(parts: Parts, values: pa.Array, flags: int, head: Head | None = None) -> None:
    head = head or Head(parts, flags, len(values), None, None)
    head.write(TEXT)
    offsets = _offsets(values)
    _integers(parts, np.diff(offsets).astype(np.uint64))
    start, stop = int(offsets[0]), int(offsets[-1])
    parts.append(WORD.pack(stop - start))
    data = values.buffers()[2]
    parts.add(memoryview(data)[start:stop] if data is not None else b"")


def _offsets(values: pa.Array) -> np.ndarray:
    data = values.buffers()[1]
    if data is None or data.size == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(data, np.int32, len(values) + 1, 4 * values.offset)


def _lists(head: Head, values: pa.Array, element: str) -> None:
    head.write(LISTS)
    lengths = np.diff(_offsets(values)).astype(np.uint64)
    if head.valid is not None:
        lengths = np.where(head.valid, lengths, np.uint64(0))
    _integers(head.parts, lengths)
    _array(head.parts, values.flatten(), "scalar", element, None)


def _vector(head: Head, values: pa.Array, element: str) -> None:
    dtype = np.dtype(np.float32 if element == "float32" else np.float16)
    size = values.type.list_size
    numbers = numpy_of(values.values, dtype)
    numbers = numbers[values.offset * size : (values.offset + len(values)) * size]
    if head.valid is not None:
        numbers = np.where(np.repeat(head.valid, size), numbers, dtype.type(0))
    if len(numbers) != len(values) * size:
        raise InvalidInput(
            f"a vector column holds {len(numbers)} numbers, not {len(values)} × {size}"
        )
    head.write(PLAIN, dtype.itemsize)
    head.parts.add_array(numbers)

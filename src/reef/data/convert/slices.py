"""How much columns come to, and where to cut them: an array of Reef's holds less than 2 GiB.

Arrow's string and list types have 32-bit offsets. Some of its casts refuse what does not fit, and
some wrap around and read wherever that leads. So what comes in larger types is counted as what it
will be, and cut, before anything is cast or put together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SLICE_BYTES = 256 << 20
"""Rows that come to more are taken in several slices, where that is possible."""
LARGEST_ARRAY = 1 << 30
"""How many bytes one column of one batch may have."""

_types = pa.types
_OFFSET = 4
_NUMBER = 8
# Python values and JSON text, on the way, take more room than Arrow's.
_AS_JSON = 8


class TooLarge(Exception):
    """These rows are too many bytes for one batch; half of them may not be."""


def is_too_large(error: Exception) -> bool:
    """Whether this, or an error of Arrow's, says that rows are too many bytes for one batch."""
    if isinstance(error, TooLarge | pa.ArrowCapacityError):
        return True
    text = str(error)
    return isinstance(error, pa.ArrowInvalid) and ("too large" in text or "overflow" in text)


def cuts(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int, limit: int) -> Iterator[range]:
    """Ranges of rows, in order, that come to at most so many bytes each, or are one row."""
    waiting = [range(rows)]
    while waiting:
        some = waiting.pop()
        if (
            len(some) > 1
            and sum(plain_bytes(c.slice(some.start, len(some))) for c in columns) > limit
        ):
            waiting += reversed(halves(some))
        else:
            yield some


def halves(rows: range) -> tuple[range, range]:
    """The first half of some rows, and the second."""
    middle = rows.start + len(rows) // 2
    return range(rows.start, middle), range(middle, rows.stop)


def plain_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """About how many bytes a column comes to without dictionaries, views and the like."""
    if isinstance(column, pa.ChunkedArray):
        return sum(map(plain_bytes, column.chunks))
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_bytes(column.storage)
    if _types.is_dictionary(kind):
        indices = column.indices.drop_null().to_numpy()
        return int(_sizes(column.dictionary)[indices].sum())
    if _types.is_run_end_encoded(kind):
        ends = column.run_ends.to_numpy().astype(np.int64) - column.offset
        lengths = np.diff(np.clip(ends, 0, len(column)), prepend=0)
        return int((_sizes(column.values) * lengths).sum())
    if _types.is_struct(kind):
        names = sum(len(field.name) + 4 for field in kind)
        inside = sum(plain_bytes(column.field(place)) for place in range(kind.num_fields))
        return _AS_JSON * (inside + names * len(column))
    if _types.is_map(kind):
        first, last = column.offsets[0].as_py() or 0, column.offsets[-1].as_py() or 0
        parts = (column.keys[first:last], column.items[first:last])
        return _AS_JSON * (sum(map(plain_bytes, parts)) + _OFFSET * len(column))
    if _types.is_nested(kind) and not _types.is_union(kind):
        return plain_bytes(pc.list_flatten(column)) + _OFFSET * len(column)
    lengths = _text_lengths(column)
    if lengths is not None:
        return int(lengths.sum()) + _OFFSET * len(column)
    return _NUMBER * len(column)


def _sizes(values: pa.Array) -> np.ndarray:
    """Per value, about how many bytes it takes; of nested ones what all of them take."""
    lengths = _text_lengths(values)
    if lengths is not None:
        return lengths + _OFFSET
    if _types.is_primitive(values.type):
        return np.full(len(values), _NUMBER, np.int64)
    return np.full(len(values), plain_bytes(values), np.int64)


def _text_lengths(values: pa.Array) -> np.ndarray | None:
    """The bytes of each text; None if these are no texts."""
    kind = values.type
    if _types.is_string_view(kind) or _types.is_binary_view(kind):
        views = values.buffers()[1]
        if views is None:
            return np.zeros(len(values), np.int64)
        heads = np.frombuffer(views, np.int32)[::4][values.offset : values.offset + len(values)]
        lengths = heads.astype(np.int64)
        if values.null_count:
            lengths[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if _types.is_fixed_size_binary(kind):
        return np.full(len(values), kind.byte_width, np.int64)
    if (
        _types.is_string(kind)
        or _types.is_binary(kind)
        or _types.is_large_string(kind)
        or _types.is_large_binary(kind)
    ):
        return pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    return None


def narrow(array: pa.Array) -> pa.Array:
    """The array; copied if it is cut out of a large one, at offsets that 32 bits cannot say."""
    kind = array.type
    if len(array) and (_types.is_large_string(kind) or _types.is_large_binary(kind)):
        bounds = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
        if bounds[-1] >= 2**31:
            return pa.concat_arrays([array, array[:0]])
    return array


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The array, or `TooLarge` if it is more than one of Reef's can be."""
    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks != 1:
            raise TooLarge
        array = array.chunk(0)
    if array.nbytes > LARGEST_ARRAY:
        raise TooLarge
    return array


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Where lists of these lengths begin and end, or `TooLarge` if 32 bits cannot say it."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise TooLarge
    return offsets.astype(np.int32)

"""The order of ids, as unsigned integers that NumPy can sort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WIDEST = 32


def order_keys(ids: pa.Array) -> list[np.ndarray]:
    """Arrays of uint64, most significant first, that order and tell apart rows as their ids do.

    Ids hold no NUL, so padding a string with zeros keeps both its order and its identity.
    """
    if pa.types.is_uint64(ids.type):
        return [np.asarray(ids)]
    offsets, data = _buffers(ids)
    lengths = np.diff(offsets)
    if len(lengths) == 0:
        return [np.empty(0, dtype=np.uint64)]
    longest = int(lengths.max())
    if longest > _WIDEST:
        return [pc.rank(ids, tiebreaker="dense").to_numpy()]
    words = max(1, -(-longest // 8))
    padded = np.zeros((len(lengths), words * 8), dtype=np.uint8)
    if int(lengths.min()) == longest:
        start = int(offsets[0])
        padded[:, :longest] = data[start : start + len(lengths) * longest].reshape(
            len(lengths), longest
        )
    else:
        columns = np.arange(longest)
        inside = columns < lengths[:, None]
        padded[:, :longest][inside] = data[int(offsets[0]) : int(offsets[-1])]
    keys = padded.view(">u8").astype(np.uint64)
    return [keys[:, word] for word in range(words)]


def _buffers(ids: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    _, offsets, data = ids.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(ids) + 1, 4 * ids.offset)
    return bounds, np.frombuffer(data, dtype=np.uint8) if data else np.empty(0, dtype=np.uint8)


def newest_first(
    ids: pa.Array, lsns: np.ndarray, *, log_order: bool
) -> tuple[np.ndarray, np.ndarray]:
    """How to sort rows: by id, then newest LSN first. Of one id's rows of one LSN, the later ones
    come first if the rows are in log order; otherwise they stay as they are.

    Returns the row numbers in that order, and for each place whether a new id starts there.
    """
    keys = order_keys(ids)
    columns = [np.invert(lsns), *reversed(keys)]
    if log_order:
        # lexsort is stable, so feeding it the rows backwards puts later rows of one LSN first.
        order = len(lsns) - 1 - np.lexsort([column[::-1] for column in columns])
    else:
        order = np.lexsort(columns)
    starts = np.zeros(len(order), dtype=bool)
    if len(order):
        starts[0] = True
        for key in keys:
            ordered = key[order]
            starts[1:] |= ordered[1:] != ordered[:-1]
    return order, starts


def find_sorted(ids: pa.Array, bound: str | int, *, after: bool) -> int:
    """Where a bound would go in sorted ids: behind its equals if `after`, else before them."""
    if pa.types.is_uint64(ids.type):
        return int(np.searchsorted(np.asarray(ids), np.uint64(bound), "right" if after else "left"))
    low, high = 0, len(ids)
    wanted = str(bound).encode()
    offsets, data = _buffers(ids)
    while low < high:
        middle = (low + high) // 2
        value = data[offsets[middle] : offsets[middle + 1]].tobytes()
        if value < wanted or (after and value == wanted):
            low = middle + 1
        else:
            high = middle
    return low


def is_increasing(ids: pa.Array) -> bool:
    """Whether each id is greater than the one before it."""
    if len(ids) < 2:
        return True
    if pa.types.is_uint64(ids.type):
        values = np.asarray(ids)
        return bool((values[1:] > values[:-1]).all())
    return bool(pc.all(pc.less(ids[:-1], ids[1:])).as_py())


def is_contiguous(rows: np.ndarray) -> bool:
    """Whether row numbers follow one another without a gap, so that a slice can stand for them."""
    return bool((np.diff(rows) == 1).all())


def inside(ids: pa.Array, start: str | int | None, stop: str | int | None) -> pa.Array:
    """Per id, in whatever order they come, whether start <= id < stop; None is no bound."""
    kept = pa.array(np.ones(len(ids), dtype=bool))
    if start is not None:
        kept = pc.and_(kept, pc.greater_equal(ids, pa.scalar(start, ids.type)))
    if stop is not None:
        kept = pc.and_(kept, pc.less(ids, pa.scalar(stop, ids.type)))
    return kept

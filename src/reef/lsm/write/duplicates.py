"""Finding ids that several sorted sources hold, with a window of each in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from reef.lsm.order import find_sorted, newest_first


def duplicate_ids(sources: Sequence[Iterable[pa.Array]], limit: int = 1) -> list[str | int]:
    """The first ids that come more than once, up to `limit`, in order. A source is an iterator of
    arrays of ids that ascend."""
    found: list[str | int] = []
    held = [_Held(iter(source)) for source in sources]
    held = [each for each in held if each.fill()]
    while len(held) > 1 and len(found) < limit:
        bound = min(each.last for each in held)  # type: ignore[type-var]
        pieces = [piece for each in held for piece in each.take(bound)]
        found += repeated(pa.concat_arrays(pieces), limit - len(found))
        held = [each for each in held if each.fill()]
    return found


def repeated(ids: pa.Array, limit: int = 1) -> list[str | int]:
    """The ids that an array in any order holds more than once, up to `limit`, in order."""
    order, starts = newest_first(ids, np.zeros(len(ids), np.uint64), log_order=False)
    # The second of its kind, and no later one.
    again = np.flatnonzero(~starts & np.concatenate([[False], starts[:-1]]))
    shown: list[str | int] = ids.take(pa.array(order[again[:limit]])).to_pylist()
    return shown


class _Held:
    """The ids of one source that are in hand."""

    def __init__(self, source: Iterator[pa.Array]) -> None:
        self._source = source
        self._ids: pa.Array | None = None
        self.last: str | int = 0

    def fill(self) -> bool:
        """Have ids in hand; False when the source has no more."""
        while self._ids is None or not len(self._ids):
            self._ids = next(self._source, None)
            if self._ids is None:
                return False
            if len(self._ids):
                self.last = self._ids[-1].as_py()
        return True

    def take(self, bound: str | int) -> list[pa.Array]:
        """Those up to the bound, which is included."""
        assert self._ids is not None
        place = find_sorted(self._ids, bound, after=True)
        taken, self._ids = self._ids[:place], self._ids[place:]
        return [taken] if len(taken) else []

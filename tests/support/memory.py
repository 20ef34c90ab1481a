"""How much memory something takes at its worst, Arrow's and Python's."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_pools: list[pa.MemoryPool] = []


class Peak:
    """Bytes beyond those held at the start, at most at any moment; known at the end."""

    arrow = 0
    python = 0

    @property
    def bytes(self) -> int:
        """Both together. They need not have been at their worst at one moment."""
        return self.arrow + self.python


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measures what is done inside."""
    peak = Peak()
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    # What was allocated inside may live longer than this, and its pool must too.
    _pools.append(pool)
    gc.collect()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.arrow = pool.max_memory()
        peak.python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pa.set_memory_pool(before)

"""Judging one input: what may happen when bytes are read, and what may not."""

from __future__ import annotations

import resource
import traceback
from time import perf_counter

import pyarrow as pa

from reef.errors import ReefError
from torture.fuzz.targets import Target

SECONDS = 10.0
"""Longer than this no input may take, however busy the machine is."""

MEMORY = 3 << 30
"""So much more than at the start a reader may address. The largest inputs have a few kilobytes; a
list of equal values, which takes a few bytes, may stand for a gigabyte."""


def limit_memory() -> None:
    """From here on, what asks for too much is refused and tells on itself."""
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


def judge(target: Target, data: bytes) -> tuple[str, str | None]:
    """How it ended ("value" or the name of the error), and what was wrong about that, if so."""
    began = perf_counter()
    try:
        target.read(data)
        ending = "value"
    except ReefError as error:
        ending = type(error).__name__
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                return ending, f"it asked for more memory than there may be: {cause}"
            cause = cause.__cause__ or cause.__context__
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rpartition('/reef/')[2]}:{where.lineno}"
        return type(error).__name__, f"{type(error).__name__} at {place}: {str(error)[:200]}"
    seconds = perf_counter() - began
    if seconds > SECONDS:
        return ending, f"it took {seconds:.1f} s"
    return ending, None


def arrow_memory() -> int:
    """The most that Arrow held at any time so far."""
    return int(pa.default_memory_pool().max_memory())

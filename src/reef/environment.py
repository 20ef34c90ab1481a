"""The three things that are never taken from the air: time, identity and chance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


def _encode(value: int, digits: int) -> str:
    return "".join([_CROCKFORD[value >> at & 31] for at in range(5 * (digits - 1), -1, -5)])


def _patience() -> float:
    """Seconds that also pass while the machine is suspended, where the system can tell."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, patience and randomness, passed to whatever needs them.

    `now` is wall time in seconds since 1970 and is only ever recorded, never used for order.
    `monotonic` measures this process's own patience, and must not stand still while it sleeps.
    `entropy(n)` gives n random bytes. `sleep` waits between retries.
    """

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = (
        _patience if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
    )
    entropy: Callable[[int], bytes] = os.urandom
    sleep: Callable[[float], None] = time.sleep

    def unique_id(self) -> str:
        """A 26-letter id that sorts by creation time to the millisecond and never repeats."""
        milliseconds = int(self.now() * 1000) & ((1 << 48) - 1)
        return _encode(milliseconds, 10) + _encode(int.from_bytes(self.entropy(10), "big"), 16)

    def nonce(self) -> str:
        """Sixteen random hex digits that tell one attempt from every other."""
        return self.entropy(8).hex()


SYSTEM = Environment()

"""The end of the interpreter, and forks: what becomes of passes under way.

A program may end without closing anything. When its main thread is done, Python first shuts thread
pools down, the store's too, then waits for threads that are no daemons, and calls what `atexit`
knows. Background work that went on meanwhile would find the store's threads gone. So loops
are ended before the pools are: passes are asked to give up, and waited for. If threads of the
program's own go on writing, loops are ended only after them.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import thread as pools
from typing import Protocol
from weakref import WeakSet

_PATIENCE = 10.0


class Ending(Protocol):
    """A part of a loop that can end."""

    def end(self) -> None:
        """Begin nothing any more."""

    def join(self, deadline: float) -> None:
        """Wait for what is under way, until that moment of the monotonic clock at most."""

    def abandon(self) -> None:
        """Forget threads that a fork did not bring along."""


class Loop(Protocol):
    """Background work that ends before the interpreter does."""

    @property
    def lanes(self) -> Sequence[Ending]:
        """Its parts."""


_loops: WeakSet[Loop] = WeakSet()


def join_at_exit(loop: Loop) -> None:
    """Have the end of the interpreter wait for what the loop has under way."""
    _loops.add(loop)


def is_shutdown(failure: Exception) -> bool:
    """Whether work failed only because the interpreter is about to end."""
    return isinstance(failure, RuntimeError) and "shutdown" in str(failure)


def end_loops() -> None:
    """End all loops, and wait a while for what they have under way."""
    deadline = time.monotonic() + _PATIENCE
    lanes = [lane for loop in list(_loops) for lane in loop.lanes]
    for lane in lanes:
        lane.end()
    for lane in lanes:
        lane.join(deadline)


def _before_pools_end() -> None:
    pooled = getattr(pools, "_threads_queues", {})
    staying = {threading.main_thread(), threading.current_thread(), *pooled}
    if all(thread.daemon or thread in staying for thread in threading.enumerate()):
        end_loops()


def _in_child() -> None:
    for loop in list(_loops):
        for lane in loop.lanes:
            lane.abandon()


# Called in the opposite order: importing `pools` above registered the end of those first.
getattr(threading, "_register_atexit", atexit.register)(_before_pools_end)
atexit.register(end_loops)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

"""Raising an exception wherever the interpreter would let a signal's handler run.

A signal is handled when a call begins, when a call has ended (its result is lost then), and inside
of calls that wait. A profile function is called at exactly these places, and what it raises comes
out as if the call had raised it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

WAITING = ("acquire", "sleep", "wait")


class Interrupter:
    """Raises once, at the n-th place where the current thread could be interrupted, not counting
    those at which it is `paused`."""

    def __init__(self, nth: int, kind: type[BaseException] = KeyboardInterrupt) -> None:
        self.place: str | None = None
        self.paused = False
        self._left = nth
        self._kind = kind

    @property
    def struck(self) -> bool:
        """Whether there were that many places."""
        return self.place is not None

    def run(self, call: Callable[[], Any]) -> Any:
        """What the call returns, or raises, with the interruption in it."""
        gc.disable()  # What a finalizer raises goes nowhere.
        sys.setprofile(self._look)
        try:
            return call()
        finally:
            sys.setprofile(None)
            gc.enable()

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_filename.endswith((__file__, "_weakrefset.py")) or self.struck or self.paused:
            return
        if event == "c_call" and getattr(argument, "__name__", "") not in WAITING:
            return
        if event == "c_exception" or argument is sys.setprofile:
            return
        self._left -= 1
        if self._left < 0:
            name = getattr(argument, "__name__", "")
            self.place = f"{code.co_filename}:{frame.f_lineno} {code.co_qualname} {event} {name}"
            raise self._kind

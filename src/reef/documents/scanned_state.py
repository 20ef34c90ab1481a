"""The state that a scan shows, the same in every iteration of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock

import pyarrow as pa

from reef.errors import ObjectNotFound, PastRetention
from reef.lsm.memory_runs import MemoryRuns
from reef.lsm.read.view import View

_ATTEMPTS = 4

Read = Callable[[View, MemoryRuns], Iterator[pa.RecordBatch]]
"""Reads batches of a view, with what `View.pin` gave."""

_State = tuple[View, MemoryRuns]


class ScannedState:
    """The state of when the scan was made. If that is gone before anything of it was shown, a newer
    one takes its place, for every iteration from then on; afterwards it is `PastRetention`."""

    def __init__(
        self,
        view: View,
        renewed: Callable[[ObjectNotFound], View | None],
        past: Callable[[ObjectNotFound], PastRetention],
    ) -> None:
        """`renewed` gives a newer state after an object was gone, if there can be one, and `past`
        the error if not."""
        self._renewed = renewed
        self._past = past
        self._lock = Lock()
        self._state = (view, view.pin())
        self._shown = False
        self._attempts = _ATTEMPTS

    def batches(self, read: Read) -> Iterator[pa.RecordBatch]:
        """What is read of the state."""
        while True:
            state = self._state
            begun = False
            try:
                for batch in read(*state):
                    if not begun and not self._show(state):
                        break
                    begun = True
                    yield batch
                else:
                    # That there is nothing is an answer too.
                    if begun or self._show(state):
                        return
            except ObjectNotFound as gone:
                self._replace(state, gone)

    def _show(self, state: _State) -> bool:
        """Settle on the state. False if another iteration has settled on another."""
        with self._lock:
            if not self._shown:
                self._shown = True
                self._state = state
            return state is self._state

    def _replace(self, state: _State, gone: ObjectNotFound) -> None:
        with self._lock:
            if state is not self._state:
                return
            view = self._renewed(gone)
            # Going on with another state would show a torn one, or two that differ.
            if view is None or self._shown or not self._attempts:
                raise self._past(gone) from None
            self._attempts -= 1
            self._state = (view, view.pin())

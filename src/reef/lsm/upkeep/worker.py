"""The resident worker: a loop around one pass of background work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread

from reef.errors import Closed, ConcurrentPublication, Fenced, ReefError

_logger = logging.getLogger("reef")
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 30.0


class Worker:
    """A thread that does passes while there is something to do, and sleeps otherwise.

    `work` does one pass and says whether another is worth doing at once. A pass that fails is
    logged and tried again after a growing pause; being fenced ends the thread.
    """

    def __init__(self, name: str, work: Callable[[], bool], every: float | None = None) -> None:
        self.failure: Exception | None = None
        self._work = work
        self._every = every
        self._condition = Condition()
        self._wanted = False
        self._stopping = False
        self._passes = 0
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        if not self._wanted:
            with self._condition:
                self._wanted = True
                self._condition.notify_all()

    def wait_for_pass(self, timeout: float) -> bool:
        """Wait until a pass has ended. False if none did in time or the worker has stopped."""
        with self._condition:
            before = self._passes
            self._condition.wait_for(lambda: self._passes > before or self._stopping, timeout)
            return self._passes > before

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        return self._thread.is_alive() and not self._stopping

    def stop(self) -> None:
        """Finish the pass under way, then end."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        pause = _FIRST_WAIT
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._stopping, self._every)
                if self._stopping:
                    return
                self._wanted = False
            again = False
            try:
                again = self._work()
                self.failure = None
                pause = _FIRST_WAIT
            except (Fenced, Closed):
                with self._condition:
                    self._stopping = True
            except ConcurrentPublication as overtaken:
                _logger.info("%s: %s", self._thread.name, overtaken)
                again = True
            except Exception as failure:
                self.failure = failure
                unforeseen = not isinstance(failure, ReefError)
                _logger.warning(
                    "%s will try again: %s", self._thread.name, failure, exc_info=unforeseen
                )
                with self._condition:
                    self._condition.wait_for(lambda: self._stopping, pause)
                pause = min(pause * 2, _LONGEST_WAIT)
                again = True
            with self._condition:
                self._passes += 1
                self._wanted = self._wanted or again
                self._condition.notify_all()

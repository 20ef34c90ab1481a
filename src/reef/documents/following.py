"""Following the bucket: one thread looks while the others wait for what it finds."""

from __future__ import annotations

from threading import Lock

from reef.lsm.tree import Tree


class _Look:
    """A look at the bucket that is under way. Those who wait for it each hold a lock of their own:
    handing one lock from thread to thread would wake them one after the other."""

    __slots__ = ("ended", "failure", "gates")

    def __init__(self) -> None:
        self.gates: list[Lock] = []
        self.ended = False
        self.failure: Exception | None = None


class Following:
    """Keeps the state of a tree that somebody else writes as fresh as its readers ask for.

    However many threads read, one at a time looks at the bucket, and what it finds, or why it
    cannot, is the answer to all who waited.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._mutex = Lock()
        self._under_way: _Look | None = None
        self._looked = tree.environment.monotonic()

    def keep_fresh(self) -> None:
        """Look at the bucket if what is known of it is older than the staleness that readers
        accept. Its age counts from when the look at it began."""
        asked = self._tree.environment.monotonic()
        while asked - self._looked > self._tree.options.staleness:
            if self._look_or_wait():
                return

    def catch_up(self) -> None:
        """Look at the bucket, or wait for a look that somebody begins from now on."""
        if not self._look_or_wait():
            # The one that was under way may have begun too early. The next one has not.
            self._look_or_wait()

    def expire(self) -> None:
        """Let the next read look at the bucket."""
        self._looked = float("-inf")

    def _look_or_wait(self) -> bool:
        """Wait for the look that is under way, or look if there is none: True then."""
        while True:
            own, gate = _Look(), Lock()
            gate.acquire()
            try:
                with self._mutex:
                    look = self._under_way
                    if look is None:
                        self._under_way = own
                    else:
                        look.gates.append(gate)
                if look is None:
                    self._look(own)
                    return True
            finally:
                self._end(own)
            gate.acquire()
            if look.failure is not None:
                raise look.failure
            if look.ended:
                return False
            # Whoever looked was interrupted, which says nothing about the bucket.

    def _look(self, look: _Look) -> None:
        tree = self._tree
        began = tree.environment.monotonic()
        try:
            with tree.lock:
                slot = tree.view.unfolded.next_lsn
                tree.refresh()
                if tree.view.unfolded.next_lsn > slot:
                    tree.unsettled = False
        except Exception as failure:
            look.failure = failure
            raise
        self._looked = began
        look.ended = True

    def _end(self, look: _Look) -> None:
        with self._mutex:
            if self._under_way is not look:
                return
            self._under_way = None
        for gate in look.gates:
            gate.release()

"""Following the bucket: one thread looks while the others wait for what it finds."""

from __future__ import annotations

from threading import Lock

from reef.lsm.tree import Tree


class Following:
    """Keeps the state of a tree that somebody else writes as fresh as its readers ask for.

    However many threads read, they look at the bucket one at a time, and what one of them found
    serves all that asked before it began to look.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._lock = Lock()
        self._looked = tree.environment.monotonic()
        self._begun = 0
        self._ended = 0
        self._failure: Exception | None = None

    def keep_fresh(self) -> None:
        """Look at the bucket if what is known of it is older than the staleness that readers
        accept. Its age counts from when the look at it began."""
        asked = self._tree.environment.monotonic()
        if asked - self._looked > self._tree.options.staleness:
            self._look_since(self._begun, asked)

    def catch_up(self) -> None:
        """Look at the bucket, unless somebody begins to do so from now on."""
        self._look_since(self._begun, None)

    def expire(self) -> None:
        """Let the next read look at the bucket."""
        self._looked = float("-inf")

    def _look_since(self, begun: int, asked: float | None) -> None:
        with self._lock:
            if self._ended > begun:
                # This look began after we asked: what became of it is our answer too.
                if self._failure is not None:
                    raise self._failure
            elif asked is None or asked - self._looked > self._tree.options.staleness:
                self._look()

    def _look(self) -> None:
        tree = self._tree
        began = tree.environment.monotonic()
        self._begun += 1
        try:
            with tree.lock:
                slot = tree.view.unfolded.next_lsn
                tree.refresh()
                if tree.view.unfolded.next_lsn > slot:
                    tree.unsettled = False
        except Exception as failure:
            self._failure = failure
            self._ended = self._begun
            raise
        self._looked = began
        self._failure = None
        self._ended = self._begun

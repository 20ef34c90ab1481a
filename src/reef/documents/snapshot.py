"""A snapshot: the state of one moment, pinned for as long as somebody holds it."""

from __future__ import annotations

from types import TracebackType

from reef.documents.reading import FrozenReading
from reef.errors import Closed
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.read.view import View
from reef.lsm.retention.pins import pin, unpin
from reef.lsm.tree import Tree
from reef.lsm.upkeep.worker import Worker


class Snapshot(FrozenReading):
    """Reads the state that was current when it was made. Use it with `with`, or close it."""

    def __init__(self, tree: Tree, seconds: float) -> None:
        # A view of its own: the one of a live writer goes on taking in what is written.
        super().__init__(view_of(tree, moment_of(tree.view)))
        self._tree = tree
        self._seconds = seconds
        self._closed = False
        self.name = tree.environment.unique_id()
        pin(tree, self._view, self.name, seconds)
        self._worker = Worker(f"reef-snapshot-{self.name}", self.renew, every=seconds / 3)

    def renew(self) -> bool:
        """Keep it for another while. Done by itself as long as the snapshot is open."""
        pin(self._tree, self._view, self.name, self._seconds)
        return False

    def close(self) -> None:
        """Let the state go."""
        if not self._closed:
            self._closed = True
            self._worker.stop()
            unpin(self._tree, self.name)

    def _current(self) -> View:
        if self._closed:
            raise Closed("the snapshot was closed")
        return super()._current()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

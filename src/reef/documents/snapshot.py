"""A snapshot: the state of one moment, pinned for as long as somebody holds it."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from reef.documents.reading import FrozenReading
from reef.errors import Closed, PastRetention
from reef.lsm.read.history import moment_of, view_of
from reef.lsm.read.view import View
from reef.lsm.retention.pins import pin, unpin
from reef.lsm.tree import Tree
from reef.lsm.upkeep.loop import Upkeeper

_ATTEMPTS = 4


class Snapshot(FrozenReading):
    """Reads the state that was current when it was made. Use it with `with`, or close it.

    Should its pin lapse, because this process slept or the bucket's clock leapt, and the state be
    past its retention, then reads say `PastRetention`: none gives anything but the state of then.
    """

    def __init__(
        self, tree: Tree, seconds: float, renew: Callable[[], object], upkeeper: Upkeeper
    ) -> None:
        self._tree = tree
        self._seconds = seconds
        self._closed = False
        self._lapsed: PastRetention | None = None
        self.name = tree.environment.unique_id()
        super().__init__(self._pinned(renew))
        self._renewal = upkeeper.every(
            seconds / 3, self, Snapshot._beat, name=f"renewing snapshot {self.name}"
        )

    def _pinned(self, renew: Callable[[], object]) -> View:
        """The state that is known here, pinned; if it was collected meanwhile, a newer one."""
        for attempt in range(_ATTEMPTS):
            try:
                # A view of its own: the one of a live writer goes on taking in what is written.
                view = view_of(self._tree, moment_of(self._tree.view))
                pin(self._tree, view, self.name, self._seconds)
                return view
            except PastRetention:
                if attempt + 1 == _ATTEMPTS:
                    raise
                renew()
        raise AssertionError

    def renew(self) -> None:
        """Keep it for another while. Done by itself as long as the snapshot is open.
        `PastRetention` if its pin has lapsed, and something of the state may be gone."""
        try:
            pin(self._tree, self._view, self.name, self._seconds)
        except PastRetention as lapsed:
            self._lapsed = lapsed
            raise

    def _beat(self) -> None:
        try:
            self.renew()
        except PastRetention as lapsed:
            raise Closed(f"the snapshot is not kept any longer: {lapsed}") from lapsed

    def close(self) -> None:
        """Let the state go."""
        if not self._closed:
            self._closed = True
            self._renewal.stop()
            unpin(self._tree, self.name)

    def _current(self) -> View:
        if self._closed:
            raise Closed("the snapshot was closed")
        if self._lapsed is not None:
            raise PastRetention(f"the snapshot was not renewed in time: {self._lapsed}")
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

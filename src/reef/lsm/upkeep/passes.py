"""The upkeep of one tree: does the passes that the schedule asks for."""

from __future__ import annotations

from math import inf
from threading import Lock

from reef.errors import ConcurrentPublication
from reef.lsm.retention.collect import collect
from reef.lsm.tree import Tree
from reef.lsm.upkeep.compact import compact
from reef.lsm.upkeep.fold import Folded, fold_from_memory
from reef.lsm.upkeep.loop import Task, Upkeeper
from reef.lsm.upkeep.schedule import Activity, Due, Pass, next_pass


class Upkeep:
    """Keeps the tree of a live writer in shape. Its holder says when something `changed`, and may
    wait for a pass; everything else is decided here.

    `run` does one pass in the caller's thread. `start` leaves that to a loop: folding and the rest
    are two tasks then, since a long compaction must not keep the log from being folded.
    """

    def __init__(self, tree: Tree) -> None:
        self.folding: Task | None = None
        self.tidying: Task | None = None
        self._tree = tree
        self._fold_lock = Lock()
        self._wrote = -inf
        self._collected = tree.environment.monotonic() - tree.options.collect_seconds

    def start(self, upkeeper: Upkeeper, name: str) -> None:
        """Have passes done whenever they are due, until `stop`."""
        self.folding = upkeeper.add(f"folding {name}", self, Upkeep._fold)
        self.tidying = upkeeper.add(
            f"compacting {name}",
            self,
            Upkeep._tidy,
            wait=self._tree.options.collect_seconds,
            long=True,
            give_up=Upkeep._give_up,
        )
        if self._tree.view.unfolded.wants_folding(self._tree.options):
            self.folding.wake()

    def changed(self) -> None:
        """Something was written."""
        tree = self._tree
        self._wrote = tree.environment.monotonic()
        if self.folding is not None and tree.view.unfolded.wants_folding(tree.options):
            self.folding.wake()

    def due(self, *among: Pass) -> Due:
        """The next pass, of those kinds if some are given."""
        tree = self._tree
        return next_pass(
            tree.head.manifest,
            tree.view.unfolded,
            tree.options,
            Activity(self._wrote, self._collected),
            tree.environment.monotonic(),
            among or tuple(Pass),
        )

    def run(self, *among: Pass) -> float:
        """Do the next pass, of those kinds if some are given, if it is due. Returns how many
        seconds the one after that can wait; infinity for until something changes."""
        due = self.due(*among)
        if due.at <= self._tree.environment.monotonic():
            self._do(due.work)
            due = self.due(*among)
        return max(0.0, due.at - self._tree.environment.monotonic())

    def fold_now(self) -> Folded | None:
        """Fold one stretch of the log, behind a pass that is under way. None when nothing is left
        to fold."""
        with self._fold_lock:
            return fold_own_log(self._tree)

    def stop(self) -> None:
        """No further passes. A compaction under way is given up, other passes are waited for."""
        if self.folding is not None and self.tidying is not None:
            self.tidying.ask_to_stop()
            self.folding.stop()
            self.tidying.stop()

    def _do(self, work: Pass | None) -> None:
        tree = self._tree
        if work is Pass.FOLD:
            with self._fold_lock:
                follow_root(tree)
                if tree.view.unfolded.wants_folding(tree.options):
                    fold_from_memory(tree)
            return
        if work is Pass.COMPACT:
            compact(tree)
        else:
            self._collected = tree.environment.monotonic()
            collect(tree, apply=True)
        follow_root(tree)

    def _fold(self) -> float:
        wait = self.run(Pass.FOLD)
        if self.tidying is not None:
            self.tidying.wake()
        return wait

    def _tidy(self) -> float:
        return self.run(Pass.COMPACT, Pass.COLLECT)

    def _give_up(self) -> None:
        self._tree.closing = True


def follow_root(tree: Tree) -> None:
    """Take in what others published, if they did."""
    head = tree.register.head()
    if head.slot > tree.head.slot:
        tree.advance(head)


def fold_own_log(tree: Tree) -> Folded | None:
    """Fold one stretch of a live writer's log. When another process is faster, it is what is left
    of the log then that counts; None when that is nothing."""
    while True:
        follow_root(tree)
        before = tree.head.slot
        try:
            return fold_from_memory(tree)
        except ConcurrentPublication:
            follow_root(tree)
            if tree.head.slot == before:
                raise

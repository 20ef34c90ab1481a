"""Who does the parts of a large job: this process alone, or many at once.

Work that touches all the data is planned, done in parts, and committed. The parts are described by
small values that can be sent anywhere; whoever does one reads and writes objects itself and
returns a small description of what it wrote. A part that is done twice, or half, leaves
orphans and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from reef.lsm.tree import Tree

Part = TypeVar("Part")
Result = TypeVar("Result")


class Executor(Protocol):
    """Does parts of a job on one tree; `size` is how many it can do at a time."""

    @property
    def size(self) -> int:
        """How many parts are done at a time."""

    def __call__(
        self,
        work: Callable[[Tree, Part], Result],
        parts: Sequence[Part],
        what: str,
    ) -> list[Result]:
        """What `work` returned for each part, in their order. `what` names the job for people."""


class LocalExecutor:
    """This process, one part after the other."""

    size = 1

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def __call__(
        self,
        work: Callable[[Tree, Part], Result],
        parts: Sequence[Part],
        what: str,
    ) -> list[Result]:
        """Do the parts here and now."""
        return [work(self._tree, part) for part in parts]

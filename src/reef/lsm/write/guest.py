"""Appending to a tree's log without being its writer: bulk loads and collectors do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reef.commit import Contents
from reef.commit import append_as_guest as append
from reef.log import BatchHeader
from reef.lsm.read.view import View
from reef.lsm.tree import Tree
from reef.store.contract import Buffer

Records = tuple[Sequence[BatchHeader], Sequence[Sequence[Buffer]]]


def append_as_guest(tree: Tree, decide: Callable[[View], Records | None]) -> View:
    """Append what `decide` makes of the newest state, and return the state that has it.

    `decide` sees everything that comes before the slot, and is asked again when another append
    came first. It returns None, or raises, to let it be. Nothing is appended then.
    """

    def contents() -> Contents | None:
        decided = decide(tree.view)
        return None if decided is None else Contents(*decided)

    with tree.lock:
        append(tree, contents)
        return tree.view

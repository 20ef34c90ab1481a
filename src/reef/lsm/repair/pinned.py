"""Examining the pin board: whether it can be read, and whether what it pins is there."""

from __future__ import annotations

from reef.errors import Corruption, ObjectNotFound, UnsupportedFormat
from reef.lsm.retention.pinboard import PINS, Pins
from reef.lsm.tree import Tree
from reef.manifest import MANIFESTS, Manifest
from reef.segment import Problem

_LOOKS = 3


def examine_board(tree: Tree) -> tuple[Pins, list[Problem]]:
    """The board, as far as it can be read, and those newer than it, which are damaged. A single
    look may be damaged on its way."""
    try:
        board = tree.board.read()
    except Corruption:
        board = None
    newest = board.generation if board is not None else 0
    damaged = [PINS.key(number) for number, _ in tree.board.register.generations(after=newest)]
    problems = [_damage(tree, key) for key in damaged]
    return board or Pins(0, "", 0.0, "", ""), [found for found in problems if found is not None]


def _damage(tree: Tree, key: str) -> Problem | None:
    problem: Problem | None = None
    for _ in range(_LOOKS):
        try:
            PINS.codec.decode(key, tree.store.get(key).data)
            return None
        except ObjectNotFound:
            return None
        except Corruption as damage:
            problem = Problem(key, damage.offset, damage.reason)
        except UnsupportedFormat:
            return None
    return problem


def pinned_generations(board: Pins, head: Manifest) -> dict[int, set[str]]:
    """The generations that are pinned, each with the nonces that pins know it by: "" for a pin of a
    former version, which knows none."""
    pinned: dict[int, set[str]] = {}
    for state in board.pins.values():
        pinned.setdefault(state.generation, set()).add(state.nonce)
    for old in head.snapshots.values():
        pinned.setdefault(old.generation, set()).add("")
    return pinned


def is_believed(manifest: Manifest, head: Manifest, pinned: dict[int, set[str]]) -> bool:
    """Whether what lies under a generation's number is that generation: it is retained, or else a
    pin knows it. Anything else is garbage."""
    if manifest.generation >= head.oldest_generation:
        return True
    known = pinned.get(manifest.generation, set())
    return manifest.nonce in known or "" in known


def missing_pinned(tree: Tree, head: Manifest, believed: set[int], board: Pins) -> list[Problem]:
    """Pinned generations that are not there, though their pins still are."""
    gone = {n for n in pinned_generations(board, head) if n not in believed}
    if gone:
        still = pinned_generations(examine_board(tree)[0], head)
        gone &= still.keys()
    return [
        Problem(MANIFESTS.key(n), 0, "it is missing though pinned; what it names cannot be read")
        for n in sorted(gone)
    ]

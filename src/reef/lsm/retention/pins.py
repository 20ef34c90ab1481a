"""Pinning: a state that somebody reads is kept from collection for as long as they say so."""

from __future__ import annotations

from reef.errors import Corruption, ObjectNotFound, PastRetention, UnsupportedFormat
from reef.lsm.read.history import moment_of
from reef.lsm.read.view import View
from reef.lsm.retention.pinboard import PinnedState
from reef.lsm.retention.reachability import Needs, are_retained_slots, reachable_segments
from reef.lsm.tree import Tree, replayed
from reef.manifest import Manifest


def pin(tree: Tree, view: View, name: str, seconds: float | None = None) -> None:
    """Keep what a view needs under a name of the caller's making: for that many seconds, and for as
    many again whenever it is pinned again; without end if there are none.

    `PastRetention` if some of it was forgotten already, also when a pin that lapsed is renewed. A
    name that is in use for another state is taken from that.
    """
    state = _state_of(view, seconds)
    if not tree.board.pin(name, state):
        return
    # The floor has said that nothing is missing. Should the board have been damaged and fallen back
    # to an older one, the root knows better.
    if not _is_kept(tree.register.head().root, view):
        tree.board.release(name)
        raise PastRetention(
            f"generation {state.generation} is no longer retained, and cannot be pinned"
        )


def unpin(tree: Tree, name: str) -> None:
    """Let go of a pinned state. Nothing if the pin has lapsed."""
    tree.board.release(name)


def needs_of(tree: Tree, state: PinnedState) -> Needs:
    """What a pinned state needs: whatever its generation and its part of the log name. If they
    cannot be read, nobody knows, and all that was retired later counts as needed."""
    try:
        manifest = tree.register.read_generation(state.generation)
        if state.nonce and manifest.nonce != state.nonce:
            return Needs(state.generation, None)
        keys = {info.key for info in (*manifest.segments, *manifest.window, *manifest.lists)}
        first = manifest.wal_floor
        if state.ingests:
            unfolded = replayed(tree, manifest, state.lsn)
            if unfolded.next_lsn <= state.lsn:
                return Needs(state.generation, None)
            keys |= {info.key for info in unfolded.named}
        return Needs(state.generation, frozenset(keys), first, state.lsn)
    except (ObjectNotFound, Corruption, UnsupportedFormat):
        return Needs(state.generation, None)


def _state_of(view: View, seconds: float | None) -> PinnedState:
    moment = moment_of(view)
    ingests = bool(view.unfolded.named)
    return PinnedState(moment.generation, moment.lsn, moment.nonce, ingests, seconds)


def _is_kept(newest: Manifest, view: View) -> bool:
    unfolded, first = view.unfolded, view.manifest.wal_floor
    needed = {info.key for info in (*view.manifest.segments, *view.manifest.lists)}
    needed |= {info.key for info in unfolded.named if info.lsn < newest.wal_floor}
    return needed <= reachable_segments(newest, ()) and are_retained_slots(
        newest, first, unfolded.next_lsn - 1
    )

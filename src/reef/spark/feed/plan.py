"""What a stretch of the log holds, and how it is shared out among tasks. Pure: nothing is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reef.lsm.records import Ingest, placed
from reef.segment import SegmentInfo

# A request takes about as long as reading this many bytes more would.
_REQUEST_BYTES = 32 * 1024


@dataclass(frozen=True)
class Slot:
    """A slot of the log as planning sees it.

    `rows` and `changes` (rows that are no upserts, and truncations) are counted by its header.
    `ingest` is what it names if that is all it holds. `is_known` is false where its object could
    not be read: whoever reads the log decides whether that matters.
    """

    lsn: int
    size: int = 0
    created: int = 0
    rows: int = 0
    changes: int = 0
    ingest: Ingest | None = None
    is_known: bool = True

    @property
    def nbytes(self) -> int:
        """How many bytes of objects hold it, ingested segments included."""
        segments = self.ingest.segments if self.ingest is not None else ()
        return self.size + sum(info.size for info in segments)


@dataclass(frozen=True)
class Stretch:
    """Neighbouring slots, whose rows lie in the log itself (or in segments too few to share)."""

    first: int
    last: int


@dataclass(frozen=True)
class Bulk:
    """Segments that one slot brought in, or some of them; `truncate` if the slot's truncation is to
    be told here."""

    lsn: int
    created: int
    segments: tuple[SegmentInfo, ...]
    truncate: bool = False


Piece = Stretch | Bulk


def last_admitted(slots: Iterable[Slot], rows: int | None, nbytes: int | None) -> int | None:
    """The last of these slots to read if at most so many rows and bytes are wanted.

    A slot is one atomic write and is never cut, so the first that has any rows is admitted
    however large it is. None when there are no slots.
    """
    last = None
    taken_rows = taken_bytes = 0
    for slot in slots:
        taken_rows += slot.rows
        taken_bytes += slot.nbytes
        over = (rows is not None and taken_rows > rows) or (
            nbytes is not None and taken_bytes > nbytes
        )
        if over and taken_rows > slot.rows:
            break
        last = slot.lsn
    return last


def share_out(slots: Iterable[Slot], target_bytes: int) -> list[tuple[Piece, ...]]:
    """The slots as pieces for tasks, each task about `target_bytes`, in the order of the log.

    An ingest is cut between its segments, other slots are never cut.
    """
    shares = _Shares(target_bytes)
    for slot in slots:
        ingest = slot.ingest
        if ingest is None:
            if slot.rows or not slot.is_known:
                shares.add(Stretch(slot.lsn, slot.lsn), slot.size + _REQUEST_BYTES)
            continue
        if ingest.truncate:
            shares.add(Bulk(slot.lsn, slot.created, (), True), 0)
        for info in sorted(placed(ingest, slot.lsn), key=lambda info: info.min_id):
            shares.add(Bulk(slot.lsn, slot.created, (info,)), info.size + _REQUEST_BYTES)
    return shares.finish()


class _Shares:
    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._done: list[tuple[Piece, ...]] = []
        self._open: list[Piece] = []
        self._bytes = 0

    def add(self, piece: Piece, nbytes: int) -> None:
        if self._open and self._bytes + nbytes > self._target:
            self.finish()
        joined = _joined(self._open[-1], piece) if self._open else None
        if joined is not None:
            self._open[-1] = joined
        else:
            self._open.append(piece)
        self._bytes += nbytes

    def finish(self) -> list[tuple[Piece, ...]]:
        if self._open:
            self._done.append(tuple(self._open))
        self._open = []
        self._bytes = 0
        return self._done


def _joined(one: Piece, other: Piece) -> Piece | None:
    """Both as one piece, if they follow each other."""
    if isinstance(one, Stretch) and isinstance(other, Stretch) and one.last + 1 == other.first:
        return Stretch(one.first, other.last)
    if isinstance(one, Bulk) and isinstance(other, Bulk) and one.lsn == other.lsn:
        return Bulk(one.lsn, one.created, (*one.segments, *other.segments), one.truncate)
    return None

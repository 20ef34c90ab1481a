"""Which retired objects a root names itself and which by lists: a pure plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reef.manifest.lists import ListInfo, encode_list
from reef.manifest.retired import LogSpan, Retired, RetiredGroup, RetiredList, Superseded
from reef.segment.info import SegmentInfo

MOST_NAMED = 1_000
"""How many retired objects a root names itself at most."""

MOST_SPANS = 1_000
"""How many spans of folded log slots a root names at most."""

_STAYING = 250
_MOST_ENTRIES = 4_000


@dataclass(frozen=True)
class Retirement:
    """The same entries, arranged, and the lists that must be written first."""

    retired: Retired
    lists: tuple[RetiredList, ...]
    fresh: tuple[tuple[ListInfo, bytes], ...]


def arrange_retired(
    retired: Retired,
    dropped: Mapping[ListInfo, Sequence[SegmentInfo]],
    *,
    generation: int,
    read: Callable[[RetiredList], Sequence[Superseded]],
    make_id: Callable[[], str],
) -> Retirement:
    """Decide where each entry is named. `dropped` are the lists of segments that the root before
    used and this one does not, with what they name."""
    named = list(retired.named)
    groups = list(retired.groups)
    if dropped:
        now = {entry.key for entry in named if entry.generation == generation}
        covered: set[str] = set()
        for info, segments in dropped.items():
            keys = {segment.key for segment in segments}
            if keys and keys <= now:
                covered |= keys
                groups.append(RetiredGroup(RetiredList(info, generation), read))
            else:
                # Some of what it names goes on under another list.
                named.append(Superseded(info.key, generation))
        named = [e for e in named if e.key not in covered or e.generation != generation]
    fresh = []
    if len(named) > MOST_NAMED:
        named.sort(key=lambda entry: entry.generation)
        moving, named = named[:-_STAYING], named[-_STAYING:]
        for start in range(0, len(moving), _MOST_ENTRIES):
            some = moving[start : start + _MOST_ENTRIES]
            data, info = encode_list(some, make_id(), generation - 1)
            fresh.append((info, data))
            groups.append(RetiredGroup(RetiredList(info, 0), read))
    return Retirement(Retired(named, groups), tuple(g.name for g in groups), tuple(fresh))


def entries_of(name: RetiredList, segments: Iterable[SegmentInfo]) -> tuple[Superseded, ...]:
    """What a retired list of those segments stands for."""
    keys = (name.list.key, *(segment.key for segment in segments))
    return tuple(Superseded(key, name.generation) for key in keys)


def merge_spans(spans: tuple[LogSpan, ...]) -> tuple[LogSpan, ...]:
    """The same slots in no more than `MOST_SPANS` spans, as far as they are neighbours.

    Two by two they become one, which takes the later of the generations: so slots may be kept for
    up to twice as long as they need be, and never for less.
    """
    if len(spans) <= MOST_SPANS:
        return spans
    merged: list[LogSpan] = []
    pairs = False
    for span in sorted(spans):
        if pairs and merged[-1].last + 1 == span.first:
            before = merged.pop()
            span = LogSpan(before.first, span.last, max(before.generation, span.generation))
            pairs = False
        else:
            pairs = True
        merged.append(span)
    return tuple(merged)

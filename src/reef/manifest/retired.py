"""What older generations named and the root does not any more, kept until the retention has passed.

A list object that a publication stops using retires together with all that it names, if nothing of
that is used any more either: then one entry stands for all of them. And when there are many other
entries, the oldest of them move into list objects of their own. So a root stays small however much
is retired at once, and however long it is retained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

import msgspec

from reef.manifest.lists import ListInfo


class Superseded(msgspec.Struct, frozen=True, array_like=True):
    """An object that `generation` stopped naming: the one before it still did."""

    key: str
    generation: int


class LogSpan(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Log slots `first` through `last`, which `generation` moved below the floor."""

    first: int
    last: int
    generation: int


class RetiredList(msgspec.Struct, frozen=True):
    """A list that stands for what it names. If it names segments, they and the list itself were
    superseded by `generation`; if that is 0 it names entries, and each says by which."""

    list: ListInfo
    generation: int


class RetiredGroup:
    """What one retired list stands for, read when it is asked for."""

    def __init__(
        self, name: RetiredList, read: Callable[[RetiredList], Sequence[Superseded]]
    ) -> None:
        self.name = name
        self._read = read

    @cached_property
    def entries(self) -> tuple[Superseded, ...]:
        """An entry for each object."""
        return tuple(self._read(self.name))

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self.name.list.items + bool(self.name.generation)


class Retired(Sequence[Superseded]):
    """All that is retired, an entry for each object."""

    __slots__ = ("groups", "named")

    def __init__(
        self, named: Iterable[Superseded] = (), groups: Iterable[RetiredGroup] = ()
    ) -> None:
        self.named = tuple(named)
        self.groups = tuple(groups)

    @staticmethod
    def of(entries: Iterable[Superseded]) -> Retired:
        """Those entries."""
        return entries if isinstance(entries, Retired) else Retired(entries)

    def __iter__(self) -> Iterator[Superseded]:
        yield from self.named
        for group in self.groups:
            yield from group.entries

    def __len__(self) -> int:
        return len(self.named) + sum(group.count for group in self.groups)

    @overload
    def __getitem__(self, place: int) -> Superseded: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Superseded, ...]: ...
    def __getitem__(self, place: int | slice) -> Superseded | tuple[Superseded, ...]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Retired) and (self.named, self.groups) == (other.named, other.groups):
            return True
        return isinstance(other, Retired | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[object, ...]:
        return Retired, (tuple(self),)

    def __repr__(self) -> str:
        return f"Retired({self.named!r}, {len(self.groups)} lists)"

    def plus(self, entries: Iterable[Superseded]) -> Retired:
        """These and others."""
        return Retired((*self.named, *entries), self.groups)

    def where(self, keep: Callable[[Superseded], bool]) -> Retired:
        """Those that `keep` says yes to. Lists of which nothing goes stay as they are."""
        named = [entry for entry in self.named if keep(entry)]
        groups = []
        for group in self.groups:
            kept = [entry for entry in group.entries if keep(entry)]
            if len(kept) == len(group.entries):
                groups.append(group)
            else:
                named += kept
        return Retired(named, groups)

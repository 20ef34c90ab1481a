"""Where a register keeps its generations, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from reef.manifest.codec import RootCodec
from reef.manifest.root import Root

R = TypeVar("R", bound=Root)
_DIGITS = 20


@dataclass(frozen=True)
class Layout(Generic[R]):
    """A folder of numbered generations, each `prefix` + number + `suffix`.

    `hint` is the key of an unconditional copy of some recent generation; without one, whoever looks
    for the newest lists all that are there. `absent` makes the error for a register that has none,
    `over` the one for a root that has ended (the same if None). `name` is whose the roots must be,
    anybody's if empty.
    """

    prefix: str
    suffix: str
    codec: RootCodec[R]
    absent: Callable[[], Exception]
    hint: str | None = None
    over: Callable[[], Exception] | None = None
    name: str = ""

    def ended(self) -> Exception:
        """The error for a root that has ended."""
        return (self.over or self.absent)()

    def key(self, generation: int) -> str:
        """Where a generation lies: zero-padded, so that the newest is listed last."""
        return f"{self.prefix}{generation:0{_DIGITS}d}{self.suffix}"

    def generation_of(self, key: str) -> int | None:
        """The generation that a key names, or None if it is no generation's key."""
        name = key.removeprefix(self.prefix).removesuffix(self.suffix)
        return int(name) if len(name) == _DIGITS and name.isdecimal() else None

"""The root's envelope: which generation it is, of what, and whose."""

from __future__ import annotations

import msgspec


class Root(msgspec.Struct, frozen=True, omit_defaults=True):
    """One generation of what a register holds; what it says is added by those derived from it.

    `namespace` is the name of what this is the root of, `created_at` when it was made, by the
    clock of its maker. `publisher` and `nonce` mark who published it, and `previous` is the nonce
    of the generation that it was made from. `format` is the version of what it says.
    """

    generation: int
    namespace: str
    created_at: float
    publisher: str
    nonce: str
    previous: str = ""
    format: int = 1

    @property
    def least_format(self) -> int:
        """The oldest format in which it can be written: older programs must not misread it."""
        return 1

    @property
    def ended(self) -> bool:
        """Whether it says that what it was the root of is no more. Its register remembers it, so
        that whatever begins in its place goes on with higher numbers."""
        return False

    @property
    def lease(self) -> float:
        """For how many seconds a publisher may rely on what it read of the register without looking
        again: well under the time for which a generation stays when it was superseded."""
        return 0.0

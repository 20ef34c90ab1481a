"""Taking a role over: an epoch in the root, raised by publication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from reef.manifest.register import Head, Register
from reef.manifest.root import Root

R = TypeVar("R", bound=Root)


def take_over(
    register: Register[R],
    epoch: str,
    base: Head[R] | None = None,
    *,
    above: int = 0,
    also: Callable[[R], R] = lambda root: root,
) -> tuple[int, Head[R]]:
    """Raise the epoch of that name in the root, past `above` too: the epoch taken, and the head
    that says so. Whoever had it before finds a higher one, and is superseded. `also` edits the
    root in the same publication, or refuses."""

    def edit(newest: R) -> R:
        newest = also(newest)
        raised = max(getattr(newest, epoch), above) + 1
        return msgspec.structs.replace(newest, **{epoch: raised})

    head = register.publish(edit, base)
    taken: int = getattr(head.root, epoch)
    return taken, head

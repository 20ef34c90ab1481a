"""Which names are in use, told by small markers, so that listing them reads no manifest.

    names/<name>/<generation>-created      put before the generation that creates it is published
    names/<name>/<generation>-dropped      put after the generation that drops it is published

The highest generation decides, and of two markers of one the drop: another was published as that
generation then. A name without markers is in use; only names that were dropped once have any. So a
name in use is never hidden, whoever dies between marker and publication; one that was dropped may
show until it is collected. Whoever is about to drop a name marks it as created before, so that
the collection of what was dropped knows of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from reef.store.contract import Store

PREFIX = "names/"
_MARKER = re.compile(r"names/([^/]+)/([0-9]{20})-(created|dropped)")


class Names:
    """The markers of a bucket."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def in_use(self, folder: str) -> list[str]:
        """The names of the folders below a prefix that were not dropped, sorted."""
        calls: list[Callable[[], list[str]]] = [
            partial(self._store.list_folders, folder),
            self._keys,
        ]
        folders, markers = self._store.concurrently(calls)
        dropped = {name for name, last in _newest(markers).items() if last.endswith("-dropped")}
        return [name for name in folders if name not in dropped]

    def marked(self) -> list[str]:
        """The names that somebody dropped once, or was about to, sorted."""
        return sorted(_newest(self._keys()))

    def created(self, name: str, generation: int) -> None:
        """There is a namespace of that name, as that generation says, or it is about to."""
        self._mark(name, generation, "created")

    def dropped(self, name: str, generation: int) -> None:
        """There is none of that name, as that generation says."""
        self._mark(name, generation, "dropped")

    def _mark(self, name: str, generation: int, what: str) -> None:
        before = [info.key for info in self._store.list(f"{PREFIX}{name}/")]
        marker = f"{PREFIX}{name}/{generation:020d}-{what}"
        if marker not in before:
            self._store.put(marker, b"")
        # Whatever is below decides nothing any more.
        self._store.delete_many([key for key in before if _MARKER.fullmatch(key) and key < marker])

    def _keys(self) -> list[str]:
        return [info.key for info in self._store.list(PREFIX)]


def _newest(markers: list[str]) -> dict[str, str]:
    """The marker that decides, for each name."""
    newest: dict[str, str] = {}
    for key in sorted(markers):
        found = _MARKER.fullmatch(key)
        if found is not None:
            newest[found[1]] = key
    return newest

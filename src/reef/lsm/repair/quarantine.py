"""Quarantine: where damaged objects go, so that nobody reads them and somebody may look at them."""

from __future__ import annotations

from collections.abc import Iterable

from reef.errors import ObjectNotFound
from reef.store.contract import Store

PREFIX = "quarantine/"


def quarantined(store: Store, keys: Iterable[str]) -> set[str]:
    """Those of the keys of which there is a copy in quarantine."""
    wanted = set(keys)
    if not wanted:
        return wanted
    return {info.key.removeprefix(PREFIX) for info in store.list(PREFIX)} & wanted


def copy_aside(store: Store, key: str) -> None:
    """Copy an object into quarantine. It is no error if the object is not there: it was moved
    there before."""
    try:
        data = store.get(key).data
    except ObjectNotFound:
        return
    store.put(PREFIX + key, data)


def note_missing(store: Store, key: str) -> None:
    """Leave an empty object for one that is gone, so that it is known and not looked for again."""
    store.put(PREFIX + key, b"")

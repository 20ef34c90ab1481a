"""The bucket: one small contract, and the stores that keep it.

Owns every request that Reef makes, the mapping of every store's failures to Reef's errors, and
the threads that requests run on. Relies on `reef.errors` and `reef.environment` alone. The
invariant: whatever the store, an object is seen whole or not at all, at most one of any racing
creates of a key wins, and what a write has returned for is durable and seen by every later read.
"""

from __future__ import annotations

from reef.store.contract import Blob, Data, ObjectInfo, Pending, Store, check_key
from reef.store.counting import CountingStore, Counts
from reef.store.folder import FolderStore
from reef.store.memory import MemoryStore
from reef.store.url import open_store

__all__ = [
    "Blob",
    "CountingStore",
    "Counts",
    "Data",
    "FolderStore",
    "MemoryStore",
    "ObjectInfo",
    "Pending",
    "Store",
    "check_key",
    "open_store",
]

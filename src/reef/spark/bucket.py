"""A bucket as a value that can be sent to tasks, and the trees that a process opens of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from reef.data.ids import check_namespace_name
from reef.documents.database import PREFIX, Database, connect
from reef.errors import InvalidInput
from reef.lsm.options import Options
from reef.lsm.tree import Tree
from reef.segment import BlockCache
from reef.store import open_store

_CACHE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Bucket:
    """An address, and options of the store beyond it (credentials among them) as sorted pairs.

    Opened once a process, however many tasks it runs.
    """

    url: str
    storage: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Bucket({self.url!r})"

    def database(self, *, create: bool = True) -> Database:
        """The bucket, opened in this process; `BucketNotFound` if it is a folder that is not there
        and not to be created."""
        return _database(self, create)

    def tree(self, namespace: str, options: Options | None = None, *, create: bool = True) -> Tree:
        """A tree of its own with nothing read of it yet."""
        check_namespace_name(namespace)
        database = self.database(create=create)
        return Tree(
            database.store.below(f"{PREFIX}{namespace}/"),
            database.environment,
            options or database.options,
            BlockCache(_CACHE_BYTES),
            namespace,
        )


def bucket_at(url: str | os.PathLike[str], storage: dict[str, str] | None = None) -> Bucket:
    """The bucket at an address. A folder's is made absolute, for tasks run elsewhere."""
    address = os.fspath(url)
    if not address:
        raise InvalidInput("no bucket was given: set the option bucket to its address")
    if address.startswith("memory://"):
        raise InvalidInput("tasks run in other processes, which cannot see a bucket in memory")
    if "://" not in address:
        address = os.path.abspath(os.path.expanduser(address))
    return Bucket(address, tuple(sorted((storage or {}).items())))


@lru_cache(maxsize=8)
def _database(bucket: Bucket, create: bool) -> Database:
    options: dict[str, Any] = dict(bucket.storage)
    return connect(open_store(bucket.url, create=create, **options))

"""A database: a bucket, and the namespaces in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from reef.data.ids import check_namespace_name
from reef.data.schema import ID_TYPES, Schema, check_attribute_name
from reef.data.types import AttributeType, parse_type
from reef.documents.namespace import Namespace
from reef.environment import SYSTEM, Environment
from reef.errors import (
    AlreadyExists,
    Corruption,
    InvalidInput,
    NamespaceExists,
    NamespaceNotFound,
    no_namespace,
)
from reef.lsm.options import Options
from reef.lsm.tree import Tree
from reef.lsm.upkeep.loop import Upkeeper
from reef.manifest import Manifest, Settings
from reef.manifest.manifests import HINT
from reef.segment import BlockCache
from reef.store import Store, open_store

PREFIX = "namespaces/"

SchemaLike = Schema | Mapping[str, str | AttributeType]


def connect(
    url: str | os.PathLike[str] | Store,
    *,
    options: Options | None = None,
    environment: Environment = SYSTEM,
    **store_options: Any,
) -> Database:
    """Open a bucket: a folder, "memory://", "s3://bucket/prefix?endpoint=…", "gs://…", "az://…"."""
    if not isinstance(url, Store):
        url = open_store(url, environment=environment, **store_options)
    return Database(url, options or Options(), environment)


class Database:
    """Namespaces in a bucket. Handles made from it share one block cache, and a few threads for the
    upkeep of all of them."""

    def __init__(self, store: Store, options: Options, environment: Environment) -> None:
        self.store = store
        self.options = options
        self.environment = environment
        self._cache = BlockCache(options.cache_bytes)
        self._upkeeper = Upkeeper()

    def namespaces(self) -> list[str]:
        """The names of all namespaces, sorted."""
        return self.store.list_folders(PREFIX)

    def exists(self, name: str) -> bool:
        """Whether there is a namespace of that name."""
        try:
            self._tree(name).register.head()
        except NamespaceNotFound:
            return False
        return True

    def create(
        self, name: str, *, schema: SchemaLike | None = None, settings: Settings | None = None
    ) -> None:
        """Make an empty namespace, or `NamespaceExists`. The first write may decide the schema."""
        tree = self._tree(name)
        declared = declared_schema(schema)
        manifest = Manifest(
            generation=1,
            namespace=name,
            created_at=self.environment.now(),
            publisher=tree.identity,
            nonce=self.environment.nonce(),
            settings=check_settings(settings or Settings()),
        ).with_schema(declared)
        if self.exists(name):
            raise NamespaceExists(f"there is a namespace {name!r} already")
        for prefix in ("wal/", "segments/"):
            for info in tree.store.list(prefix):
                if self.exists(name):  # somebody else made it meanwhile, and wrote
                    raise NamespaceExists(f"there is a namespace {name!r} already")
                raise Corruption(
                    f"{PREFIX}{name}/manifest/",
                    f"objects such as {info.key} are there but no manifest; rebuild or drop it",
                )
        try:
            tree.register.create(manifest)
        except AlreadyExists:
            raise NamespaceExists(f"there is a namespace {name!r} already") from None

    def namespace(
        self,
        name: str,
        mode: str = "w",
        *,
        schema: SchemaLike | None = None,
        settings: Settings | None = None,
        create: bool = True,
        maintain: bool = True,
        options: Options | None = None,
    ) -> Namespace:
        """Open a namespace for writing ("w"), creating it if it is not there, or for reading ("r").

        Opening for writing takes over from the writer before, who is fenced. Attributes of
        `schema` that the namespace lacks are added to it; for reading it must have them all.
        """
        if mode not in ("r", "w"):
            raise InvalidInput(f'mode is "r" or "w", not {mode!r}')
        tree = self._tree(name, options)
        if mode == "w" and create:
            try:
                tree.register.head()
            except NamespaceNotFound:
                with suppress(NamespaceExists):
                    self.create(name, schema=schema, settings=settings)
        opened = Namespace(name, tree, self._upkeeper, writable=mode == "w", maintain=maintain)
        if schema is not None:
            try:
                opened.declare(declared_schema(schema))
            except BaseException:
                opened.close()
                raise
        return opened

    def drop(self, name: str) -> None:
        """Delete a namespace and everything in it. There is no way back."""
        tree = self._tree(name)
        if next(iter(tree.store.list("")), None) is None:
            raise no_namespace(name)
        # The newest manifest goes last of its kind, and its copy in the hint after it: until then
        # the namespace is whole, and from then on it is not there.
        manifests = [info.key for _, info in tree.register.generations()]
        tree.store.delete_many(manifests[:-1])
        for key in (*manifests[-1:], HINT):
            tree.store.delete(key)
        for prefix in ("wal/", "segments/", ""):
            tree.store.delete_many([info.key for info in tree.store.list(prefix)])

    def close(self) -> None:
        """Let go of connections. Namespaces opened from it should be closed before."""
        self.store.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _tree(self, name: str, options: Options | None = None) -> Tree:
        check_namespace_name(name)
        store = self.store.below(f"{PREFIX}{name}/")
        return Tree(store, self.environment, options or self.options, self._cache, name)


def declared_schema(schema: SchemaLike | None) -> Schema:
    """A schema from what users write: {"id": "uint64", "year": "int64", "v": reef.vector(128)}."""
    if schema is None:
        return Schema()
    if isinstance(schema, Schema):
        return schema
    kind: str | None = None
    attributes: dict[str, AttributeType] = {}
    for name, value in schema.items():
        if name == "id":
            kind = str(value)
            if kind not in ID_TYPES:
                raise InvalidInput(f'ids are "string" or "uint64", not {kind!r}')
        else:
            check_attribute_name(name)
            attributes[name] = value if isinstance(value, AttributeType) else parse_type(value)
    return Schema(kind, attributes)


def check_settings(settings: Settings) -> Settings:
    """The settings, or `InvalidInput`."""
    for name in ("retention", "grace", "window_keys", "window_seconds"):
        value = getattr(settings, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
            raise InvalidInput(f"the setting {name} must be a number from 0 on, not {value!r}")
    return settings

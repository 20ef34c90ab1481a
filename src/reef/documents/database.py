"""A database: a bucket, and the namespaces in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

from reef.data.ids import check_namespace_name
from reef.data.schema import ID_TYPES, Schema, check_attribute_name
from reef.data.types import AttributeType, parse_type
from reef.documents.names import Names
from reef.documents.namespace import Namespace
from reef.environment import SYSTEM, Environment
from reef.errors import (
    AlreadyExists,
    Corruption,
    InvalidInput,
    NamespaceDropped,
    NamespaceExists,
    NamespaceNotFound,
)
from reef.lsm.options import Options
from reef.lsm.repair.remains import drop_remains
from reef.lsm.retention.collect import collect
from reef.lsm.retention.collector import Collected
from reef.lsm.tree import Tree
from reef.lsm.upkeep.loop import Upkeeper
from reef.lsm.write.drop import create_again, drop, finish_drop
from reef.manifest import Manifest, Settings
from reef.segment import BlockCache
from reef.store import Store, open_store

PREFIX = "namespaces/"
_ATTEMPTS = 4

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
        self._names = Names(store)

    def namespaces(self) -> list[str]:
        """The names of all namespaces, sorted."""
        return self._names.in_use(PREFIX)

    def exists(self, name: str) -> bool:
        """Whether there is a namespace of that name."""
        return _is_there(self._tree(name))

    def create(
        self, name: str, *, schema: SchemaLike | None = None, settings: Settings | None = None
    ) -> None:
        """Make an empty namespace, or `NamespaceExists`. The first write may decide the schema.

        Where one was dropped, the new one goes on with higher generations and LSNs, and has
        nothing of the old one's: neither documents, schema and settings nor history.
        """
        tree = self._tree(name)
        declared = declared_schema(schema)
        checked = check_settings(settings or Settings())
        try:
            before = tree.register.head(ended=True).manifest
        except NamespaceNotFound:
            self._create_first(tree, declared, checked)
            return
        if not before.dropped and (not before.dropping or finish_drop(tree) is None):
            raise _exists(name)
        create_again(tree, declared, checked, partial(self._names.created, name))

    def _create_first(self, tree: Tree, schema: Schema, settings: Settings) -> None:
        name = tree.name
        for prefix in ("wal/", "segments/"):
            for info in tree.store.list(prefix):
                if _is_there(tree):  # somebody else made it meanwhile, and wrote
                    raise _exists(name)
                raise Corruption(
                    f"{PREFIX}{name}/manifest/",
                    f"objects such as {info.key} are there but no manifest; rebuild or drop it",
                )
        manifest = Manifest(
            generation=1,
            namespace=name,
            created_at=self.environment.now(),
            publisher=tree.identity,
            nonce=self.environment.nonce(),
            settings=settings,
        ).with_schema(schema)
        try:
            tree.register.create(manifest)
        except AlreadyExists:
            raise _exists(name) from None

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
        creating = mode == "w" and create
        for attempt in range(_ATTEMPTS):
            tree = self._tree(name, options)
            if creating and not _is_there(tree):
                with suppress(NamespaceExists):
                    self.create(name, schema=schema, settings=settings)
            try:
                opened = Namespace(
                    name, tree, self._upkeeper, writable=mode == "w", maintain=maintain
                )
                break
            except NamespaceNotFound:  # dropped meanwhile
                if not creating or attempt == _ATTEMPTS - 1:
                    raise
        if schema is not None:
            try:
                opened.declare(declared_schema(schema))
            except BaseException:
                opened.close()
                raise
        return opened

    def drop(self, name: str) -> None:
        """Drop a namespace. There is no way back.

        From now on it is not there for anybody, and whoever writes to it is fenced. Its objects are
        deleted when its retention has passed and `gc_dropped` comes by. The name may be used again
        at once.
        """
        tree = self._tree(name)
        try:
            self._names.created(name, tree.register.head().slot)
            ended = drop(tree)
        except NamespaceDropped:
            self._mark_dropped(tree)
            raise
        except (Corruption, NamespaceNotFound):
            ended = drop_remains(tree)
        if ended is not None and ended.manifest.dropped:
            self._names.dropped(name, ended.slot)
            if ended.manifest.patience <= 0:
                collect(tree, apply=True)

    def gc_dropped(self, *, apply: bool = False) -> dict[str, Collected]:
        """What is left of namespaces that were dropped, by name; delete what is due if `apply`."""
        found: dict[str, Collected] = {}
        for name in self._names.marked():
            tree = self._tree(name)
            try:
                seen = tree.register.head(ended=True).manifest
                if not (seen.dropped or seen.dropping) or finish_drop(tree) is None:
                    continue
                found[name] = collect(tree, apply=apply)
                if apply:
                    self._mark_dropped(tree)
            except NamespaceNotFound:
                continue
        return found

    def _mark_dropped(self, tree: Tree) -> None:
        """Let a name that was dropped be listed no more: the marker may be missing, or somebody
        was about to create it again and did not."""
        try:
            head = tree.register.head(ended=True)
        except NamespaceNotFound:
            return
        if not head.manifest.dropped or tree.name not in self.namespaces():
            return

        def edit(newest: Manifest) -> Manifest | None:
            return newest if newest.dropped else None

        head = tree.register.publish(edit, head, ended=True)
        if head.manifest.dropped:
            self._names.dropped(tree.name, head.slot)

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


def _is_there(tree: Tree) -> bool:
    try:
        if tree.register.head().manifest.dropping:
            tree.recover()  # only the log can tell
    except NamespaceNotFound:
        return False
    return True


def _exists(name: str) -> NamespaceExists:
    return NamespaceExists(f"there is a namespace {name!r} already")


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

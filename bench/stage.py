"""The stage of a run: a place, sizes, and loaded data that several measurements share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

import reef
from bench.data import Pairs, documents, pairs
from bench.peers import Lance, Slate
from bench.places import Place
from reef.store import Store
from reef.store.counting import CountingStore

BATCH = 1_000
DOCUMENT_BATCH = 10_000


@dataclass
class Stage:
    """What a measurement gets. Loaded data is made when first asked for."""

    place: Place
    quick: bool = False
    opened: list[reef.Namespace] = field(default_factory=list)

    def many(self, full: int, quick: int) -> int:
        """How many of something, at this thoroughness."""
        return quick if self.quick else full

    @cached_property
    def rows(self) -> int:
        """How many documents and pairs are loaded."""
        return self.many(200_000, 40_000)

    def connect(self, spot: str | None = None) -> reef.Database:
        """A database in a fresh spot, or in that one."""
        return reef.connect(self.place.reef(spot or self.place.fresh()))

    def namespace(self, maintain: bool = False) -> reef.Namespace:
        """A fresh namespace, open for writing."""
        return self.keep(self.connect().namespace("bench", maintain=maintain))

    def keep(self, namespace: reef.Namespace) -> reef.Namespace:
        """Have it closed at the end."""
        self.opened.append(namespace)
        return namespace

    @property
    def documents(self) -> pa.Table:
        """The documents."""
        return documents(self.rows)

    @property
    def pairs(self) -> Pairs:
        """The key-values."""
        return pairs(self.rows)

    @cached_property
    def counted(self) -> CountingStore:
        """The store under `reef_documents`, which counts requests."""
        return CountingStore(self.connect().store)

    @cached_property
    def reef_documents(self) -> reef.Namespace:
        """All documents in Reef, folded and compacted."""
        namespace = self.keep(reef.connect(self.counted).namespace("bench", maintain=False))
        for start in range(0, self.rows, DOCUMENT_BATCH):
            namespace.write(upserts=self.documents.slice(start, DOCUMENT_BATCH))
            namespace.index()
        settle(namespace)
        return namespace

    @cached_property
    def lance_documents(self) -> Lance:
        """All documents in LanceDB, compacted."""
        table = Lance(self.place, self.place.fresh(), self.documents.schema)
        table.add(self.documents, DOCUMENT_BATCH)
        table.compact()
        return table

    @cached_property
    def reef_pairs(self) -> reef.Namespace:
        """All key-values in Reef, folded and compacted."""
        namespace = self.namespace()
        for start in range(0, self.rows, 20 * BATCH):
            namespace.write(upserts=self.pairs.table(start, start + 20 * BATCH))
        settle(namespace)
        return namespace

    @cached_property
    def slate_pairs(self) -> Slate:
        """All key-values in SlateDB, in sorted tables, reopened."""
        database = Slate(self.place, self.place.fresh()).open()
        database.load(self.pairs, self.rows, BATCH, "end")
        database.fold()
        database.run_down()
        return database.open()

    def close(self) -> None:
        """Close everything that was opened."""
        for namespace in self.opened:
            namespace.close()
        if "slate_pairs" in self.__dict__:
            self.slate_pairs.close()


def fold_all(namespace: reef.Namespace) -> None:
    """Fold until nothing is left, whoever does it."""
    while namespace.status().unfolded_objects:
        try:
            namespace.index()
        except reef.ConcurrentPublication:
            continue


def settle(namespace: reef.Namespace) -> None:
    """Fold everything, and compact it into one run."""
    fold_all(namespace)
    namespace.compact(full=True)


def log_objects(store: Store) -> list[str]:
    """The keys of a fresh namespace's log objects, oldest first."""
    return [info.key for info in store.list("namespaces/bench/wal/")]

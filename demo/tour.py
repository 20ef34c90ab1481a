"""What the chapters share: the bucket, the open namespace, and the truth to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import reef
from demo.catalogue import Catalogue
from demo.stage import Stage
from reef.manifest import Manifest, manifest_register
from reef.store import CountingStore, ObjectInfo, Store, open_store

NAMESPACE = "films"


@dataclass
class Tour:
    """A run of the tour. `films` is what the namespace should hold, kept outside of Reef."""

    stage: Stage
    url: str
    catalogue: Catalogue
    store: CountingStore
    db: reef.Database
    films: pa.Table
    master: str = "local[*]"
    facts: dict[str, Any] = field(default_factory=dict)
    _open: reef.Namespace | None = None

    @property
    def options(self) -> reef.Options:
        """What the tour's handles work with."""
        return self.db.options

    @property
    def ns(self) -> reef.Namespace:
        """The films, open for writing. Upkeep is off, because the tour does it by hand."""
        if self._open is None:
            self._open = self.db.namespace(NAMESPACE, maintain=False)
        return self._open

    @property
    def place(self) -> Store:
        """Where the films lie in the bucket."""
        return self.store.below(f"namespaces/{NAMESPACE}/")

    def take_over(self, writer: reef.Namespace) -> None:
        """Go on with another writer."""
        if self._open is not None:
            self._open.close()
        self._open = writer

    def newcomer(self) -> tuple[reef.Database, CountingStore]:
        """A program that knows nothing but the bucket's address: no cache, counted from zero."""
        store = CountingStore(open_store(self.url))
        return reef.connect(store, options=self.options), store

    def manifest(self) -> Manifest:
        """The root of the films as it is in the bucket now."""
        return manifest_register(self.place, self.db.environment, "tour").head().manifest

    def objects(self) -> list[ObjectInfo]:
        """Everything of the films that lies in the bucket."""
        return list(self.place.list(""))

    def set_values(self, rows: np.ndarray, **values: pa.Array) -> None:
        """Change columns of the truth in some rows, which are in ascending order."""
        mask = np.zeros(self.films.num_rows, bool)
        mask[rows] = True
        for name, new in values.items():
            column = self.films[name].combine_chunks()
            changed = pc.replace_with_mask(column, pa.array(mask), new)
            self.films = self.films.set_column(self.films.column_names.index(name), name, changed)

    def is_intact(self, reading: Any) -> bool:
        """Whether every document, in every attribute, is what it should be."""
        found = reading.scan().to_table().select(self.films.column_names)
        return bool(found.cast(self.films.schema).equals(self.films))

    def close(self) -> None:
        """Let go of the bucket."""
        if self._open is not None:
            self._open.close()
        self.db.close()

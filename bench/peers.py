"""The peers, each used in the fastest way that its Python interface offers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from time import perf_counter
from typing import Any, TypeVar

import lancedb
import pyarrow as pa
from slatedb import uniffi as slate

from bench.data import Pairs
from bench.places import Place

Result = TypeVar("Result")

# Ways to load SlateDB durably, a batch at a time: how a batch is waited for, and settings.
LOADS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("write batch, flush", "flush", {}),
    ("write batch, flush, no compactor", "flush", {"compactor_options": None}),
    ("write batch, await_durable at 1 ms", "await", {"flush_interval": "1ms"}),
    ("write batch, one flush at the end", "end", {}),
    ("write batch, one flush at the end, no compactor", "end", {"compactor_options": None}),
    ("puts together, flush", "puts", {}),
)


class Slate:
    """A SlateDB database. Calls run on an event loop of its own; loops are timed inside of it."""

    def __init__(self, place: Place, path: str, **settings: Any) -> None:
        self._place = place
        self._path = path
        self._settings = settings
        self._runner = asyncio.Runner()
        self._database: Any = None
        self._reader: Any = None

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run one coroutine to its end."""
        return self._runner.run(work)

    def open(self) -> Slate:
        """Open for writing, from a fresh store handle."""
        self._database = self.run(self._build())
        return self

    async def _build(self) -> Any:
        builder = slate.DbBuilder(self._path, self._store())
        settings = slate.Settings.default()
        for name, value in self._settings.items():
            settings.set(name, json.dumps(value))
        builder.with_settings(settings)
        return await builder.build()

    def open_reader(self) -> None:
        """Open for reading, from a fresh store handle."""

        async def work() -> Any:
            return await slate.DbReaderBuilder(self._path, self._store()).build()

        self._reader = self.run(work())

    def close_reader(self) -> None:
        """Close the reader again."""
        self.run(self._reader.shutdown())
        self._reader = None

    def _store(self) -> Any:
        config = self._place.slate()
        kind = slate.ObjectStoreType
        builder = slate.ObjectStoreBuilder(kind.LOCAL if "local_path" in config else kind.S3)
        for name, value in config.items():
            builder.with_config(name, value)
        return builder.build()

    def load(self, pairs: Pairs, count: int, size: int, how: str) -> float:
        """Seconds to load the first pairs durably in batches."""

        async def work() -> float:
            database = self._database
            start = perf_counter()
            for low in range(0, count, size):
                rows = zip(
                    pairs.keys[low : low + size], pairs.values[low : low + size], strict=True
                )
                if how == "puts":
                    await asyncio.gather(*(database.put(key, value) for key, value in rows))
                    await database.flush()
                    continue
                batch = slate.WriteBatch()
                for key, value in rows:
                    batch.put(key, value)
                written = await database.write(batch)
                if how == "flush":
                    await database.flush()
                elif how == "await":
                    await written.await_durable()
            if how == "end":
                await database.flush()
            return perf_counter() - start

        return self.run(work())

    def fold(self) -> None:
        """Flush the memtable into sorted tables."""
        options = slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)
        self.run(self._database.flush_with_options(options))

    def gets(self, keys: Sequence[bytes]) -> float:
        """Seconds to get those keys, one after the other."""

        async def work() -> float:
            get = self._database.get
            start = perf_counter()
            for key in keys:
                await get(key)
            return perf_counter() - start

        return self.run(work())

    def has(self, key: bytes) -> bool:
        """Whether a key is there, for whichever of writer and reader is open."""
        return self.run((self._database or self._reader).get(key)) is not None

    def abandon(self) -> None:
        """Close without flushing the memtable, so that the log stays unfolded."""
        options = slate.CloseOptions(flush_type=None)
        self.run(self._database.shutdown_with_options(options))
        self._database = None

    def run_down(self) -> None:
        """Close in order; it may be opened again."""
        if self._database is not None:
            self.run(self._database.shutdown())
            self._database = None

    def close(self) -> None:
        """Close in order, for good."""
        self.run_down()
        self._runner.close()


class Lance:
    """A LanceDB table."""

    def __init__(self, place: Place, spot: str, schema: pa.Schema) -> None:
        address, options = place.lance(spot)
        self._connection = lancedb.connect(address, storage_options=options)
        self._table = self._connection.create_table("documents", schema=schema)

    def add(self, rows: pa.Table, size: int) -> None:
        """Append batches, each its own commit."""
        for start in range(0, rows.num_rows, size):
            self._table.add(rows.slice(start, size))

    def compact(self) -> None:
        """Bring the files into the shape that scans like best."""
        self._table.optimize()

    def scan_batches(self) -> int:
        """All columns as a stream of batches; how many rows there were."""
        reader = self._table.search().limit(1 << 31).to_batches()
        return sum(batch.num_rows for batch in reader)

    def scan_table(self) -> int:
        """All columns as one table; how many rows there were."""
        return int(self._table.to_arrow().num_rows)

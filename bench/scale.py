"""Costs that must not grow: each measured at a size where growth shows, against its bar.

    python -m bench.scale                 small: a few minutes, for noticing
    python -m bench.scale --full          at the sizes that the bars are meant for
    python -m bench.scale --only fold     one measurement (may be repeated)

Figures are medians. The exit code is 1 when a bar is missed at full size.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

import reef
from bench.scale_figure import Figure, timed
from bench.scale_root import root
from reef.data.filter import parse_filter
from reef.data.rows import DELETE, ID, KIND, LSN
from reef.lsm.memory_runs import NO_RUNS
from reef.lsm.options import MEBIBYTE
from reef.lsm.read.scan import Pruning
from reef.lsm.read.view import runs_of
from reef.lsm.upkeep.tombstones import tombstone_filter
from reef.segment import BlockCache, SegmentInfo, SegmentReader
from reef.store import MemoryStore, Store

_WORDS = np.array([f"word{n}" for n in range(2_000)])


Measurement = Callable[[bool, Path], Iterator[Figure]]


def resident(what: str) -> int:
    """This process's memory in bytes: VmRSS is that of now, VmHWM the most since it was reset."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(what)


def growth(call: Callable[[], Any]) -> int:
    """By how many bytes this process's memory grew at most during a call."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    call()
    return max(0, resident("VmHWM") - before)


def opened(store: Store | str, **options: Any) -> Any:
    """A namespace that does nothing by itself."""
    return reef.connect(store, options=reef.Options(**options)).namespace("n", maintain=False)


def small_rows(count: int) -> Iterator[pa.Table]:
    """Rows of about 60 bytes in id order."""
    chance = np.random.default_rng(1)
    for start in range(0, count, 200_000):
        some = min(200_000, count - start)
        numbers = pa.array(np.arange(start, start + some)).cast(pa.string())
        words = [pa.array(_WORDS[chance.integers(0, len(_WORDS), some)]) for _ in range(3)]
        yield pa.table(
            {
                "id": pc.utf8_lpad(numbers, 10, "0"),
                "n": pa.array(chance.integers(0, 10**6, some)),
                "f": pa.array(chance.random(some)),
                "t": pc.binary_join_element_wise(*words, " "),
            }
        )


def _segment(low: str, high: str, lsn: int = 1) -> SegmentInfo:
    return SegmentInfo(f"s{low}", 1, "r", 0, 1_000, 0, low, high, lsn, lsn, 10_000, 1_000, 0)


def pruning(full: bool, folder: Path) -> Iterator[Figure]:
    """One row group that statistics rule out, above a run of many segments."""
    count = 100_000 if full else 10_000
    store = MemoryStore()
    ns = opened(store)
    ns.load(next(small_rows(100_000)))
    ns.index()
    top = ns._tree.view.runs[0]
    cache = BlockCache(0)
    (below,) = runs_of(
        (_segment(f"{n * 100:010}", f"{n * 100 + 50:010}", 0) for n in range(count)),
        lambda info: SegmentReader(store, "", info, cache),
    )
    pruned = Pruning(parse_filter("n > 10000000"), [top, below], NO_RUNS)
    reader = top.readers[0]
    groups = list(reader.groups())
    taken = timed(lambda: [pruned.verdict(top, reader, group) for group in groups], 20)
    what = f"a row group ruled out, {count:,} segments"
    yield Figure(what, taken / len(groups) * 1e6, "µs", 50)


def tombstones(full: bool, folder: Path) -> Iterator[Figure]:
    """A slice of tombstones against the segments below it."""
    below = [_segment(f"{n * 100:010}", f"{n * 100 + 50:010}") for n in range(10_000)]
    keep = tombstone_filter(below)
    numbers = np.sort(np.random.default_rng(0).choice(1_000_000, 16_384, replace=False))
    rows = pa.RecordBatch.from_pydict(
        {
            ID: pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 10, "0"),
            LSN: pa.array(np.ones(len(numbers), np.uint64)),
            KIND: pa.array(np.full(len(numbers), DELETE, np.uint8)),
        }
    )
    taken = timed(lambda: keep(rows), 20)
    yield Figure("16,384 tombstones against 10,000 segments", taken * 1e3, "ms", 5)


def first_rows(full: bool, folder: Path) -> Iterator[Figure]:
    """A few rows out of a large memtable that was just written to."""
    ns = opened(MemoryStore())
    rows = next(small_rows(50_000)).take(pa.array(np.random.default_rng(0).permutation(50_000)))
    for start in range(0, 50_000, 500):
        ns.write(upserts=rows.slice(start, 500))
    taken = []
    for number in range(200):
        ns.write(upserts=[{"id": f"{number * 131:010}", "n": number}])
        start_time = perf_counter()
        list(ns.scan(limit=3))
        taken.append(perf_counter() - start_time)
    yield Figure("scan(limit=3) after a write, 50,000 unfolded", median(taken) * 1e3, "ms", 1)


def random_reads(full: bool, folder: Path) -> Iterator[Figure]:
    """Random reads of small rows on a folder, most of them of groups that are not cached."""
    count = 10_000_000 if full else 1_000_000
    address = str(folder / "rows")
    loading = opened(address)
    loading.load(small_rows(count))
    loading.index()
    loading.close()
    ids = [f"{n:010}" for n in np.random.default_rng(7).integers(0, count, 4_000)]
    # A cache that holds a small part of it, at either size.
    ns = opened(address, cache_bytes=(256 if full else 16) * MEBIBYTE)
    ns.get(ids[0])
    grown = growth(lambda: ns.get_many(ids[:2_000]))
    taken = timed(lambda: ns.get_many(ids[2_000:]), 3)
    name = f"of {count // 1_000_000}M small rows"
    yield Figure(f"get_many of 2,000 random ids {name}", taken, "s", 0.5)
    yield Figure(f"memory that it takes {name}", grown / 1e6, "MB", 200)
    times = []
    for id in ids[:2_000]:
        start = perf_counter()
        ns.get(id)
        times.append(perf_counter() - start)
    yield Figure(f"random get p50 {name}", median(times) * 1e3, "ms", 0.3)


def wide_folds(full: bool, folder: Path) -> Iterator[Figure]:
    """Folding a few rows with very many columns."""
    for rows, columns, bar in ((100, 2_000, 0.3), (20, 10_000, 1.5)):
        ns = opened(MemoryStore())
        for row in range(rows):
            document = {f"c{column}": row * column for column in range(columns)}
            ns.write(upserts=[{"id": f"{row:04}", **document}])
        taken = timed(ns.index, 1)
        yield Figure(f"fold of {rows} rows with {columns:,} columns", taken, "s", bar)


def vectors(full: bool, folder: Path) -> Iterator[Figure]:
    """Documents with vectors, cached, as NumPy arrays."""
    count = 20_000
    ns = opened(MemoryStore(), cache_bytes=1024 * MEBIBYTE)
    numbers = np.random.default_rng(0).random((count, 128), dtype=np.float32)
    ids = [f"{n:016}" for n in range(count)]
    ns.load(
        {
            "id": ids,
            "category": [f"c{n % 20}" for n in range(count)],
            "year": list(range(count)),
            "price": [n / 100 for n in range(count)],
            "text": ["a word or two " * 14] * count,
            "embedding": numbers,
        }
    )
    ns.index()
    some = [[ids[n] for n in np.random.default_rng(s).integers(0, count, 100)] for s in range(50)]
    for wanted in some:
        ns.get_many(wanted, vectors="numpy")
    taken = timed(lambda: [ns.get_many(wanted, vectors="numpy") for wanted in some], 9)
    yield Figure("get_many of documents with vectors, each", taken / 5_000 * 1e6, "µs", 5)


def large_documents(full: bool, folder: Path) -> Iterator[Figure]:
    """Documents of 70 kB: what reading and rewriting them takes beyond what is held anyway."""
    count = 40_000 if full else 4_000
    ns = opened(str(folder / "large"), cache_bytes=16 * MEBIBYTE)
    chance = np.random.default_rng(0)
    for start in range(0, count, 50):
        numbers = range(start, start + 50)
        texts = [chance.bytes(35_000).hex() for _ in numbers]
        ids = [f"{n * 7919 % count:06}" for n in numbers]
        ns.write(upserts=pa.table({"id": ids, "n": list(numbers), "s": texts}))
        if ns.status().unfolded_bytes >= 64 * MEBIBYTE:
            ns.index()
    while ns.index():
        pass
    name = f"{count:,} documents of 70 kB"
    scanned = growth(lambda: [None for _ in ns.scan()])
    yield Figure(f"memory to scan {name}", scanned / 1e6, "MB", 400)
    for start in range(0, count, 1_000):
        ns.write(patches=[{"id": f"{n:06}", "n": -n} for n in range(start, start + 1_000)])
    yield Figure(f"memory to fold patches of {name}", growth(ns.index) / 1e6, "MB", 600)
    compacted = growth(lambda: ns.compact(full=True))
    yield Figure(f"memory to compact {name}", compacted / 1e6, "MB", 600)


MEASUREMENTS: dict[str, Measurement] = {
    "root": root,
    "pruning": pruning,
    "tombstones": tombstones,
    "first-rows": first_rows,
    "random-reads": random_reads,
    "wide-folds": wide_folds,
    "vectors": vectors,
    "large-documents": large_documents,
}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="bench.scale", description=__doc__)
    parser.add_argument("--full", action="store_true", help="at the sizes that the bars are for")
    parser.add_argument("--only", action="append", choices=MEASUREMENTS, help="measure this")
    given = parser.parse_args()
    console = Console()
    figures: list[Figure] = []
    for name in given.only or MEASUREMENTS:
        with tempfile.TemporaryDirectory(prefix="reef-scale-") as folder:
            for figure in MEASUREMENTS[name](given.full, Path(folder)):
                console.print(*figure.cells(), sep="   ")
                figures.append(figure)
    table = Table("what", "figure", "bar", "")
    for figure in figures:
        table.add_row(*figure.cells(), style="green" if figure.met else "red")
    console.print(table)
    return int(given.full and not all(figure.met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())

"""What writing costs: commits, groups of threads, batches, loads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Barrier, Thread
from time import perf_counter

import reef
from bench.data import documents
from bench.peers import LOADS, Lance, Slate
from bench.report import Result
from bench.stage import BATCH, DOCUMENT_BATCH, Stage, fold_all, log_objects
from bench.timing import alternate, median, percentile

_THREADS = 64


def commit(stage: Stage) -> Iterator[Result]:
    """One-document commits against bare creates of as many bytes."""
    commits = stage.many(500, 150)
    rows = documents(1_000).to_pylist()
    database = stage.connect()
    namespace = stage.keep(database.namespace("bench", maintain=False))
    for row in rows[:20]:
        namespace.write(upserts=[row])
    payload = bytes(database.store.get(log_objects(database.store)[-1]).data)
    for number in range(20):
        database.store.create(f"bare/warm-{number:04d}", payload)
    ours, bare = alternate(
        commits,
        lambda number: namespace.write(upserts=[rows[20 + number]]),
        lambda number: database.store.create(f"bare/{number:08d}", payload),
    )
    yield Result(
        "commit",
        stage.place.name,
        f"one-document commit p50, {len(payload)} B",
        f"{median(ours) * 1e6:.0f} µs (p99 {percentile(ours, 99) * 1e6:.0f})",
        f"bare create {median(bare) * 1e6:.0f} µs (p99 {percentile(bare, 99) * 1e6:.0f})",
        median(ours) / median(bare),
        1.25,
    )


def threads(stage: Stage) -> Iterator[Result]:
    """Commits a second by 64 threads against one thread."""
    rows = documents(1_000).to_pylist()
    namespace = stage.namespace()
    alone, together = [], []
    each = stage.many(30, 8)
    for _ in range(stage.many(3, 1)):
        alone.append(_rate(namespace, rows, 1, stage.many(200, 60)))
        together.append(_rate(namespace, rows, _THREADS, each))
    yield Result(
        "threads",
        stage.place.name,
        f"{_THREADS} threads committing against one",
        f"{median(together):.0f} commits/s",
        f"one thread {median(alone):.0f} commits/s",
        median(together) / median(alone),
        15 if stage.place.name == "s3" else None,
        at_most=False,
    )


def _rate(namespace: reef.Namespace, rows: list[dict[str, object]], many: int, each: int) -> float:
    gate = Barrier(many + 1)

    def work(offset: int) -> None:
        gate.wait()
        for number in range(each):
            namespace.write(upserts=[rows[(offset * each + number) % len(rows)]])

    workers = [Thread(target=work, args=(offset,)) for offset in range(many)]
    for worker in workers:
        worker.start()
    gate.wait()
    start = perf_counter()
    for worker in workers:
        worker.join()
    return many * each / (perf_counter() - start)


def batch(stage: Stage) -> Iterator[Result]:
    """Batches of 1,000 documents against bare creates of the same bytes."""
    rounds = stage.many(40, 10)
    table = documents(50_000)
    shapes = [table.slice(start, BATCH) for start in range(0, 50 * BATCH, BATCH)]
    as_dicts = [shape.to_pylist() for shape in shapes[:10]]
    database = stage.connect()
    namespace = stage.keep(database.namespace("bench", maintain=False))
    namespace.write(upserts=shapes[0])
    namespace.write(upserts=as_dicts[0])
    payload = bytes(database.store.get(log_objects(database.store)[-1]).data)
    names = count()
    arrow, dicts, bare = alternate(
        rounds,
        lambda number: namespace.write(upserts=shapes[number % 50]),
        lambda number: namespace.write(upserts=as_dicts[number % 10]),
        lambda number: database.store.create(f"bare/{next(names):08d}", payload),
    )
    against = f"bare create {median(bare) * 1e3:.2f} ms"
    for shape, times, bar in (("Arrow table", arrow, 1.5), ("list of dicts", dicts, None)):
        yield Result(
            "batch",
            stage.place.name,
            f"1,000 documents as {shape} p50, {len(payload) // 1000} kB",
            f"{median(times) * 1e3:.2f} ms",
            against,
            median(times) / median(bare),
            bar,
        )


def load_pairs(stage: Stage) -> Iterator[Result]:
    """Key-values in batches of 1,000 against SlateDB's fastest way."""
    pairs, total = stage.pairs, stage.rows
    trial = stage.many(30_000, 10_000)
    rates: dict[str, float] = {}
    for title, how, settings in LOADS:
        peer = Slate(stage.place, stage.place.fresh(), **settings).open()
        rates[title] = trial / peer.load(pairs, trial, BATCH, how)
        peer.close()
    best = max(rates, key=rates.__getitem__)
    how, settings = next((how, settings) for title, how, settings in LOADS if title == best)
    theirs: list[float] = []
    lists: list[float] = []
    tables: list[float] = []
    for number in range(stage.many(3, 1)):
        if number == 0:
            peer = Slate(stage.place, stage.place.fresh(), **settings).open()
            theirs.append(total / peer.load(pairs, total, BATCH, how))
            peer.close()
        for rows_of, found in ((pairs.columns, lists), (pairs.table, tables)):
            batches = [rows_of(start, start + BATCH) for start in range(0, total, BATCH)]
            with stage.connect().namespace("bench") as namespace:
                start_time = perf_counter()
                for rows in batches:
                    namespace.write(upserts=rows)
                found.append(total / (perf_counter() - start_time))
    peer_rate = max(median(theirs), rates[best])
    for shape, found, bar in (("lists", lists, 15.0), ("Arrow", tables, None)):
        yield Result(
            "load-pairs",
            stage.place.name,
            f"load of {total:,} × (16 B, 100 B) in batches of 1,000, from {shape}",
            f"{median(found) / 1e3:.0f}k/s",
            f"SlateDB {peer_rate / 1e3:.1f}k/s",
            median(found) / peer_rate,
            bar,
            at_most=False,
            note=best if bar else "",
        )


def load_documents(stage: Stage) -> Iterator[Result]:
    """Documents in batches of 10,000, durable and folded, against LanceDB's add."""
    table = stage.documents
    batches = [table.slice(start, DOCUMENT_BATCH) for start in range(0, stage.rows, DOCUMENT_BATCH)]
    written: list[float] = []
    folded: list[float] = []

    def ours(_: int) -> None:
        namespace = stage.connect().namespace("bench")
        start = perf_counter()
        for rows in batches:
            namespace.write(upserts=rows)
        written.append(perf_counter() - start)
        fold_all(namespace)
        folded.append(perf_counter() - start)
        namespace.close()

    def theirs(_: int) -> None:
        Lance(stage.place, stage.place.fresh(), table.schema).add(table, DOCUMENT_BATCH)

    _, lance_times = alternate(stage.many(3, 1), ours, theirs)
    reef_times = folded
    yield Result(
        "load-documents",
        stage.place.name,
        f"{stage.rows:,} documents in batches of 10,000, durable and folded",
        f"{stage.rows / median(reef_times) / 1e3:.0f}k/s"
        f" ({stage.rows / median(written) / 1e3:.0f}k/s until durable)",
        f"LanceDB add {stage.rows / median(lance_times) / 1e3:.0f}k/s",
        median(lance_times) / median(reef_times),
        1.0,
        at_most=False,
    )

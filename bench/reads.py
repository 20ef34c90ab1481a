"""What reading costs: point reads, scans, opening."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import reef
from bench.data import pairs
from bench.peers import Slate
from bench.report import Result
from bench.stage import BATCH, Stage
from bench.timing import alternate, median

_LOG_OBJECTS = 200


def get(stage: Stage) -> Iterator[Result]:
    """Warm point reads by one thread against SlateDB."""
    namespace, peer = stage.reef_pairs, stage.slate_pairs
    wanted = stage.many(4_000, 1_000)
    data = stage.pairs
    for title, ids in (
        ("hit", data.ids[:wanted]),
        ("miss", [identity[:-1] + "x" for identity in data.ids[:wanted]]),
    ):
        keys = [identity.encode() for identity in ids]
        assert (namespace.get(ids[0]) is not None) == (title == "hit")
        ours, theirs = [], []
        for number in range(stage.many(6, 3)):
            start = perf_counter()
            for identity in ids:
                namespace.get(identity)
            taken = perf_counter() - start
            other = peer.gets(keys)
            if number:
                ours.append(taken / wanted)
                theirs.append(other / wanted)
        yield Result(
            "get",
            stage.place.name,
            f"warm get, one thread, {title}",
            f"{median(ours) * 1e6:.2f} µs",
            f"SlateDB {median(theirs) * 1e6:.0f} µs",
            median(theirs) / median(ours),
            8,
            at_most=False,
        )


def get_many(stage: Stage) -> Iterator[Result]:
    """Warm reads of 100 ids at a time."""
    for title, namespace, ids in (
        ("pairs", stage.reef_pairs, stage.pairs.ids),
        ("documents", stage.reef_documents, stage.documents.column("id").to_pylist()),
    ):
        calls = stage.many(100, 30)
        batches = [ids[start : start + 100] for start in range(0, 100 * calls, 100)]
        for some in batches:
            assert None not in namespace.get_many(some)
        taken = []
        for some in 3 * batches:
            start = perf_counter()
            namespace.get_many(some)
            taken.append(perf_counter() - start)
        yield Result(
            "get-many",
            stage.place.name,
            f"get_many of 100 ids, warm, {title}",
            f"{median(taken) * 1e6:.0f} µs a call",
            "100 ids",
            median(taken) * 1e4,
            5,
            unit="µs/id",
        )


def scan(stage: Stage) -> Iterator[Result]:
    """Full scans against LanceDB, and what a scan of two columns fetches."""
    assert stage.reef_documents
    peer = stage.lance_documents
    # Nothing of the data is in the cache of a new connection, and scans put nothing there.
    reader = stage.keep(reef.connect(stage.counted).namespace("bench", "r"))

    def ours(_: int) -> None:
        assert sum(batch.num_rows for batch in reader.scan()) == stage.rows

    def theirs(_: int) -> None:
        assert peer.scan_batches() == stage.rows

    def theirs_whole(_: int) -> None:
        assert peer.scan_table() == stage.rows

    taken = alternate(stage.many(7, 3), ours, theirs, theirs_whole)
    reef_time, batches_time, whole_time = map(median, taken)
    lance_time = min(batches_time, whole_time)
    yield Result(
        "scan",
        stage.place.name,
        f"full scan of {stage.rows:,} documents, all columns",
        f"{stage.rows / reef_time / 1e3:.0f}k/s",
        f"LanceDB {stage.rows / lance_time / 1e3:.0f}k/s",
        lance_time / reef_time,
        1.2,
        at_most=False,
    )
    columns = ("year", "price")
    needed = _column_bytes(reader, columns)
    stage.counted.reset()
    assert sum(batch.num_rows for batch in reader.scan(columns=columns)) == stage.rows
    fetched = stage.counted.counts().bytes_read
    yield Result(
        "scan",
        stage.place.name,
        "bytes fetched by a scan of two columns against the bytes of their blocks",
        f"{fetched:,} B",
        f"blocks {needed:,} B",
        fetched / needed,
        1.15,
    )


def _column_bytes(namespace: reef.Namespace, columns: tuple[str, ...]) -> int:
    """The bytes of the key blocks and of those columns' blocks, in all segments."""
    total = 0
    for run in namespace._current().runs:
        for segment in run.readers:
            index = segment.tail().index
            for group in range(index.count):
                places = index.places(group)
                total += sum(places[name].length for name in (None, *columns) if name in places)
    return total


def open_unfolded(stage: Stage) -> Iterator[Result]:
    """Opening with 200 log objects that were not folded, of one pair and of a batch each."""
    for each in (1, BATCH):
        yield from _open_unfolded(stage, each, stage.many(7, 3))


def _open_unfolded(stage: Stage, each: int, rounds: int) -> Iterator[Result]:
    total = _LOG_OBJECTS * each
    data = pairs(total)
    spot = stage.place.fresh()
    with stage.connect(spot).namespace("bench", maintain=False) as namespace:
        for start in range(0, total, each):
            namespace.write(upserts=data.table(start, start + each))
    peer = Slate(stage.place, stage.place.fresh(), compactor_options=None).open()
    peer.load(data, total, each, "flush")
    peer.abandon()
    for mode in ("r", "w"):
        ours, theirs = [], []
        for _ in range(rounds):
            start_time = perf_counter()
            opened = stage.connect(spot).namespace("bench", mode, maintain=False)
            ours.append(perf_counter() - start_time)
            assert opened.get(data.ids[0]) is not None
            assert opened.status().unfolded_objects >= _LOG_OBJECTS
            opened.close()
            start_time = perf_counter()
            if mode == "r":
                peer.open_reader()
            else:
                peer.open()
            theirs.append(perf_counter() - start_time)
            assert peer.has(data.keys[0])
            if mode == "r":
                peer.close_reader()
            else:
                peer.abandon()
        yield Result(
            "open",
            stage.place.name,
            f'open with {_LOG_OBJECTS} unfolded log objects of {each:,}, mode "{mode}"',
            f"{median(ours) * 1e3:.1f} ms",
            f"SlateDB {median(theirs) * 1e3:.0f} ms",
            median(theirs) / median(ours),
            3,
            at_most=False,
        )
    peer.close()

"""Chapter four: what a read costs when the bucket is all there is."""

from __future__ import annotations

import time

import numpy as np
import pyarrow.compute as pc

from demo.drawing import duration, facts, plural, size
from demo.tour import NAMESPACE, Tour

_COLD_READS = 40
_WARM_READS = 4_000
_ABSENT_READS = 200


def read(tour: Tour) -> None:
    """Point reads, scans that skip, scans of few columns."""
    tour.stage.chapter(
        "Reading",
        "Readers need nothing but the bucket, and there may be any number of them. On a real"
        " object store each request costs milliseconds and money: so Reef counts them, and so do"
        " we.",
    )
    _points(tour)
    _scans(tour)


def _points(tour: Tour) -> None:
    stage = tour.stage
    random = np.random.default_rng(11)
    ids = tour.films["id"]
    opening, cold, requests = [], [], []
    right = True
    for row in random.integers(0, len(ids), _COLD_READS).tolist():
        database, store = tour.newcomer()
        began = time.perf_counter()
        reader = database.namespace(NAMESPACE, "r")
        opening.append(time.perf_counter() - began)
        opened = store.reset().requests
        began = time.perf_counter()
        document = reader.get(ids[row].as_py())
        cold.append(time.perf_counter() - began)
        requests.append(store.counts().requests)
        right &= document is not None and document["title"] == tour.films["title"][row].as_py()
        reader.close()
        database.close()
    database, store = tour.newcomer()
    reader = database.namespace(NAMESPACE, "r")
    chosen = [ids[row].as_py() for row in random.integers(0, len(ids), _WARM_READS).tolist()]
    with stage.working("warming up"):
        reader.get_many(chosen)
    store.reset()
    warm = []
    for id in chosen:
        began = time.perf_counter()
        reader.get(id)
        warm.append(time.perf_counter() - began)
    warm_requests = _store_reads(store.reset())
    nobody = [f"{id}-director's-cut" for id in chosen[:_ABSENT_READS]]
    misses = 0
    for id in nobody:
        misses += reader.get(id) is None
    absent_requests = _store_reads(store.reset())
    reader.close()
    database.close()
    tour.facts["cold_requests"] = max(requests)
    rows = [
        ["open a reader", *_quantiles(opening), str(opened)],
        ["read a document, nothing cached", *_quantiles(cold), str(max(requests))],
        ["read a document, warm", *_quantiles(warm), str(warm_requests)],
    ]
    stage.show(facts(rows, ["", "median", "99 %", "requests"]))
    stage.claim(
        right and max(requests) <= 2,
        f"{_COLD_READS} documents picked at random, each by a newcomer: never more than"
        f" {max(requests)} requests (the segment's index, then the row group)",
    )
    stage.claim(
        misses == _ABSENT_READS and absent_requests < _ABSENT_READS // 10,
        f"{_ABSENT_READS} ids that are not there: {plural(absent_requests, 'request')}; Bloom"
        " filters say no without looking",
    )


def _store_reads(counts: object) -> int:
    """Requests for data: a reader also looks for news once a second, which is a listing."""
    return int(getattr(counts, "get_range", 0))


def _quantiles(seconds: list[float]) -> tuple[str, str]:
    median, high = np.quantile(seconds, [0.5, 0.99])
    return duration(float(median)), duration(float(high))


def _scans(tour: Tour) -> None:
    stage, films = tour.stage, tour.films
    text = "year = 1977 and category = 'horror'"
    stage.code(
        f'films.scan(filter="{text}",',
        '           columns=["title", "rating"])',
        'films.scan(columns=["title", "rating"])',
        "films.scan()",
    )
    wanted = films.filter(
        pc.and_(pc.equal(films["year"], 1977), pc.equal(films["category"], "horror"))
    )
    total = tour.facts["segment_bytes"]
    rows = []
    found = {}
    plans = {
        "that filter, two columns": {"filter": text, "columns": ["title", "rating"]},
        "all films, two columns": {"columns": ["title", "rating"]},
        "all films, everything": {},
    }
    read = {}
    for name, plan in plans.items():
        database, store = tour.newcomer()
        reader = database.namespace(NAMESPACE, "r")
        store.reset()
        with stage.working(name):
            began = time.perf_counter()
            found[name] = reader.scan(**plan).to_table()  # type: ignore[arg-type]
            seconds = time.perf_counter() - began
        counts = store.counts()
        read[name] = counts.bytes_read
        rows.append(
            [
                name,
                f"{found[name].num_rows:,}",
                duration(seconds),
                str(counts.get_range),
                size(counts.bytes_read),
                f"{100 * counts.bytes_read / total:.1f} %",
            ]
        )
        reader.close()
        database.close()
    stage.show(facts(rows, ["", "rows", "time", "requests", "bytes", "of tree"]))
    filtered, projected, _ = (found[name] for name in plans)
    share = 100 * read["that filter, two columns"] / total
    tour.facts["filtered_rows"] = filtered.num_rows
    tour.facts["filtered_share"] = share
    stage.claim(
        share < 50 and filtered.equals(wanted.select(["title", "rating"]).cast(filtered.schema)),
        f"the filter kept the right {filtered.num_rows} films, and fetched {share:.1f} % of the"
        " tree: row groups that their statistics rule out are never asked for",
    )
    share = 100 * read["all films, two columns"] / total
    stage.claim(
        share < 50 and projected.equals(films.select(["title", "rating"]).cast(projected.schema)),
        f"two of {films.num_columns} columns cost {share:.0f} % of the bytes: columns lie apart",
    )

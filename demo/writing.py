"""Chapters one and two: filling a bucket, and writes that say what they expect."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import reef
from demo.drawing import bucket_tree, duration, size
from demo.tour import Tour

_NOTES = {
    "hint.json": "where to look first",
    "manifest": "the root: the newest decides",
    "wal": "the log: one object a commit",
    "segments": "sorted, immutable, compressed, checksummed",
}


def fill(tour: Tour) -> None:
    """Write the catalogue, batch by batch."""
    stage, catalogue = tour.stage, tour.catalogue
    films = tour.films
    stage.chapter(
        "Filling a bucket",
        "A bucket is anything that can put an object if its name is free: S3 and its like, or a"
        " folder. There is no server. A write is durable when one such PUT has returned.",
    )
    stage.code(
        f'db = reef.connect("{tour.url}")',
        'films = db.namespace("films")',
        "films.write(upserts=arrow_table)      "
        f"# {catalogue.batches} times, {catalogue.batch_rows:,} documents each",
    )
    stage.claim(not tour.objects(), "the bucket is empty")
    namespace = tour.ns
    tour.store.reset()
    seconds: list[float] = []
    receipts: list[reef.Receipt] = []
    for batch in stage.track(catalogue.arrivals(), catalogue.batches, "writing"):
        began = time.perf_counter()
        receipts.append(namespace.write(upserts=batch))
        seconds.append(time.perf_counter() - began)
    counts = tour.store.counts()
    total = sum(seconds)
    tour.facts["written"] = sum(receipt.upserted for receipt in receipts)
    tour.facts["rows_per_second"] = round(films.num_rows / total)
    stage.claim(
        tour.facts["written"] == films.num_rows,
        f"{films.num_rows:,} documents ({size(films.nbytes)} as Arrow; text, tags, timestamps,"
        f" a 32-dimensional embedding each) written and durable in [bold]{duration(total)}[/bold]:"
        f" {films.num_rows / total:,.0f} a second",
    )
    stage.claim(
        counts.create == counts.writes == catalogue.batches,
        f"that took {counts.writes} writes: one PUT per batch of {catalogue.batch_rows:,},"
        f" {duration(float(np.median(seconds)))} each, and nothing else",
    )
    stage.show(bucket_tree(tour.place.url, tour.objects(), _NOTES))
    _look(tour)
    tour.facts["count"] = namespace.count()
    stage.claim(
        tour.facts["count"] == films.num_rows,
        f"films.count() is {tour.facts['count']:,}: all of this works from the log alone",
    )


def _look(tour: Tour) -> None:
    """Show one document: of a film with tags, not rated yet, from a feed that knows no prices."""
    stage, films = tour.stage, tour.films
    fits = pc.and_(
        pc.and_(films["rating"].is_null(), films["price"].is_null()), films["tags"].is_valid()
    )
    row = int(np.flatnonzero(fits.to_numpy())[-1])
    original = films.slice(row, 1).to_pylist()[0]
    del original["price"]
    document = tour.ns.get(original["id"]) or {}
    stage.code(f'films.get("{original["id"]}")')
    lines = Table.grid(padding=(0, 2, 0, 0))
    for name, value in document.items():
        shown = value.isoformat() if isinstance(value, datetime) else json.dumps(value)
        if name == "embedding":
            shown = f"[{', '.join(f'{number:.3f}' for number in value[:5])}, …]"
        lines.add_row(Text(name, style="bold"), Text(shown, overflow="ellipsis", no_wrap=True))
    stage.show(lines)
    stage.claim(
        document == original,
        "a document comes back as it went in: a rating that is null is null, and a price that its"
        " feed never had is absent",
    )


def agree(tour: Tour) -> None:
    """Patches, a race, a retry."""
    stage = tour.stage
    stage.chapter(
        "Writes that say what they expect",
        "Patches touch only the attributes they name. Conditions are decided at the commit, so"
        " two clients cannot overwrite each other unseen. A retry with the same key happens once.",
    )
    _patch(tour)
    _race(tour)
    _retry(tour)


def _patch(tour: Tour) -> None:
    stage, films = tour.stage, tour.films
    rows = np.sort(np.random.default_rng(7).choice(films.num_rows, films.num_rows // 50, False))
    ratings = pa.array(np.full(len(rows), 7.7))
    patches = pa.table({"id": films["id"].take(pa.array(rows)), "rating": ratings})
    receipt = tour.ns.write(patches=patches)
    tour.set_values(rows, rating=ratings)
    tour.facts["patched"] = receipt.patched
    some = films["id"][int(rows[0])].as_py()
    document = tour.ns.get(some) or {}
    stage.claim(
        receipt.patched == len(rows)
        and document["rating"] == 7.7
        and document["title"] == films["title"][int(rows[0])].as_py(),
        f"{receipt.patched:,} films got a new rating by one patch; their other attributes stand",
    )


def _race(tour: Tour) -> None:
    stage, namespace = tour.stage, tour.ns
    wanted = "film-000042"
    stage.code(
        f'films.write(patches=[{{"id": "{wanted}", "price": …, "version": 2}}],',
        "            condition=reef.if_equal(version=1))   # two clients at once",
    )
    start = threading.Barrier(2)
    outcomes: dict[str, Any] = {}

    def client(name: str, price: float) -> None:
        start.wait()
        try:
            outcomes[name] = namespace.write(
                patches=[{"id": wanted, "price": price, "version": 2}],
                condition=reef.if_equal(version=1),
            )
        except reef.ConditionFailed as refused:
            outcomes[name] = refused

    prices = {"Ada": 3.5, "Bob": 4.5}
    threads = [threading.Thread(target=client, args=pair) for pair in prices.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [name for name, what in outcomes.items() if isinstance(what, reef.Receipt)]
    losers = [name for name, what in outcomes.items() if isinstance(what, reef.ConditionFailed)]
    document = namespace.get(wanted) or {}
    fair = len(winners) == len(losers) == 1 and document["price"] == prices[winners[0]]
    loser = losers[0] if losers else "nobody"
    winner = winners[0] if winners else "nobody"
    tour.facts["race_winners"] = len(winners)
    tour.set_values(
        np.array([42]),
        price=pa.array([document["price"]]),
        version=pa.array([document["version"]]),
    )
    stage.claim(
        fair,
        f"{winner} won, and the price is {document['price']}; {loser} was told:"
        f" [italic]ConditionFailed: {escape(str(outcomes.get(loser)))}[/italic]",
    )


def _retry(tour: Tour) -> None:
    stage, namespace = tour.stage, tour.ns
    film = {**(namespace.get("film-000007") or {}), "title": "The Patient Retry"}
    first = namespace.write(upserts=[film], idempotency_key="request-17")
    tour.set_values(np.array([7]), title=pa.array([film["title"]]))
    slot = namespace.lsn
    tour.store.reset()
    again = namespace.write(upserts=[film], idempotency_key="request-17")
    written = tour.store.counts().writes
    tour.facts["retry_writes"] = written
    stage.claim(
        again == first and namespace.lsn == slot and written == 0,
        "a write that is sent again, as if its answer had been lost, with the same"
        f" idempotency_key gets the first receipt (log slot {first.lsn}); nothing is written twice",
    )

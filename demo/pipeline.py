"""The chapter on Spark: raw files in, cleaned, loaded, folded, queried, and streamed out."""

from __future__ import annotations

import importlib
import random
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reef
import reef.spark
from demo.drawing import duration, facts, plural, size
from demo.tour import NAMESPACE, Tour

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATINGS = "ratings"
_FILES = 4
_EACH = 5
_SEED = 7


def prepare(tour: Tour) -> None:
    """Install Spark, if it is not there: only this part needs it."""
    if find_spec("pyspark") is not None and find_spec("pandas") is not None:
        return
    bootstrap = Path(__file__).resolve().parent.parent / "script" / "bootstrap"
    with tour.stage.working("installing Spark, about 500 MB, for the second part"):
        subprocess.run([str(bootstrap), "--spark"], check=True, stdout=subprocess.DEVNULL)
    importlib.invalidate_caches()


def pipeline(tour: Tour) -> None:
    """Ratings as they come from outside, through Spark and into the bucket."""
    stage = tour.stage
    stage.chapter(
        "A pipeline",
        "What touches all the data runs on Spark: the driver plans, tasks read and write objects of"
        f" the bucket themselves, and one conditional PUT commits. Here on {tour.master}; on a"
        " cluster with --master spark://host:7077, and nothing else changes.",
    )
    folder = Path(tempfile.mkdtemp(prefix="reef-demo-"))
    try:
        with stage.working("starting Spark"):
            session = reef.spark.session(tour.master)
        try:
            _tell(tour, session, folder)
        finally:
            session.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tell(tour: Tour, session: SparkSession, folder: Path) -> None:
    truth = _write_raw(folder / "raw", tour.films.num_rows)
    cleaned = _clean(tour, session, folder / "raw", len(truth))
    _load(tour, session, cleaned, truth)
    _upkeep(tour, session)
    _query(tour, session, truth)
    _stream(tour, session, folder)


def _write_raw(folder: Path, films: int) -> dict[str, tuple[str, int, int]]:
    """CSV files as people send them: with lines twice, corrected later, without an id, or with
    stars that are no number. Returns what is in them once they are put right."""
    folder.mkdir()
    chance = random.Random(_SEED)
    truth: dict[str, tuple[str, int, int]] = {}
    for file in range(_FILES):
        lines = ["id,film,stars,sent"]
        for number in range(films * _EACH // 10 // _FILES):
            id = f"r-{file}-{number:06d}"
            film = f"film-{chance.randrange(films):06d}"
            for sent in range(1 + (number % 10 == 0)):
                stars = chance.randint(1, 5)
                lines.append(f"{id},{film},{stars},{sent}")
                truth[id] = (film, stars, sent)
        lines += [",film-000001,3,0", f"r-{file}-bad,film-000001,many,0"]
        chance.shuffle(body := lines[1:])
        (folder / f"ratings-{file}.csv").write_text("\n".join([lines[0], *body]) + "\n")
    return truth


def _clean(tour: Tour, session: SparkSession, folder: Path, expected: int) -> DataFrame:
    stage = tour.stage
    raw = session.read.option("header", "true").csv(str(folder))
    kept = raw.where("id is not null").selectExpr(
        "id", "film", "try_cast(stars as bigint) as stars", "cast(sent as bigint) as sent"
    )
    kept = kept.where("stars between 1 and 5")
    lines, left = raw.count(), kept.count()
    tour.facts["raw_lines"] = lines
    stage.code(
        'raw = spark.read.option("header", "true").csv("raw/")',
        'clean = raw.where("id is not null and try_cast(stars as bigint) between 1 and 5")',
    )
    stage.claim(
        lines - left == 2 * _FILES and left > expected,
        f"{lines:,} lines in {_FILES} files; {lines - left} of them make no sense and are dropped,"
        f" {left - expected:,} correct an earlier one",
    )
    return kept


def _load(
    tour: Tour, session: SparkSession, cleaned: DataFrame, truth: dict[str, tuple[str, int, int]]
) -> None:
    stage = tour.stage
    stage.code(f'reef.spark.load(clean, bucket, "{RATINGS}", order_by="sent", key="import-1")')
    began = time.perf_counter()
    with stage.working("loading"):
        done = reef.spark.load(cleaned, tour.url, RATINGS, order_by="sent", key="import-1")
    seconds = time.perf_counter() - began
    tour.facts["ratings"] = done.rows
    with tour.db.namespace(RATINGS, "r") as ns:
        found = {
            row["id"]: (row["film"], row["stars"], row["sent"]) for row in ns.scan().documents()
        }
        stage.claim(
            found == truth and ns.lsn == 1,
            f"{done.rows:,} ratings in {plural(done.segments, 'segment')} ({size(done.bytes)})"
            f" with one log record, each the last that was sent ({duration(seconds)})",
        )
        again = reef.spark.load(cleaned, tour.url, RATINGS, order_by="sent", key="import-1")
        ns.refresh()
        stage.claim(
            again.replayed and ns.lsn == 1, "loaded again with the same key: nothing is written"
        )


def _upkeep(tour: Tour, session: SparkSession) -> None:
    stage = tour.stage
    with tour.db.namespace(RATINGS, maintain=False) as writer:
        some = [str(row["id"]) for row in writer.scan(columns=["id"], limit=1000).documents()]
        writer.write(patches=[{"id": id, "checked": True} for id in some])
        writer.write(deletes=some[:10])
        tour.facts["ratings"] -= 10
        expected = writer.scan().to_table()
        stage.code(
            f'reef.spark.fold(bucket, "{RATINGS}")',
            f'reef.spark.compact(bucket, "{RATINGS}", full=True)',
            f'reef.spark.verify(bucket, "{RATINGS}", deep=True)',
        )
        began = time.perf_counter()
        with stage.working("folding and merging"):
            folds = reef.spark.fold(tour.url, RATINGS, session=session)
            (merged,) = reef.spark.compact(tour.url, RATINGS, full=True, session=session)
            report = reef.spark.verify(tour.url, RATINGS, session=session)
        seconds = time.perf_counter() - began
        writer.write(upserts=[{"id": "after", "film": "film-000001", "stars": 5, "sent": 9}])
        found = writer.scan(stop="b").to_table().num_rows, writer.scan(start="b").to_table()
        stage.claim(
            bool(folds) and report.sound and found == (1, expected),
            f"{plural(merged.inputs, 'segment')} became {merged.outputs} and every block is sound;"
            f" the live writer went on through it ({duration(seconds)})",
        )
        writer.write(deletes=["after"])


def _query(tour: Tour, session: SparkSession, truth: dict[str, tuple[str, int, int]]) -> None:
    stage = tour.stage
    reef.spark.read(tour.url, NAMESPACE, columns=["id", "category"], session=session) \
        .createOrReplaceTempView("films")  # fmt: skip
    reef.spark.read(tour.url, RATINGS, session=session).createOrReplaceTempView("ratings")
    question = (
        "select category, count(*) as ratings, avg(stars) as stars"
        " from ratings join films on ratings.film = films.id group by category order by stars desc"
    )
    stage.code(f'spark.sql("{question[:60]}', f'           {question[60:]}")')
    began = time.perf_counter()
    with stage.working("asking Spark SQL"):
        answer = session.sql(question).collect()
    seconds = time.perf_counter() - began
    rows = [[row.category, f"{row.ratings:,}", f"{row.stars:.3f}"] for row in answer]
    stage.show(facts(rows[:3], ["category", "ratings", "stars"]))
    with tour.db.namespace(RATINGS, "r") as ns:
        documents = ns.scan(columns=["stars"]).to_table()
    total = sum(row.ratings for row in answer)
    stars = sum(row.ratings * row.stars for row in answer)
    stage.claim(
        total == documents.num_rows == tour.facts["ratings"]
        and abs(stars - sum(documents["stars"].to_pylist())) < 1e-3,
        f"the join counts every rating once: {total:,} ({duration(seconds)})",
    )


def _stream(tour: Tour, session: SparkSession, folder: Path) -> None:
    stage = tour.stage
    stage.code(
        'feed = spark.readStream.format("reef").option("readChangeFeed", "true").load()',
        'feed.writeStream.format("parquet").trigger(availableNow=True).start("changes/")',
    )

    def run() -> int:
        feed = (
            session.readStream.format("reef")
            .options(bucket=tour.url, namespace=RATINGS, readChangeFeed="true")
            .load()
        )
        query = (
            feed.writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "changes"))
        )
        query.awaitTermination()
        return session.read.parquet(str(folder / "changes")).count()

    with stage.working("streaming"):
        first = run()
    with tour.db.namespace(RATINGS, "r") as ns:
        changes = _count(ns.changes())
    stage.claim(
        first == changes, f"the log as a stream: {first:,} changes, every one since the beginning"
    )
    with tour.db.namespace(RATINGS, maintain=False) as writer:
        writer.write(upserts=[{"id": "late", "film": "film-000002", "stars": 4, "sent": 0}])
    with stage.working("streaming"):
        second = run()
    tour.facts["streamed"] = second
    stage.claim(
        second == first + 1, "and the same stream, started again, goes on with the one that is new"
    )


def _count(items: Any) -> int:
    return sum(1 for _ in items)

"""Reef through Spark against Spark's own Parquet, on the same rows in one run.

    python -m bench.spark [--only NAME]… [--rows N] [--quick] [--json FILE] [--docs]

The table has an id in random order, an integer, a float, a category, 200 letters of text and a
vector of 32 floats. The bucket is a folder, or S3 with `--place s3`; Parquet is always in a folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import click
from rich.console import Console

import reef
import reef.spark
from bench.places import PLACES
from bench.report import Result, show, write_json, write_markdown
from bench.spark_data import COLUMNS, PARTS, make_table
from bench.timing import alternate, median

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000_000
_ROUNDS = 3
_CORES = 2
_RUNS = 8


@dataclass
class Bench:
    """What measurements share: a session, the source table, and where to put things."""

    folder: Path
    bucket: str
    place: str
    rows: int
    rounds: int
    spark: SparkSession

    @property
    def source(self) -> DataFrame:
        """The rows as they come in, in random order."""
        return self.spark.read.parquet(str(self.folder / "source"))

    def result(
        self, name: str, what: str, ours: float, theirs: float, bar: float | None, peer: str
    ) -> Result:
        """Seconds against seconds, as rows a second."""
        return Result(
            name,
            self.place,
            f"{what}, {self.rows:,} rows",
            f"{self.rows / ours / 1e3:,.0f}k rows/s",
            f"{peer} {self.rows / theirs / 1e3:,.0f}k rows/s",
            theirs / ours,
            bar,
            at_most=False,
        )


def load(bench: Bench) -> Iterator[Result]:
    """A load, sort included, against range-partitioned and sorted Parquet with zstd."""
    source = bench.source

    def ours(number: int) -> None:
        reef.spark.load(source, bench.bucket, f"load-{number}", schema={"v": reef.vector(32)})

    def theirs(number: int) -> None:
        sorted_rows = source.repartitionByRange(_CORES, "id").sortWithinPartitions("id")
        path = str(bench.folder / f"parquet-{number}")
        sorted_rows.write.option("compression", "zstd").parquet(path)

    warm_up(bench)
    reef_seconds, spark_seconds = alternate(bench.rounds, ours, theirs)
    yield bench.result(
        "load", "load", median(reef_seconds), median(spark_seconds), 1.0, "Parquet zstd"
    )


def warm_up(bench: Bench) -> None:
    """Both ways once with few rows: the first job of a session pays for it."""
    few = bench.source.limit(1000)
    reef.spark.load(few, bench.bucket, "warm-up", schema={"v": reef.vector(32)}, mode="overwrite")
    few.write.mode("overwrite").parquet(str(bench.folder / "warm-up"))


def read(bench: Bench) -> Iterator[Result]:
    """All columns and two of them, against Spark reading the sorted Parquet."""
    namespace, parquet = prepared(bench)
    for columns, bar, what in (
        (None, 0.9, "full read, all columns"),
        (["id", "n"], 0.6, "full read, two columns"),
    ):
        names = columns or list(COLUMNS)

        def ours(_: int, columns: list[str] | None = columns) -> None:
            consume(reef.spark.read(bench.bucket, namespace, columns=columns))

        def theirs(_: int, names: list[str] = names) -> None:
            consume(bench.spark.read.parquet(parquet).select(*names))

        ours(0)
        theirs(0)
        reef_seconds, spark_seconds = alternate(bench.rounds, ours, theirs)
        yield bench.result(
            "read", what, median(reef_seconds), median(spark_seconds), bar, "Parquet"
        )


def consume(frame: DataFrame) -> None:
    """Have every row made, in Spark, and nothing done with it."""
    frame.write.format("noop").mode("overwrite").save()


def prepared(bench: Bench) -> tuple[str, str]:
    """A namespace and Parquet files with all rows."""
    parquet = str(bench.folder / "parquet-0")
    with reef.connect(bench.bucket) as database:
        if not database.exists("load-0"):
            reef.spark.load(bench.source, bench.bucket, "load-0", schema={"v": reef.vector(32)})
    if not Path(parquet).exists():
        rows = bench.source.repartitionByRange(_CORES, "id").sortWithinPartitions("id")
        rows.write.option("compression", "zstd").parquet(parquet)
    return "load-0", parquet


def filters(bench: Bench) -> Iterator[Result]:
    """What a filter on an id range or a clustered column fetches, against the blocks it needs."""
    from bench.spark_bytes import bytes_read

    namespace, _ = prepared(bench)
    middle, some = bench.rows // 2, bench.rows // 100
    for what, condition in (
        ("ids, a hundredth of them", ("id", f"id-{middle:09d}", f"id-{middle + some:09d}")),
        ("a clustered column, a hundredth of its range", ("n", middle, middle + some)),
    ):
        fetched, needed, total = bytes_read(bench.bucket, namespace, condition)
        yield Result(
            "filters",
            bench.place,
            f"bytes of a read filtered by {what}",
            f"{fetched / 1e6:.2f} MB of {total / 1e6:.0f} MB",
            f"blocks that can match {needed / 1e6:.2f} MB",
            fetched / needed,
            1.1,
        )


def compaction(bench: Bench) -> Iterator[Result]:
    """Compaction of 8 runs that overlap, on one core and on two."""
    seconds = {cores: child(bench, "compact", cores) for cores in (1, _CORES)}
    rate = bench.rows / seconds[_CORES]
    yield Result(
        "compaction",
        bench.place,
        f"compaction of {_RUNS} overlapping runs, {bench.rows:,} rows, on {_CORES} cores",
        f"{rate / 1e3:,.0f}k rows/s",
        "300k rows/s",
        rate / 300e3,
        1.0,
        at_most=False,
    )
    yield Result(
        "compaction",
        bench.place,
        "the same on one core",
        f"{seconds[_CORES]:.1f} s",
        f"{seconds[1]:.1f} s on one",
        seconds[1] / seconds[_CORES],
        1.6,
        at_most=False,
    )


def memory(bench: Bench) -> Iterator[Result]:
    """Memory of the driver's Python and of a task's, for many times the rows."""
    # A task's memory grows until it reaches its bound: the smaller one is beyond that already.
    for name, what, part in (
        ("driver", "the driver of a load", 10),
        ("task", "one task of a load", 4),
    ):
        counts = (bench.rows // part, bench.rows)
        if name == "driver":
            for count in counts:
                make_table(bench.folder / f"driver-{count}", count, PARTS)
        small, large = (child(bench, name, count) for count in counts)
        yield Result(
            "memory",
            bench.place,
            f"peak memory of {what}, {bench.rows:,} rows against {bench.rows // part:,}",
            f"{large / 1e6:.0f} MB",
            f"{small / 1e6:.0f} MB",
            large / small,
            1.2,
        )


def child(bench: Bench, work: str, number: int) -> float:
    """What a process of its own measured."""
    command = [sys.executable, "-m", "bench.spark_child", work, bench.bucket]
    command += [str(bench.folder), str(number), str(bench.rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "load": load,
    "read": read,
    "filters": filters,
    "compaction": compaction,
    "memory": memory,
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(MEASUREMENTS)))
@click.option("--place", type=click.Choice(list(PLACES)), default="folder")
@click.option("--rows", type=int, default=ROWS)
@click.option("--quick", is_flag=True, help="A tenth of the rows and one round.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write results there.")
@click.option("--docs", is_flag=True, help="Write the table into docs/spark.md.")
def main(
    only: tuple[str, ...],
    place: str,
    rows: int,
    quick: bool,
    json_file: Path | None,
    docs: bool,
) -> None:
    """Measure; the exit code is 1 if a bar is missed."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    rows = rows // 10 if quick else rows
    folder = Path(tempfile.mkdtemp(prefix="reef-bench-"))
    results: list[Result] = []
    try:
        make_table(folder / "source", rows, PARTS)
        with PLACES[place]() as where:
            spark = reef.spark.session(f"local[{_CORES}]")
            bench = Bench(
                folder, where.reef(where.fresh()), place, rows, 1 if quick else _ROUNDS, spark
            )
            for name, measure in MEASUREMENTS.items():
                if only and name not in only:
                    continue
                start = perf_counter()
                for result in measure(bench):
                    results.append(result)
                    console.print(f"{result.verdict or 'info':6} {' | '.join(result.cells()[:6])}")
                console.print(f"       {name} took {perf_counter() - start:.1f} s", style="dim")
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(results, console)
    if json_file is not None:
        write_json(results, json_file)
    if docs:
        write_markdown(results, Path(__file__).parents[1] / "docs" / "spark.md")
    sys.exit(any(result.met is False for result in results))


if __name__ == "__main__":
    main()

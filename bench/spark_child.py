"""One measurement of the Spark benchmarks, in a process that does nothing else.

    python -m bench.spark_child compact|driver|task BUCKET FOLDER NUMBER ROWS

`compact` prints the seconds of a compaction on that many cores, `driver` the peak memory of the
driver's Python in a load of that many rows, `task` by how much a task's grows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import reef
import reef.spark
from bench.memory import resident
from bench.spark_data import COLUMNS, rows_of
from reef.data.rows import UPSERT

_RUNS = 8
_BATCH = 10_000
_SCHEMA = {"v": reef.vector(32)}


def compact(bucket: str, folder: Path, cores: int, rows: int) -> float:
    """Seconds, with the whole process tree on so many cores, once the session is warm."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    name = f"compact-{cores}"
    with (
        reef.connect(bucket) as database,
        database.namespace(name, schema=_SCHEMA, maintain=False) as ns,
    ):
        for file in sorted((folder / "source").glob("*.parquet")):
            ns.load(iter(ds.dataset(file).to_batches()))
        while ns.index():
            pass
        assert sum(level.runs for level in ns.status().levels) == _RUNS
    session = reef.spark.session(f"local[{cores}]")
    reef.spark.verify(bucket, name, deep=False, session=session)
    # The Pythons of the tasks are started by the first job, and stay.
    session.range(cores).repartition(cores).mapInArrow(_pass_on, "id long").collect()
    start = perf_counter()
    (done,) = reef.spark.compact(bucket, name, full=True, session=session)
    seconds = perf_counter() - start
    assert done.rows == rows
    session.stop()
    return seconds


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import reef.lsm.upkeep.rewrite  # noqa: F401

    yield from batches


def driver(bucket: str, folder: Path, rows: int) -> float:
    """The bytes that the driver's Python takes at most."""
    source = folder / f"driver-{rows}"
    session = reef.spark.session("local[2]")
    few = session.read.parquet(str(source)).limit(1000)
    reef.spark.load(few, bucket, "driver-warm-up", schema=_SCHEMA, mode="overwrite")
    _peak_from_now()
    reef.spark.load(session.read.parquet(str(source)), bucket, f"driver-{rows}", schema=_SCHEMA)
    session.stop()
    return resident("VmHWM")


def task(bucket: str, folder: Path, rows: int) -> float:
    """By how many bytes a process grows that does the work of one task on all the rows."""
    from pyspark.sql.types import (
        ArrayType,
        DoubleType,
        FloatType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    from reef.data.schema import Schema
    from reef.documents.database import declared_schema
    from reef.spark.bucket import bucket_at
    from reef.spark.incoming import plan_incoming
    from reef.spark.job import TASK_MEMORY, Job, write_sorted

    kinds = (StringType(), LongType(), DoubleType(), StringType(), StringType())
    columns = StructType(
        [
            StructField(name, kind)
            for name, kind in zip(COLUMNS, (*kinds, ArrayType(FloatType())), strict=True)
        ]
    )
    where = bucket_at(bucket)
    name = f"task-{rows}"
    where.database().create(name)
    tree = where.tree(name)
    tree.refresh()
    incoming = plan_incoming(
        columns,
        Schema(),
        id_column="id",
        declared=declared_schema(_SCHEMA),
        dimensions={},
        kind=UPSERT,
    )
    job = Job(where, name, incoming, 1, True, None, TASK_MEMORY)
    before = _peak_from_now()
    written = write_sorted(job, tree, _sorted_batches(rows))
    assert sum(info.rows for info in written.segments) == rows
    return resident("VmHWM") - before


def _sorted_batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them to a task, made as they are asked for."""
    for start in range(0, rows, _BATCH):
        numbers = np.arange(start, min(start + _BATCH, rows))
        yield from rows_of(start // _BATCH, numbers).to_batches()


def _peak_from_now() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


if __name__ == "__main__":
    work, bucket, folder, number, rows = sys.argv[1:]
    if work == "compact":
        found = compact(bucket, Path(folder), int(number), int(rows))
    else:
        found = {"driver": driver, "task": task}[work](bucket, Path(folder), int(number))
    print(json.dumps(found))

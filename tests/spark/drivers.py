"""Driver programs for tests that kill things: `python drivers.py '{"master": …}'`.

Orders come as lines of JSON, `[NAME, {"argument": …}]`, and each is answered with one. `die` names
a crash point at which the driver is killed, as by a power cut.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import reef
import reef.spark
from reef.log import Log
from reef.lsm.upkeep.rewrite import Rewrite

Session = Any


def rows_of(session: Session, count: int, version: int = 0) -> Any:
    """Rows with ids in no order."""
    return session.range(count).selectExpr(
        "format_string('%06d', (id * 7919) % {}) as id".format(count),  # noqa: UP032
        "id * 2 as n",
        f"{version} as version",
        "repeat(format_string('%06d', id), 20) as text",
    )


def held_up(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step in the middle of a task: it says that it is there, and goes on when it may."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 0:
                _wait_at(folder)
            yield batch

    return step


def _wait_at(folder: str) -> None:
    Path(folder, f"reached-{os.getpid()}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)


def die(point: str) -> None:
    """Have this process killed at its next commit, "before append" or "after append"."""
    append = Log.append

    def killed(*arguments: Any) -> Any:
        if point == "before append":
            os.kill(os.getpid(), signal.SIGKILL)
        append(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    Log.append = killed  # type: ignore[method-assign]


def load(session: Session, bucket: str, namespace: str, given: dict[str, Any]) -> Any:
    frame = rows_of(session, given["rows"], given.get("version", 0))
    if "hold" in given:
        frame = frame.mapInArrow(held_up(given["hold"]), frame.schema)
    if "die" in given:
        die(given["die"])
    done = reef.spark.load(
        frame, bucket, namespace, key=given.get("key"), mode=given.get("mode", "upsert"),
        storage=given.get("storage"),
    )  # fmt: skip
    return {"lsn": done.lsn, "rows": done.rows, "replayed": done.replayed}


def read(session: Session, bucket: str, namespace: str, given: dict[str, Any]) -> Any:
    frame = reef.spark.read(bucket, namespace, session=session, splits=4,
                            storage=given.get("storage"))  # fmt: skip
    frame.createOrReplaceTempView("documents")
    frame.write.mode("overwrite").parquet(given["to"])
    (row,) = session.sql("select count(*) c, sum(n) s from documents").collect()
    return {"count": row.c, "sum": row.s}


class _HeldRewrite(Rewrite):
    """A part of a compaction that waits in its task, where it is unpacked."""

    def __reduce__(self) -> Any:
        fields = tuple(getattr(self, name) for name in Rewrite.__dataclass_fields__)
        return _unpack, (self.folder, fields)

    folder = ""


def _unpack(folder: str, fields: tuple[Any, ...]) -> Rewrite:
    _wait_at(folder)
    return Rewrite(*fields)


def compact(session: Session, bucket: str, namespace: str, given: dict[str, Any]) -> Any:
    import reef.lsm.upkeep.rewrite as rewriting

    rewriting._SMALLEST_PART = 1
    _HeldRewrite.folder = given.get("hold", "")
    rewriting.Rewrite = _HeldRewrite if "hold" in given else Rewrite  # type: ignore[misc]
    (done,) = reef.spark.compact(
        bucket, namespace, full=True, session=session, storage=given.get("storage")
    )
    return {"rows": done.rows, "outputs": done.outputs}


def fold(session: Session, bucket: str, namespace: str, given: dict[str, Any]) -> Any:
    done = reef.spark.fold(bucket, namespace, session=session, storage=given.get("storage"))
    sound = reef.spark.verify(
        bucket, namespace, session=session, storage=given.get("storage")
    ).sound
    return {"passes": len(done), "sound": sound}


def stream(session: Session, bucket: str, namespace: str, given: dict[str, Any]) -> Any:
    """Mirror the feed of one namespace into another, a few rows a batch, until all is there."""
    options = {f"storage.{name}": value for name, value in (given.get("storage") or {}).items()}
    source = (
        session.readStream.format("reef")
        .options(bucket=bucket, namespace=namespace, maxRowsPerTrigger="100", **options)
        .load()
    )
    query = (
        source.writeStream.format("reef")
        .options(bucket=bucket, namespace=given["to"], **options)
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"batches": query.lastProgress["batchId"] if query.lastProgress else None}


PROGRAMS = {program.__name__: program for program in (load, read, compact, fold, stream)}


def main(given: dict[str, Any]) -> None:
    session = reef.spark.session(given["master"], **given.get("settings", {}))
    print("ready", flush=True)
    for line in sys.stdin:
        name, order = json.loads(line)
        try:
            answer = PROGRAMS[name](session, order["bucket"], order["namespace"], order)
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    session.stop()


if __name__ == "__main__":
    # Under its own name, so that what it sends to tasks can be found there.
    import drivers

    drivers.main(json.loads(sys.argv[1]))

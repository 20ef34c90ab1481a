"""The peak memory of one piece of upkeep, measured in a process that does nothing else.

    python -m bench.memory fold|prepare|compact ADDRESS FILE COUNT

`fold` writes all documents and folds along the way, `prepare` makes two runs of them, and
`compact` merges those. The documents come from an Arrow file, which is made if it is not there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import reef
from reef.lsm.options import MEBIBYTE

_BATCH = 2_000
_RUNS = 2
_DISTINCT = 50_000
_BOUNDED = reef.Options(fold_bytes=16 * MEBIBYTE, segment_bytes=16 * MEBIBYTE)
_UNBOUNDED = reef.Options(fold_bytes=1 << 40, backlog_bytes=1 << 40, segment_bytes=16 * MEBIBYTE)


def main(work: str, address: str, file: Path, count: int) -> None:
    """Do it, and print by how much the peak grew as JSON."""
    if work == "make":
        make(file, count)
        return
    if not file.exists():
        # Elsewhere, so that making the data leaves nothing in this process's memory.
        subprocess.run(
            [sys.executable, "-m", "bench.memory", "make", address, str(file), str(count)],
            check=True,
        )
    options = _UNBOUNDED if work == "prepare" else _BOUNDED
    database = reef.connect(address, options=options)
    namespace = database.namespace("bench", maintain=False)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    before = resident("VmRSS")
    if work == "fold":
        for batch in batches(file):
            namespace.write(upserts=pa.Table.from_batches([batch]))
            if namespace.status().unfolded_bytes >= options.fold_bytes:
                namespace.index()
        while namespace.index():
            pass
    elif work == "prepare":
        written = runs = 0
        for batch in batches(file):
            namespace.write(upserts=pa.Table.from_batches([batch]))
            written += batch.num_rows
            if written * _RUNS // count > runs:
                namespace.index()
                runs += 1
    else:
        assert namespace.status().levels[0].runs == _RUNS
        namespace.compact(full=True)
    print(json.dumps({"peak": resident("VmHWM") - before}))


def make(file: Path, count: int) -> None:
    """Write the documents into an Arrow file."""
    from bench.data import documents

    rows = documents(_DISTINCT)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
        for start in range(0, count, _BATCH):
            batch = rows.slice(start % _DISTINCT, _BATCH)
            ids = pa.array(
                [
                    f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}"
                    for number in range(start, start + batch.num_rows)
                ]
            )
            writer.write_table(batch.set_column(0, "id", ids))


def batches(file: Path) -> Iterator[pa.RecordBatch]:
    """The documents of a file, one batch in memory at a time."""
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
        yield from reader


def resident(name: str) -> int:
    """A line of this process's status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))

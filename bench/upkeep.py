"""What keeping data costs: bytes on the store, memory of fold and compaction."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import reef
from bench.report import Result
from bench.stage import Stage

_SMALL, _LARGE = 100_000, 1_000_000


def size(stage: Stage) -> Iterator[Result]:
    """Bytes of segments against Parquet with zstd of the same rows in the same order."""
    for title, namespace, rows in (
        ("documents", stage.reef_documents, stage.documents),
        ("pairs", stage.reef_pairs, stage.pairs.table(0, stage.rows)),
    ):
        ours = segment_bytes(namespace)
        sink = pa.BufferOutputStream()
        pq.write_table(rows.sort_by("id"), sink, compression="zstd")
        theirs = sink.getvalue().size
        yield Result(
            "size",
            stage.place.name,
            f"bytes of segments, {stage.rows:,} {title}",
            f"{ours / 1e6:.1f} MB",
            f"Parquet zstd {theirs / 1e6:.1f} MB",
            ours / theirs,
            1.15,
        )


def segment_bytes(namespace: reef.Namespace) -> int:
    """The size of all live segments."""
    return sum(level.bytes for level in namespace.status().levels)


def memory(stage: Stage) -> Iterator[Result]:
    """Peak memory of writing with folds and of a compaction, on 10 × the data.

    Each runs in a process of its own; the smaller data is already above the bound that
    `bench.memory` sets, so that the larger may need no more.
    """
    small, large = ((count // stage.many(1, 4)) for count in (_SMALL, _LARGE))
    with tempfile.TemporaryDirectory(prefix="reef-bench-") as folder:
        peaks = {count: _peaks(stage, Path(folder), count) for count in (small, large)}
    for work, title in (("fold", "writing and folding"), ("compact", "a compaction of 2 runs")):
        yield Result(
            "memory",
            stage.place.name,
            f"peak memory of {title}, {large:,} documents",
            f"{peaks[large][work] / 1e6:.0f} MB",
            f"{small:,} documents {peaks[small][work] / 1e6:.0f} MB",
            peaks[large][work] / peaks[small][work],
            1.2,
        )


def _peaks(stage: Stage, folder: Path, count: int) -> dict[str, int]:
    """Peak bytes of each piece of work, above what importing and connecting takes."""
    file = folder / f"{count}.arrow"
    peaks = {}
    for work in ("fold", "prepare", "compact"):
        if work != "compact":
            address = stage.place.reef(stage.place.fresh())
        finished = subprocess.run(
            [sys.executable, "-m", "bench.memory", work, address, str(file), str(count)],
            check=True,
            stdout=subprocess.PIPE,
        )
        peaks[work] = int(json.loads(finished.stdout)["peak"])
    return peaks

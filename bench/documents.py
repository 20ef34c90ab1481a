"""Runs Reef and its peers on the same data, and prints ratios against bars.

python -m bench.documents [--only NAME]… [--place folder|s3]… [--quick] [--json FILE] [--docs]
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import click
from rich.console import Console

from bench import reads, upkeep, writes
from bench.places import PLACES
from bench.report import Result, show, write_json, write_markdown
from bench.stage import Stage

MEASUREMENTS: dict[str, Callable[[Stage], Iterator[Result]]] = {
    "commit": writes.commit,
    "threads": writes.threads,
    "batch": writes.batch,
    "load-pairs": writes.load_pairs,
    "load-documents": writes.load_documents,
    "get": reads.get,
    "get-many": reads.get_many,
    "scan": reads.scan,
    "open": reads.open_unfolded,
    "size": upkeep.size,
    "memory": upkeep.memory,
}
# What does not depend on the kind of store is measured once.
_FOLDER_ONLY = {"size", "memory"}


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice(list(MEASUREMENTS)), help="Measure only this."
)
@click.option(
    "--place", "places", multiple=True, type=click.Choice(list(PLACES)), help="Run only here."
)
@click.option("--quick", is_flag=True, help="Less data and fewer rounds: a rough idea in a minute.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write results there.")
@click.option("--docs", is_flag=True, help="Write the table into docs/benchmarks.md.")
def main(
    only: tuple[str, ...],
    places: tuple[str, ...],
    quick: bool,
    json_file: Path | None,
    docs: bool,
) -> None:
    """Measure Reef against its peers; the exit code is 1 if a bar is missed."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    warnings.filterwarnings("ignore", "lancedb fork support")
    results: list[Result] = []
    for place_name in places or PLACES:
        with PLACES[place_name]() as place:
            stage = Stage(place, quick)
            for name, measure in MEASUREMENTS.items():
                if only and name not in only:
                    continue
                if name in _FOLDER_ONLY and place_name != "folder" and not (only and places):
                    continue
                start = perf_counter()
                for result in measure(stage):
                    results.append(result)
                    console.print(f"{result.verdict or 'info':6} {' | '.join(result.cells()[:6])}")
                console.print(f"       {name} took {perf_counter() - start:.1f} s", style="dim")
            stage.close()
    show(results, console)
    if json_file is not None:
        write_json(results, json_file)
    if docs:
        write_markdown(results, Path(__file__).parents[1] / "docs" / "benchmarks.md")
    sys.exit(any(result.met is False for result in results))


if __name__ == "__main__":
    main()

"""The tour: `script/demo`, or `python -m demo` from the project's folder."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import reef
from demo.catalogue import catalogue
from demo.damage import damage
from demo.ending import end, farewell
from demo.history import regret
from demo.murder import murder
from demo.pipeline import RATINGS, pipeline, prepare
from demo.reading import read
from demo.shaping import shape
from demo.stage import ClaimFailed, Stage
from demo.tour import NAMESPACE, Tour
from demo.victim import REVIEWS
from demo.writing import agree, fill
from reef.store import CountingStore, open_store

FILMS = 120_000
_BATCHES = 24
_FEWEST = 1_000
_RUNS = 5
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour; 0 if every claim held, 1 if one did not, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="script/demo", description="A guided tour of Reef.")
    parser.add_argument("--bucket", metavar="DIR|URL", help="use this bucket, and keep it")
    parser.add_argument("--fast", action="store_true", help="do not pause for reading")
    parser.add_argument("--films", type=int, default=FILMS, help=f"how many (default {FILMS})")
    parser.add_argument("--no-spark", action="store_true", help="leave out the part on Spark")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (local[*])")
    parser.add_argument("--facts", metavar="FILE", help="also write what was measured, as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.films < _FEWEST:
        parser.error(f"the story needs {_FEWEST} films at least")
    if (chosen.bucket or "").startswith("memory:"):
        parser.error("a bucket in memory is not seen by the processes that the tour starts")
    temporary = "" if chosen.bucket else tempfile.mkdtemp(prefix="reef-")
    try:
        return _run(chosen, temporary)
    except reef.ReefError as error:
        print(f"demo: {type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _run(chosen: argparse.Namespace, temporary: str) -> int:
    url = temporary or chosen.bucket
    if "://" not in url:
        url = str(Path(url).expanduser().resolve())
    store = CountingStore(open_store(url))
    with_data = [
        name for name in (NAMESPACE, REVIEWS, RATINGS) if any(store.list(f"namespaces/{name}/"))
    ]
    if with_data:
        print(f"demo: {url} has a namespace {with_data[0]!r} already", file=sys.stderr)
        store.close()
        return USAGE
    stage = Stage(fast=chosen.fast)
    _title(stage)
    with stage.working("inventing a catalogue of films"):
        films = catalogue(chosen.films, -(-chosen.films // _BATCHES))
    raw = films.films.nbytes
    options = reef.Options(fold_bytes=raw // _RUNS, segment_bytes=raw // _RUNS)
    tour = Tour(
        stage, url, films, store, reef.connect(store, options=options), films.films, chosen.master
    )
    try:
        chapters = [fill, agree, shape, read, regret, murder, damage, end]
        if not chosen.no_spark:
            chapters += [prepare, pipeline]
        for chapter in chapters:
            began = stage.seconds
            chapter(tour)
            tour.facts[f"seconds_{chapter.__name__}"] = round(stage.seconds - began, 2)
        farewell(tour, kept=not temporary)
    except ClaimFailed as failed:
        print(f"demo: this did not hold: {failed}", file=sys.stderr)
        return FAILED
    finally:
        tour.close()
        if chosen.facts:
            Path(chosen.facts).write_text(json.dumps(tour.facts, indent=2) + "\n")
    return 0


def _title(stage: Stage) -> None:
    stage.panel(
        "[bold]Reef[/bold]: a database whose only durable state is a bucket\n\n"
        "In the next half minute a catalogue of films is written, raced for, read, deleted by"
        " mistake and brought back; its writers are killed and its bytes damaged. In a second part"
        " raw files go through Spark into the bucket and out again. Every number is"
        " measured as you watch. Every [bold green]✓[/bold green] was checked a moment before, and"
        " the tour stops at the first that does not hold.",
        "cyan",
    )


if __name__ == "__main__":
    sys.exit(main())

"""Torture Reef: `python -m torture --minutes 30`. See docs/reliability.md."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from time import monotonic

import click
from rich.console import Console
from rich.live import Live

from torture.report import closing, line, table, write_json, write_markdown
from torture.workers import CAMPAIGNS, Campaign, Tally, Workers

LINE_EVERY = 10.0
_PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def torture(
    campaigns: Sequence[Campaign], seconds: float, jobs: int, seed: int, console: Console
) -> tuple[list[Tally], bool]:
    """Run the campaigns one after the other, each on all jobs, each with its part of the time.

    Returns what they came to, and whether it went on to the end. What one takes longer is taken
    from those behind it. An interrupt ends it soon, a second one at once.
    """
    tallies: list[Tally] = []
    ends = monotonic() + seconds
    weight = sum(campaign.weight for campaign in campaigns)
    with _Interrupts() as interrupts:
        for campaign in campaigns:
            part = max(1.0, (ends - monotonic()) * campaign.weight / weight)
            weight -= campaign.weight
            workers = Workers(campaign, jobs, seed, part)
            tallies.append(workers.tally)
            _follow(workers, interrupts, console)
            if interrupts.many:
                return tallies, False
    return tallies, True


class _Interrupts:
    """Counts interrupts instead of being thrown by them out of whatever is going on."""

    def __init__(self) -> None:
        self.many = 0

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _count(self, *_: object) -> None:
        self.many += 1


def _follow(workers: Workers, interrupts: _Interrupts, console: Console) -> None:
    """Show how the workers get on until they are done."""
    told = 0
    next_line = monotonic() + LINE_EVERY
    live = Live(console=console, refresh_per_second=4, transient=True)
    with live if console.is_terminal else nullcontext():
        for tally in workers.work():
            told = _tell_failures(tally, told, console)
            if console.is_terminal:
                live.update(line(tally))
            elif monotonic() > next_line:
                next_line = monotonic() + LINE_EVERY
                console.print(line(tally), markup=False)
            if interrupts.many:
                workers.stop()
            if interrupts.many > 1:
                workers.kill()
    console.print(line(workers.tally), markup=False)


def _tell_failures(tally: Tally, told: int, console: Console) -> int:
    for failure in tally.failures[told:]:
        console.print(f"FAILED {failure.what}\n  again: {failure.repeat}", markup=False)
    return len(tally.failures)


def _chosen(only: str | None) -> list[Campaign]:
    names = [campaign.name for campaign in CAMPAIGNS]
    wanted = only.split(",") if only else names
    for name in wanted:
        if name not in names:
            raise click.BadParameter(f"{name!r} is none of {', '.join(names)}", param_hint="--only")
    return [campaign for campaign in CAMPAIGNS if campaign.name in wanted]


@click.command()
@click.option("--minutes", type=float, default=30.0, show_default=True, help="For how long.")
@click.option("--only", help="Only these campaigns: damage,murder,fuzz,simulate.")
@click.option("--jobs", type=int, default=None, help="Processes at a time (default: the cores).")
@click.option("--seed", type=int, default=0, show_default=True, help="Another one: other runs.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
@click.option("--docs", is_flag=True, help="Write the figures into docs/reliability.md.")
def main(
    minutes: float,
    only: str | None,
    jobs: int | None,
    seed: int,
    json_file: Path | None,
    docs: bool,
) -> None:
    """Try to make Reef lose, invent or misread data; the exit code is 1 if it did."""
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    jobs = jobs or os.cpu_count() or 1
    tallies, whole = torture(_chosen(only), minutes * 60, jobs, seed, console)
    finish(tallies, whole, jobs, seed, console, json_file, _PAGE if docs else None)


def finish(
    tallies: Sequence[Tally],
    whole: bool,
    jobs: int,
    seed: int,
    console: Console,
    json_file: Path | None = None,
    page: Path | None = None,
) -> None:
    """Print and write the summary, and exit."""
    console.print(table(tallies))
    console.print(closing(tallies) + ("" if whole else " (interrupted)"))
    failures = [failure for tally in tallies for failure in tally.failures]
    if failures:
        console.print("\nTo see the failures again:")
        for repeat in dict.fromkeys(failure.repeat for failure in failures):
            console.print(f"  {repeat}", markup=False, soft_wrap=True)
    if json_file is not None:
        write_json(json_file, tallies, jobs, seed)
    if page is not None:
        write_markdown(page, tallies, jobs, seed)
    sys.exit(1 if failures else 0 if whole else 130)


if __name__ == "__main__":
    main()

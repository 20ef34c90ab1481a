"""Answers: JSON documents, facts and tables, and progress on stderr.

On a terminal tables are drawn; anywhere else they are plain columns that cut and grep can use.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click


def plain(value: Any) -> Any:
    """The value as JSON can hold it: dataclasses and structs as objects."""
    import msgspec

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Fields that are kept out of comparison hold machinery, not answers.
        return {
            field.name: plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.compare
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    import msgspec

    click.echo(msgspec.json.encode(plain(value)).decode())


def is_terminal() -> bool:
    """Whether stdout is looked at by a person."""
    return sys.stdout.isatty()


def _console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(
        stderr=stderr, highlight=False, soft_wrap=True, no_color=True if no_color() else None
    )


def no_color() -> bool:
    """Whether colours are unwanted (see no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def print_title(text: str) -> None:
    """A headline."""
    if is_terminal():
        _console().print(f"[bold]{_escape(text)}[/bold]")
    else:
        click.echo(text)


def print_facts(facts: Mapping[str, Any], indent: int = 0) -> None:
    """Names and values, a line each."""
    width = max(map(len, facts), default=0)
    margin = " " * indent
    for name, value in facts.items():
        click.echo(f"{margin}{name:<{width}}  {value}".rstrip())


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], numbers: str = "") -> None:
    """A table; the headers named in `numbers` (with spaces between) are aligned to the right."""
    right = set(numbers.split())
    if is_terminal():
        _drawn(headers, rows, right)
        return
    widths = [
        max([len(header), *(len(row[column]) for row in rows)])
        for column, header in enumerate(headers)
    ]
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if header in right else cell.ljust(width)
            for cell, width, header in zip(row, widths, headers, strict=True)
        )
        click.echo("  ".join(cells).rstrip())


def _drawn(headers: Sequence[str], rows: Sequence[Sequence[str]], right: set[str]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_escape, row))
    _console().print(table)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def warn(text: str) -> None:
    """A remark on stderr."""
    click.echo(f"reef: {text}", err=True)


Advance = Callable[[int, int], None]
"""LogSummary how many rows are done, and how much of the total."""


@contextmanager
def progress(what: str, total: int | None, unit: str = "rows") -> Iterator[Advance]:
    """A progress line on stderr if that is a terminal; `total` is what 100 % means, if known."""
    if not sys.stderr.isatty():
        yield lambda rows, done: None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}")]
    if total:
        columns += [BarColumn(), TextColumn("{task.percentage:>3.0f} %")]
    columns += [TextColumn(f"{{task.fields[rows]:,}} {unit}"), TimeElapsedColumn()]
    if not total:
        columns.insert(0, SpinnerColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total or None, rows=0)
        yield lambda rows, done: bar.update(task, rows=rows, completed=done)

"""The stage: how the tour speaks, waits, and holds itself to what it says."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.text import Text

WIDTH = 100
_MARGIN = (0, 0, 0, 2)
_DEEPER = (0, 0, 0, 4)


class ClaimFailed(Exception):
    """Something that the tour said turned out not to be so."""


class Stage:
    """Output for a person at a terminal, with pauses to read; plain text without, elsewhere."""

    def __init__(self, file: TextIO | None = None, *, fast: bool = False) -> None:
        out = sys.stdout if file is None else file
        if hasattr(out, "reconfigure"):
            out.reconfigure(errors="replace")
        self.console = Console(file=out, highlight=False)
        self.console.width = min(self.console.width, WIDTH) if self.is_terminal else WIDTH
        self.claims = 0
        self._pauses = self.is_terminal and not fast
        self._chapters = 0
        self._blank = False
        self._began = time.perf_counter()

    @property
    def is_terminal(self) -> bool:
        """Whether a person is watching."""
        return self.console.is_terminal

    @property
    def seconds(self) -> float:
        """How long the tour has been going on."""
        return time.perf_counter() - self._began

    def chapter(self, title: str, text: str) -> None:
        """A headline and what it is about."""
        self._chapters += 1
        if self._chapters > 1:
            self.pause(1.2)
        self.gap()
        self._print(
            Rule(f"[bold]{self._chapters}  {escape(title)}[/bold]", align="left", style="dim")
        )
        self.gap()
        self.say(text)
        self.gap()
        self.pause(1.0)

    def gap(self) -> None:
        """An empty line, unless there is one already."""
        if not self._blank:
            self.console.print()
        self._blank = True

    def _print(self, what: RenderableType) -> None:
        self.console.print(what)
        self._blank = False

    def say(self, text: str) -> None:
        """A paragraph."""
        for line in self._wrapped(text, self.console.width - 2):
            self._print(Padding(line, _MARGIN, expand=False))

    def _wrapped(self, text: str, width: int) -> list[Text]:
        lines = list(Text.from_markup(text).wrap(self.console, width))
        for line in lines:
            line.rstrip()
        return lines

    def code(self, *lines: str) -> None:
        """What is about to be called."""
        self.gap()
        for line in lines:
            self._print(Padding(Text(line, style="cyan"), _DEEPER, expand=False))
        self.gap()

    def show(self, drawing: RenderableType) -> None:
        """A table or a drawing."""
        self.gap()
        self._print(Padding(drawing, _DEEPER, expand=False))
        self.gap()

    def claim(self, holds: bool, text: str) -> None:
        """Say something that was just checked; if it does not hold, the tour ends here."""
        if not holds:
            self._print(f"  [bold red]✗[/bold red] {text}")
            raise ClaimFailed(Text.from_markup(text).plain)
        self.claims += 1
        mark = Text.from_markup("[bold green]✓[/bold green] ")
        lines = self._wrapped(text, self.console.width - 4)
        self._print(Padding(mark + lines[0], _MARGIN, expand=False))
        for line in lines[1:]:
            self._print(Padding(line, _DEEPER, expand=False))
        self.pause(0.35)

    def panel(self, text: str, colour: str) -> None:
        """Something to remember."""
        self.gap()
        self._print(Panel(Text.from_markup(text), border_style=colour, padding=(1, 2)))

    def working(self, what: str) -> AbstractContextManager[Any]:
        """A spinner while something takes its time."""
        if not self.is_terminal:
            return nullcontext()
        return self.console.status(f"[dim]{escape(what)}[/dim]", spinner="line")

    def track(self, items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
        """The items, and a bar of how many are done."""
        if not self.is_terminal:
            yield from items
            return
        bar = Progress(
            TextColumn("    {task.description}", style="dim"),
            BarColumn(44, complete_style="green", finished_style="green"),
            TextColumn("{task.completed:,}/{task.total:,}", style="dim"),
            console=self.console,
            transient=True,
        )
        with bar:
            yield from bar.track(items, total=total, description=what)

    def pause(self, seconds: float) -> None:
        """Time to read, if somebody is there."""
        if self._pauses:
            time.sleep(seconds)

"""Drawings: what lies in the bucket, and the shape of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches

from reef.documents.status import Status
from reef.lsm.upkeep.compaction import runs_by_level
from reef.segment import SegmentInfo
from reef.store import ObjectInfo

BAR = 36
_COLOURS = ("yellow", "green", "blue", "magenta")
_SHOWN = 2


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def duration(seconds: float) -> str:
    """A short time for people."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds < 0.0001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"


def plural(count: int, noun: str) -> str:
    """`1 segment`, `2 segments`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def bucket_tree(url: str, objects: Sequence[ObjectInfo], notes: dict[str, str]) -> Branches:
    """The folders of a namespace with their first and last objects; notes explain them."""
    root = Branches(Text(url, style="bold"), guide_style="dim")
    folders: dict[str, list[ObjectInfo]] = {}
    for info in objects:
        folders.setdefault(info.key.rpartition("/")[0], []).append(info)
    for folder, inside in folders.items():
        total = sum(info.size for info in inside)
        name = folder.rpartition("/")[2]
        if not name:
            for info in inside:
                root.add(Text.assemble(_leaf(info), (f"   {notes.get(info.key, '')}", "dim")))
            continue
        line = Text.assemble(
            (f"{name}/", "bold"),
            f"  {plural(len(inside), 'object')}, {size(total)}",
            (f"   {notes.get(name, '')}", "dim"),
        )
        branch = root.add(line)
        few = len(inside) <= _SHOWN + 1
        for info in inside if few else inside[:_SHOWN]:
            branch.add(_leaf(info))
        if not few:
            branch.add(Text(f"… {len(inside) - _SHOWN - 1} more", style="dim"))
            branch.add(_leaf(inside[-1]))
    return root


def _leaf(info: ObjectInfo) -> Text:
    return Text(f"{info.key.rpartition('/')[2]:<40} {size(info.size):>9}")


def lsm_tree(status: Status, segments: Iterable[SegmentInfo], films: int) -> Table:
    """The log and every run of the tree, each drawn over the range of ids that it covers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("")
    table.add_column("first id".ljust(BAR - 7) + "last id", no_wrap=True)
    table.add_column("objects", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("bytes", justify="right")
    if status.unfolded_rows:
        table.add_row(
            "log",
            Text("░" * BAR, style="red"),
            f"{status.unfolded_objects}",
            f"{status.unfolded_rows:,}",
            size(status.unfolded_bytes),
        )
    for level, runs in runs_by_level(segments).items():
        colour = _COLOURS[min(level, len(_COLOURS) - 1)]
        for run in runs:
            rows = run.summary.rows
            table.add_row(
                f"level {level}",
                Text(_covered(run.segments, films), style=colour),
                f"{len(run)}",
                f"{rows:,}",
                size(run.summary.size),
            )
    return table


def _covered(run: Sequence[SegmentInfo], films: int) -> str:
    """A bar over all ids: full where a segment of the run has its range."""
    cells = [" "] * BAR
    for info in sorted(run, key=lambda info: info.min_id):
        first = _position(info.min_id, films)
        last = _position(info.max_id, films)
        cells[first] = "█" if first == 0 or cells[first - 1] == " " else "▐"
        for cell in range(first + 1, last + 1):
            cells[cell] = "█"
    return "".join(cells)


def _position(id: str | int, films: int) -> int:
    return min(BAR - 1, int(str(id).rpartition("-")[2]) * BAR // films)


def byte_bars(parts: Sequence[tuple[str, int]]) -> Table:
    """Sizes beside each other."""
    table = Table.grid(padding=(0, 2, 0, 0))
    most = max(count for _, count in parts)
    for name, count in parts:
        bar = "█" * max(1, round(BAR * count / most))
        table.add_row(name, Text(bar, style="cyan"), size(count))
    return table


def facts(rows: Sequence[Sequence[str]], headers: Sequence[str] = ()) -> Table:
    """A small table; the first column is text, the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", show_header=bool(headers))
    for position in range(len(rows[0])):
        name = headers[position] if headers else ""
        table.add_column(name, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table

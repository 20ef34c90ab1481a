"""Files as a stream of blocks of rows, in bounded memory, each block knowing where it stood.

A block is what `Namespace.write` takes: a list of dicts from JSON lines, where a key that is not
there is an absent attribute and null is null, or an Arrow batch from the columnar formats, where
null is null.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from reef.cli.csv_source import csv_batches
from reef.cli.json_source import json_blocks
from reef.data.schema import Schema
from reef.errors import ConditionFailed, InvalidInput

FORMATS = ("jsonl", "csv", "parquet", "arrow")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_LARGEST = 16 << 20
_ROW = re.compile(r"\brow (\d+)")


@dataclass(frozen=True)
class Block:
    """Rows of a file. `first` is the number of its first row there, from 1 on; a JSON block
    with blank lines between its rows has the number of every row's line in `lines`."""

    rows: Any
    first: int
    file: str
    unit: str = "row"
    lines: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, error: InvalidInput) -> InvalidInput:
        """The same error, saying where in the file the row is that it speaks of."""

        def renumbered(found: re.Match[str]) -> str:
            row = int(found[1])
            number = self.lines[row] if row < len(self.lines) else self.first + row
            return f"{self.unit} {number}"

        return type(error)(f"{self.file}: {_ROW.sub(renumbered, str(error))}")

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Let errors about this block's rows say where in the file they are."""
        try:
            yield
        except InvalidInput as error:
            raise self.place(error) from None
        except ConditionFailed as error:
            said = f"{self.file}, {self.unit}s from {self.first} on: {error}"
            raise ConditionFailed(said, error.ids) from None


class Source:
    """A file (or "-", stdin) that is read block by block. To be closed."""

    def __init__(self, path: str, kind: str | None, schema: Schema, id_column: str | None):
        self.path = path
        self.name = "stdin" if path == "-" else path
        self.format = kind or format_of(path)
        self._schema = schema
        self._id = id_column
        if path == "-":
            self._file: IO[bytes] = sys.stdin.buffer
            self.size = 0
        else:
            self._file = io.BufferedReader(io.FileIO(path))
            self.size = Path(path).stat().st_size

    @property
    def position(self) -> int:
        """How many bytes of the file are behind us, about."""
        return self._file.tell() if self.size and not self._file.closed else 0

    def close(self) -> None:
        """Close the file, unless it is stdin."""
        if self.path != "-":
            self._file.close()

    def blocks(self, most: int) -> Iterator[Block]:
        """Blocks of at most that many rows (and a bounded number of bytes)."""
        try:
            if self.format == "jsonl":
                yield from self._json(most)
            else:
                yield from self._arrow(most)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            said = " ".join(str(error).split())
            raise InvalidInput(f"{self.name} is not good {self.format}: {said}") from None
        except OSError as error:
            # Arrow has many OSErrors for files that are cut short; Python's own carry a number.
            if error.errno is not None:
                raise
            raise InvalidInput(f"{self.name} is not good {self.format}: {error}") from None

    def _json(self, most: int) -> Iterator[Block]:
        for rows, first, lines in json_blocks(self._file, self.name, self._schema, most, _LARGEST):
            if self._id is not None and self._id != "id":
                _rename_keys(rows, self._id, lines or range(first, first + len(rows)))
            yield Block(rows, first, self.name, "line", lines)

    def _arrow(self, most: int) -> Iterator[Block]:
        # The header of a CSV file is its first row.
        first = 2 if self.format == "csv" else 1
        for batch in self._batches(most):
            step = most
            if batch.nbytes > _LARGEST:
                step = min(most, max(1, batch.num_rows * _LARGEST // batch.nbytes))
            for start in range(0, batch.num_rows, step):
                piece = batch.slice(start, step)
                yield Block(piece, first, self.name)
                first += piece.num_rows

    def _batches(self, most: int) -> Iterable[pa.RecordBatch]:
        if self.format == "csv":
            return csv_batches(self._file, self.name, self._schema, self._id)
        if self.format == "parquet":
            batches = self._parquet(most)
        else:
            batches = self._ipc()
        if self._id is None or self._id == "id":
            return batches
        return (_renamed(batch, self._id) for batch in batches)

    def _parquet(self, most: int) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        if self.path == "-":
            raise InvalidInput("parquet cannot be read from stdin: its directory is at its end")
        with pq.ParquetFile(self._file, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=min(most, 65_536))

    def _ipc(self) -> Iterator[pa.RecordBatch]:
        if self.path != "-":
            magic = self._file.read(6)
            self._file.seek(0)
            if magic == b"ARROW1":
                with pa.ipc.open_file(self._file) as file:
                    for number in range(file.num_record_batches):
                        yield file.get_batch(number)
                return
        with pa.ipc.open_stream(self._file) as stream:
            yield from stream


def format_of(path: str) -> str:
    """The format that a file's name stands for, or `InvalidInput`."""
    if path == "-":
        return "jsonl"
    found = _SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise InvalidInput(f"the format of {path} is not clear from its name: give --format")
    return found


def _renamed(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    names = batch.schema.names
    if name not in names:
        raise InvalidInput(f"there is no column {name!r} to take ids from")
    if "id" in names:
        raise InvalidInput(f'there is a column "id" besides the id column {name!r}')
    return batch.rename_columns(["id" if known == name else known for known in names])


def _rename_keys(rows: list[dict[str, Any]], name: str, numbers: Sequence[int]) -> None:
    for at, row in enumerate(rows):
        if "id" in row:
            raise InvalidInput(f'line {numbers[at]} has an "id" besides the id column {name!r}')
        if name not in row:
            raise InvalidInput(f"line {numbers[at]} has no {name!r} to take the id from")
        row["id"] = row.pop(name)

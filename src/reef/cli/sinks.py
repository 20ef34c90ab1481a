"""Scans written out: JSON lines, CSV, Arrow, Parquet, or a table to look at."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from reef.cli.output import Advance, is_terminal, print_table, progress
from reef.data.documents import is_json

if TYPE_CHECKING:
    from reef.documents.scan import Scan

FORMATS = ("jsonl", "csv", "arrow", "parquet", "table")
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow",
             ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow"}  # fmt: skip
_PAGE = 200
_LINES = 2_000
_WIDEST = 60
_encoder = msgspec.json.Encoder()


def format_of(path: str | None) -> str:
    """The format that a file's name stands for; JSON lines if it stands for none."""
    return "jsonl" if path is None else _SUFFIXES.get(Path(path).suffix.lower(), "jsonl")


def write_scan(scan: Scan, kind: str, path: str | None) -> int:
    """Write everything, to stdout without a path, and return how many rows there were."""
    if kind == "table":
        if path is not None:
            raise click.UsageError("a table is for looking at: it goes to stdout only")
        return _table(scan)
    if path is None and kind in ("arrow", "parquet") and is_terminal():
        raise click.UsageError(f"{kind} is not for terminals: give -o FILE or redirect stdout")
    with _target(path) as file:
        if path is None:
            # The rows themselves show how far it is.
            return _write(scan, file, kind, lambda rows, done: None, stream=True)
        with progress(f"writing {path}", None) as advance:
            return _write(scan, file, kind, advance, stream=False)


def _write(scan: Scan, file: IO[bytes], kind: str, advance: Advance, *, stream: bool) -> int:
    if kind == "jsonl":
        return _json(scan, file, advance)
    if kind == "csv":
        return _csv(scan, file, advance)
    return _arrow(scan, file, kind, advance, stream=stream)


@contextmanager
def _target(path: str | None) -> Iterator[IO[bytes]]:
    """Stdout, or a file that appears under its name only when it is complete."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _json(scan: Scan, file: IO[bytes], advance: Advance) -> int:
    floats = [
        field.name
        for field in scan.schema
        if pa.types.is_float64(field.type)
        or (pa.types.is_list(field.type) and pa.types.is_float64(field.type.value_type))
    ]
    rows = 0
    documents = scan.documents()
    with_id = "id" in scan.schema.names
    while some := list(islice(documents, _LINES)):
        if not with_id:
            for document in some:
                del document["id"]
        file.write(json_lines(some, floats))
        rows += len(some)
        advance(rows, 0)
    return rows


def json_lines(documents: list[dict[str, Any]], floats: Iterable[str]) -> bytes:
    """Documents as JSON, a line each. Timestamps are ISO 8601, bytes base64, and numbers of
    the attributes named in `floats` that JSON lacks are "NaN", "Infinity" and "-Infinity"."""
    for name in floats:
        for document in documents:
            value = document.get(name)
            if value is None or (type(value) is float and isfinite(value)):
                continue
            document[name] = _spelled(value)
    return _encoder.encode_lines(documents)


def _spelled(value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    if not isinstance(value, float) or isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _arrow(scan: Scan, file: IO[bytes], kind: str, advance: Advance, *, stream: bool) -> int:
    import pyarrow.parquet as pq

    rows = 0
    writer: Any
    if kind == "parquet":
        writer = pq.ParquetWriter(file, scan.schema, compression="zstd")
    elif stream:
        writer = pa.ipc.new_stream(file, scan.schema)
    else:
        writer = pa.ipc.new_file(file, scan.schema)
    with writer:
        for batch in scan:
            writer.write_batch(batch)
            rows += batch.num_rows
            advance(rows, 0)
    return rows


def _csv(scan: Scan, file: IO[bytes], advance: Advance) -> int:
    from pyarrow.csv import CSVWriter

    fields = [pa.field(f.name, _csv_type(f.type)) for f in scan.schema]
    rows = 0
    schema = pa.schema(fields)
    with CSVWriter(file, schema) as writer:
        for batch in scan:
            columns = [
                _csv_column(column, field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            rows += batch.num_rows
            advance(rows, 0)
    return rows


def _csv_type(kind: pa.DataType) -> pa.DataType:
    texts = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind)
    return pa.string() if texts else kind


def _csv_column(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(column.type):
        return pc.replace_substring(column.cast(wanted), " ", "T")
    cells = column.to_pylist()
    if pa.types.is_nested(column.type):
        texts = [None if cell is None else _encoder.encode(_spelled(cell)) for cell in cells]
        return pa.array(texts, pa.binary()).cast(wanted)
    texts = [None if cell is None else base64.b64encode(cell) for cell in cells]
    return pa.array(texts, pa.binary()).cast(wanted)


def _table(scan: Scan) -> int:
    """Pages of rows, so that any number of them can pass by."""
    headers = scan.schema.names
    numbers = " ".join(
        field.name
        for field in scan.schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    )
    texts = {field.name for field in scan.schema if pa.types.is_string(field.type)}
    texts -= {field.name for field in scan.schema if is_json(field)}
    rows = 0
    documents = scan.documents()
    while some := list(islice(documents, _PAGE)):
        page = [[_cell(document, name, name in texts) for name in headers] for document in some]
        if rows and not is_terminal():
            click.echo()
        print_table(headers, page, numbers)
        rows += len(some)
    if not rows:
        print_table(headers, [], numbers)
    return rows


def _cell(document: dict[str, Any], name: str, text: bool) -> str:
    """A value in one line; nothing where it is absent."""
    if name not in document:
        return ""
    value = document[name]
    shown = str(value) if text and value is not None else _one_line(value)
    shown = "".join(letter if letter.isprintable() else "�" for letter in shown)
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 1]}…"


def _one_line(value: Any) -> str:
    shown = _spelled(value)
    return shown if isinstance(shown, str) else _encoder.encode(shown).decode().strip('"')

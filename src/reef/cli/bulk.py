"""`reef load` on Spark: files of any format that Spark reads, on as many machines as it has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from reef.cli.cluster import on_spark
from reef.cli.output import plain, print_json
from reef.cli.session import Session
from reef.cli.values import bytes_text, counted
from reef.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from reef.data.schema import Schema
    from reef.data.types import AttributeType
    from reef.spark.tenants import TenantsReport

MODES = ("upsert", "insert", "delete", "overwrite")
_SUFFIXES = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".csv": "csv",
             ".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".avro": "avro"}  # fmt: skip
_SPELLED = {"jsonl": "json"}


@dataclass(frozen=True)
class BulkLoad:
    """What was asked for."""

    paths: tuple[str, ...]
    format: str | None
    reader_options: tuple[str, ...]
    mode: str
    on_conflict: str
    id_column: str
    order_by: tuple[str, ...]
    tenant_column: str | None
    key: str | None
    create: bool


def load_on_spark(session: Session, namespace: str | None, asked: BulkLoad, master: str) -> None:
    """Read the files, load them, and say what was done."""
    from reef.data.schema import Schema
    from reef.spark.loading import load

    schema = Schema()
    with session.database(create=asked.create) as database:
        began = database.environment.monotonic()
        if namespace is not None and (not asked.create or database.exists(namespace)):
            with database.namespace(namespace, "r") as opened:
                schema = opened.schema
        with on_spark(session, master, "loading") as (bucket, spark, advance):
            frame = _typed(_read(spark, asked), schema, asked)
            choice: dict[str, Any] = {
                "mode": asked.mode,
                "on_conflict": asked.on_conflict,
                "id_column": asked.id_column,
                "order_by": asked.order_by or None,
                "key": asked.key,
                "progress": advance,
            }
            if asked.tenant_column is not None:
                choice["tenant_column"] = asked.tenant_column
            else:
                choice["namespace"] = namespace
            done: Any = load(frame, bucket, **choice)
        seconds = database.environment.monotonic() - began
    if asked.tenant_column is not None:
        _tell_tenants(session, done, seconds)
        return
    rate = round(done.rows / seconds) if seconds > 0 else 0
    if session.json:
        print_json({**plain(done), "seconds": round(seconds, 3), "rows_per_second": rate})
        return
    if done.replayed:
        click.echo(f"loaded before with this key, at lsn {done.lsn}; nothing was done")
        return
    counts = [f"{done.deleted:,} deleted" if done.deleted else "",
              f"{done.skipped:,} skipped" if done.skipped else ""]  # fmt: skip
    what = "".join(f", {text}" for text in counts if text)
    click.echo(
        f"{counted(done.rows, 'row')}{what} in {counted(done.segments, 'segment')}"
        f" ({bytes_text(done.bytes)}), {seconds:.1f} s, {rate:,} rows/s, lsn {done.lsn}"
    )


def _tell_tenants(session: Session, done: TenantsReport, seconds: float) -> None:
    if session.json:
        print_json({**plain(done), "seconds": round(seconds, 3)})
        return
    click.echo(
        f"{counted(done.rows, 'row')} into {counted(len(done.loaded), 'namespace')},"
        f" {seconds:.1f} s"
    )


def _format(asked: BulkLoad) -> str:
    """What Spark calls the format of the files."""
    if asked.format is not None:
        return _SPELLED.get(asked.format, asked.format)
    kinds = {_SUFFIXES.get(PurePath(path).suffix.lower()) for path in asked.paths}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    if kind is None:
        raise InvalidInput("the format is not clear from the names: give --format")
    return kind


def _read(spark: SparkSession, asked: BulkLoad) -> DataFrame:
    kind = _format(asked)
    reader = spark.read.format(kind)
    if kind == "csv":
        # As CSV is commonly written: a header, and quotes doubled inside of quotes.
        reader = reader.options(header="true", inferSchema="true", escape='"')
    for pair in asked.reader_options:
        name, mark, value = pair.partition("=")
        if not mark:
            raise InvalidInput(f"a reader option is written name=value, not {pair!r}")
        reader = reader.option(name, value)
    return reader.load(list(asked.paths))


def _typed(frame: DataFrame, schema: Schema, asked: BulkLoad) -> DataFrame:
    """The frame with the columns that the namespace knows as the types it knows them by: text
    formats have fewer types than it has."""
    from pyspark.sql import functions
    from pyspark.sql.types import LongType, StringType

    columns = []
    is_csv = _format(asked) == "csv"
    for field in frame.schema.fields:
        column = functions.col(f"`{field.name}`")
        kind = schema.attributes.get(field.name)
        if field.name == asked.id_column:
            wanted = LongType() if schema.id_kind == "uint64" else StringType()
            # In text, what looks like a number is an id all the same.
            if (schema.id_kind or is_csv) and field.dataType != wanted:
                column = column.cast(wanted)
        elif kind is not None:
            column = _as_kind(column, field.dataType, kind)
        columns.append(column.alias(field.name))
    return frame.select(columns)


def _as_kind(column: Column, given: DataType, kind: AttributeType) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import StringType

    from reef.spark.types import spark_type

    wanted = spark_type(kind)
    if given == wanted or kind.family == "json" or kind.is_open:
        return column
    if isinstance(given, StringType):
        if kind.family in ("list", "vector"):
            return functions.from_json(column, wanted.simpleString())
        if kind.element == "bytes":
            return functions.unbase64(column)
    return column.cast(wanted)

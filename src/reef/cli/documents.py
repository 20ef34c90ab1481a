"""`reef get`, `scan`, `count`, `delete`, `changes` and `export`."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from reef.cli.cluster import master_option, on_spark
from reef.cli.output import plain, print_json, progress
from reef.cli.session import Function, Session, common_options, pass_session
from reef.cli.values import (
    AGE,
    MOMENT,
    bytes_text,
    counted,
    just_after,
    parse_bound,
    parse_id,
    split_names,
)

if TYPE_CHECKING:
    from reef.data.schema import Schema
    from reef.documents.namespace import Namespace
    from reef.documents.reading import Reading


def time_travel(function: Function) -> Function:
    """Options that choose a state of the past."""
    function = click.option(
        "--time", "moment", type=MOMENT, help="As of a moment, or an age such as 2h ago."
    )(function)
    function = click.option("--lsn", type=int, help="As of a log slot.")(function)
    return click.option("--generation", type=int, help="As of a manifest generation.")(function)


def state_of(
    namespace: Namespace, generation: int | None, lsn: int | None, moment: datetime | None
) -> Reading:
    """The namespace itself, or its state of the past that was asked for."""
    given = [value for value in (generation, lsn, moment) if value is not None]
    if not given:
        return namespace
    if len(given) > 1:
        raise click.UsageError("give one of --generation, --lsn and --time")
    if moment is not None:
        moment = just_after(moment)
    return namespace.at(generation=generation, lsn=lsn, time=moment)


@click.command()
@click.argument("namespace")
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@click.option("--columns", metavar="A,B", help="Only these attributes.")
@time_travel
@common_options
@pass_session
def get(
    session: Session,
    namespace: str,
    ids: tuple[str, ...],
    columns: str | None,
    generation: int | None,
    lsn: int | None,
    moment: datetime | None,
) -> None:
    """Print documents as JSON, a line each. Exits with 1 if one is not there."""
    from reef.cli.sinks import json_lines

    with session.reader(namespace) as opened:
        state = state_of(opened, generation, lsn, moment)
        schema = state.schema
        wanted = None if columns is None else split_names(columns)
        keys = [parse_id(text, schema) for text in ids]
        found = state.get_many(keys, columns=wanted)
    floats = _floats(schema)
    documents = [document for document in found if document is not None]
    sys.stdout.flush()
    sys.stdout.buffer.write(json_lines(documents, floats))
    missing = [text for text, document in zip(ids, found, strict=True) if document is None]
    if missing:
        raise _NotThere(f"there is no document {', '.join(map(repr, missing))} in {namespace}")


def _floats(schema: Schema) -> list[str]:
    return [name for name, kind in schema.attributes.items() if kind.element == "float64"]


class _NotThere(click.ClickException):
    """Some of the ids asked for have no document."""


_NotThere.__name__ = "DocumentNotFound"


@click.command()
@click.argument("namespace")
@click.option("--start", metavar="ID", help="From this id on.")
@click.option("--stop", metavar="ID", help="Up to this id, without it.")
@click.option("--prefix", metavar="TEXT", help="Ids that begin so.")
@click.option("--columns", metavar="A,B", help="Only these, id among them if wanted.")
@click.option("--filter", "where", metavar="FILTER", help="Such as 'year >= 1980'.")
@click.option("--limit", type=click.IntRange(min=0), help="At most that many documents.")
@click.option("--reverse", is_flag=True, help="From the last id to the first.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["jsonl", "csv", "arrow", "parquet", "table"]),
    help="By the suffix of -o, else jsonl.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="A file instead of stdout.")
@time_travel
@common_options
@pass_session
def scan(
    session: Session,
    namespace: str,
    start: str | None,
    stop: str | None,
    prefix: str | None,
    columns: str | None,
    where: str | None,
    limit: int | None,
    reverse: bool,
    kind: str | None,
    output: str | None,
    generation: int | None,
    lsn: int | None,
    moment: datetime | None,
) -> None:
    """Print or export documents in the order of their ids."""
    from reef.cli.sinks import format_of, write_scan

    if session.json and output is None:
        if kind not in (None, "jsonl"):
            raise click.UsageError(f"--json and --format {kind} contradict each other")
        kind = "jsonl"
    with session.reader(namespace) as opened:
        state = state_of(opened, generation, lsn, moment)
        schema = state.schema
        found = state.scan(
            start=None if start is None else parse_bound(start, schema),
            stop=None if stop is None else parse_bound(stop, schema),
            prefix=prefix,
            columns=None if columns is None else split_names(columns),
            filter=where,
            limit=limit,
            reverse=reverse,
        )
        rows = write_scan(found, kind or format_of(output), output)
    if output is not None:
        if session.json:
            print_json({"rows": rows, "file": output})
        else:
            click.echo(f"{counted(rows, 'row')} to {output}")


@click.command()
@click.argument("namespace")
@click.option("--filter", "where", metavar="FILTER", help="Such as 'year >= 1980'.")
@time_travel
@common_options
@pass_session
def count(
    session: Session,
    namespace: str,
    where: str | None,
    generation: int | None,
    lsn: int | None,
    moment: datetime | None,
) -> None:
    """Count documents."""
    with session.reader(namespace) as opened:
        number = state_of(opened, generation, lsn, moment).count(where)
    if session.json:
        print_json({"count": number})
    else:
        click.echo(number)


@click.command()
@click.argument("namespace")
@click.argument("ids", nargs=-1, metavar="[ID…]")
@click.option("--where", metavar="FILTER", help="Every document that the filter keeps.")
@click.option("--idempotency-key", metavar="KEY", help="Done once, however often it is sent.")
@common_options
@pass_session
def delete(
    session: Session,
    namespace: str,
    ids: tuple[str, ...],
    where: str | None,
    idempotency_key: str | None,
) -> None:
    """Delete documents by id, or by a filter. Takes over from the namespace's writer."""
    if bool(ids) == (where is not None):
        raise click.UsageError("give ids or --where FILTER, one of the two")
    with session.database() as database:
        # Everything that can be refused is refused before the live writer is fenced.
        with database.namespace(namespace, "r") as reader:
            schema = reader.schema
            keys = [parse_id(text, schema) for text in ids]
            _check(schema, keys, where)
        with database.namespace(namespace, "w", create=False) as opened:
            receipt = opened.write(
                deletes=keys or None, delete_where=where, idempotency_key=idempotency_key
            )
    if session.json:
        print_json({"lsn": receipt.lsn, "deleted": receipt.deleted})
    else:
        click.echo(f"deleted {counted(receipt.deleted, 'id')} at lsn {receipt.lsn}")


def _check(schema: Schema, keys: list[str | int], where: str | None) -> None:
    from reef.data.ids import check_id
    from reef.documents.batches import parsed_filter

    for key in keys:
        check_id(key, schema)
    parsed_filter(where, schema)


@click.command()
@click.argument("namespace")
@click.option("--after", type=click.IntRange(min=0), default=0, help="The last LSN seen.")
@click.option("--follow", is_flag=True, help="Wait for more, until interrupted.")
@click.option("--every", type=AGE, default=1.0, help="How often to look with --follow.")
@click.option("--limit", type=click.IntRange(min=0), help="At most that many changes.")
@common_options
@pass_session
def changes(
    session: Session, namespace: str, after: int, follow: bool, every: float, limit: int | None
) -> None:
    """Print the log as a feed: one line a change, with its LSN.

    Lines are JSON with --json; otherwise LSN, moment, kind, id and document with tabs between.
    """
    import msgspec

    from reef.cli.sinks import json_lines

    encode = msgspec.json.encode
    left = limit
    with session.database() as database, database.namespace(namespace, "r") as opened:
        while left != 0:
            floats = _floats(opened.schema)
            for change in opened.changes(after=after):
                after = change.lsn
                document = None
                if change.document is not None:
                    document = msgspec.Raw(json_lines([change.document], floats).rstrip())
                if session.json:
                    line = encode(
                        {
                            "lsn": change.lsn,
                            "kind": change.kind,
                            "id": change.id,
                            "document": document,
                            "created_at": change.created_at,
                        }
                    ).decode()
                else:
                    at = change.created_at.isoformat(timespec="microseconds")
                    shown = "" if document is None else bytes(document).decode()
                    identity = "" if change.id is None else change.id
                    line = f"{change.lsn}\t{at}\t{change.kind}\t{identity}\t{shown}".rstrip()
                sys.stdout.write(f"{line}\n")
                if left is not None:
                    left -= 1
                    if not left:
                        break
            sys.stdout.flush()
            if not follow:
                break
            if left != 0:
                database.environment.sleep(every)
                opened.refresh()


@click.command()
@click.argument("namespace")
@click.argument("destination")
@click.option("--columns", metavar="A,B", help="Only these, id among them if wanted.")
@click.option("--filter", "where", metavar="FILTER", help="Such as 'year >= 1980'.")
@click.option("--overwrite", is_flag=True, help="Replace an export that is there.")
@time_travel
@master_option
@common_options
@pass_session
def export(
    session: Session,
    namespace: str,
    destination: str,
    columns: str | None,
    where: str | None,
    overwrite: bool,
    generation: int | None,
    lsn: int | None,
    moment: datetime | None,
    master: str | None,
) -> None:
    """Write the documents as Parquet files to a folder or bucket, DESTINATION."""
    wanted = None if columns is None else split_names(columns)
    if master is None:
        with session.reader(namespace) as opened, progress("exporting", None, "files"):
            state = state_of(opened, generation, lsn, moment)
            done = state.export(destination, columns=wanted, filter=where, overwrite=overwrite)
    else:
        from reef.spark.export import export as export_there

        with on_spark(session, master, "exporting") as (bucket, spark, advance):
            done = export_there(
                bucket,
                namespace,
                destination,
                columns=wanted,
                filter=where,
                generation=generation,
                lsn=lsn,
                time=None if moment is None else just_after(moment),
                overwrite=overwrite,
                session=spark,
                progress=advance,
            )
    if session.json:
        print_json({"namespace": namespace, "destination": destination, **plain(done)})
        return
    click.echo(
        f"{counted(done.rows, 'document')} in {counted(len(done.files), 'file')},"
        f" {bytes_text(done.bytes)}; generation {done.generation}, lsn {done.lsn}"
    )

"""`reef write` and `reef load`: files into a namespace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from reef.cli.bulk import MODES, BulkLoad, load_on_spark
from reef.cli.cluster import master_option
from reef.cli.output import print_json, progress
from reef.cli.session import Session, common_options, pass_session
from reef.cli.values import counted, split_names
from reef.errors import (
    Backpressure,
    CommitUncertain,
    ConditionFailed,
    Fenced,
    InvalidInput,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from reef.cli.sources import Block, Source
    from reef.data.schema import Schema
    from reef.lsm.options import Options
    from reef.lsm.write.batch import Receipt

_FORMATS = click.Choice(["jsonl", "csv", "parquet", "arrow"])
_LOAD_ROWS = 65_536
_TOLD = (InvalidInput, Fenced, Backpressure, CommitUncertain, StoreUnavailable)


@click.command()
@click.argument("namespace")
@click.argument("file", default="-")
@click.option("--format", "kind", type=_FORMATS, help="By the file's suffix; jsonl for stdin.")
@click.option(
    "--op", type=click.Choice(["upsert", "patch", "delete"]), default="upsert",
    help="What each row does; of rows to delete only the id counts.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(min=1), default=10_000, help="Rows a commit.")
@click.option("--id-column", metavar="NAME", help="Where the id stands, if not under id.")
@click.option("--if-absent", is_flag=True, help="Only ids that have no document.")
@click.option("--if-exists", is_flag=True, help="Only ids that have one.")
@click.option(
    "--on-conflict", type=click.Choice(["refuse", "skip"]), default="refuse",
    help="What becomes of rows whose condition does not hold.",
)  # fmt: skip
@click.option(
    "--idempotency-key", metavar="KEY",
    help="Makes sending the same file again harmless (with the same --batch).",
)  # fmt: skip
@click.option("--create", is_flag=True, help="Make the namespace if it is not there.")
@common_options
@pass_session
def write(
    session: Session,
    namespace: str,
    file: str,
    kind: str | None,
    op: str,
    batch: int,
    id_column: str | None,
    if_absent: bool,
    if_exists: bool,
    on_conflict: str,
    idempotency_key: str | None,
    create: bool,
) -> None:
    """Write the rows of a FILE, or of stdin ("-"), batch by batch.

    Every batch is durable when it is counted. Takes over from the namespace's writer.
    """
    from reef.cli.sources import Source
    from reef.documents.conditions import if_absent as absent
    from reef.documents.conditions import if_exists as exists

    if if_absent and if_exists:
        raise click.UsageError("give one of --if-absent and --if-exists")
    condition = absent() if if_absent else exists() if if_exists else None
    if condition is None and on_conflict == "skip":
        raise click.UsageError("--on-conflict skip needs --if-absent or --if-exists")
    with session.database(create=create) as database, ExitStack() as closing:
        began = database.environment.monotonic()
        if create and not database.exists(namespace):
            schema = _empty()
        else:
            with database.namespace(namespace, "r") as reader:
                schema = reader.schema
        source = Source(file, kind, schema, id_column)
        closing.callback(source.close)
        blocks = source.blocks(batch)
        # A file that is no good from the start must not fence the live writer.
        first = next(blocks, None)
        total = Totals()
        if first is not None:
            make_batch = _operation(op)
            _check(first, schema, database.options, make_batch)
            opened = closing.enter_context(database.namespace(namespace, "w", create=create))
            with progress(f"writing {source.name}", source.size) as advance, total.told():
                for number, block in enumerate(chain((first,), blocks), 1):
                    key = idempotency_key
                    if key is not None and number > 1:
                        key = f"{key}#{number}"
                    with block.placed():
                        receipt = opened.write(
                            **make_batch(block.rows),
                            condition=condition,
                            on_conflict=on_conflict,
                            idempotency_key=key,
                        )
                    total.add(len(block), receipt)
                    advance(total.rows, source.position)
        total.tell(session, database.environment.monotonic() - began)


def _empty() -> Schema:
    from reef.data.schema import Schema

    return Schema()


def _operation(op: str) -> Callable[[Any], dict[str, Any]]:
    """What `Namespace.write` is told to do with rows."""
    if op == "delete":
        return lambda rows: {"deletes": _ids(rows)}
    return lambda rows: {"upserts" if op == "upsert" else "patches": rows}


def _check(
    block: Block, schema: Schema, options: Options, operation: Callable[[Any], dict[str, Any]]
) -> None:
    """Refuse what can be refused without being the writer."""
    from reef.documents.batches import make_batch

    try:
        with block.placed():
            make_batch(schema, options, **operation(block.rows))
    except InvalidInput as error:
        raise type(error)(f"{error}; nothing was written") from None


def _ids(rows: Any) -> Any:
    if isinstance(rows, list):
        return [row.get("id") for row in rows]
    if "id" not in rows.schema.names:
        raise InvalidInput('there is no column "id"')
    return rows.column("id")


class Totals:
    """What the batches of one file came to."""

    def __init__(self) -> None:
        self.rows = 0
        self.batches = 0
        self.lsn = 0
        self.counts = dict.fromkeys(("upserted", "patched", "deleted", "missing", "rejected"), 0)

    def add(self, rows: int, receipt: Receipt) -> None:
        """Count a batch that was committed."""
        self.rows += rows
        self.batches += 1
        self.lsn = receipt.lsn
        for name in ("upserted", "patched", "deleted", "missing"):
            self.counts[name] += getattr(receipt, name)
        self.counts["rejected"] += len(receipt.rejected)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Let errors say what is written although the work could not go on."""
        try:
            yield
        except (*_TOLD, ConditionFailed) as error:
            what = "nothing was written"
            if self.rows:
                what = f"{counted(self.rows, 'row')} before are written, through lsn {self.lsn}"
            if isinstance(error, ConditionFailed):
                raise ConditionFailed(f"{error}; {what}", error.ids) from None
            raise type(error)(f"{error}; {what}") from None

    def tell(self, session: Session, seconds: float) -> None:
        """Rows, and how fast they went."""
        rate = round(self.rows / seconds) if seconds > 0 else 0
        if session.json:
            print_json(
                {
                    "rows": self.rows,
                    "batches": self.batches,
                    "lsn": self.lsn,
                    **self.counts,
                    "seconds": round(seconds, 3),
                    "rows_per_second": rate,
                }
            )
            return
        parts = [f"{number:,} {name}" for name, number in self.counts.items() if number]
        what = f" ({', '.join(parts)})" if parts else ""
        lsn = f", lsn {self.lsn}" if self.batches else ""
        click.echo(f"{counted(self.rows, 'row')}{what} in {seconds:.1f} s, {rate:,} rows/s{lsn}")


@click.command()
@click.argument("namespace")
@click.option("--from", "files", metavar="FILE", multiple=True, help="May be repeated.")
@click.argument("more", nargs=-1, metavar="[FILE…]")
@click.option(
    "--format", "kind", metavar="NAME",
    help="jsonl, csv, parquet or arrow, by the files' suffixes; on Spark whatever it reads.",
)  # fmt: skip
@click.option("--id-column", metavar="NAME", help="Where the id stands, if not under id.")
@click.option("--truncate", is_flag=True, help="Replace everything that is there.")
@click.option("--idempotency-key", metavar="KEY", help="Done once, however often it is sent.")
@click.option("--create", is_flag=True, help="Make the namespace if it is not there.")
@master_option
@click.option("--mode", type=click.Choice(MODES), default="upsert", help="On Spark: what rows do.")
@click.option(
    "--on-conflict", type=click.Choice(["refuse", "skip"]), default="refuse",
    help="On Spark, with --mode insert: what becomes of ids that are there.",
)  # fmt: skip
@click.option(
    "--order-by", metavar="A,B", help="On Spark: of rows with one id, keep the last by these."
)
@click.option(
    "--tenant-column", metavar="NAME",
    help='On Spark: the column that names each row\'s namespace (give "-" as NAMESPACE).',
)  # fmt: skip
@click.option(
    "--reader-option", "reader_options", metavar="NAME=VALUE", multiple=True,
    help="On Spark: an option of its reader. May be repeated.",
)  # fmt: skip
@common_options
@pass_session
def load(
    session: Session,
    namespace: str,
    files: tuple[str, ...],
    more: tuple[str, ...],
    kind: str | None,
    id_column: str | None,
    truncate: bool,
    idempotency_key: str | None,
    create: bool,
    master: str | None,
    mode: str,
    on_conflict: str,
    order_by: str | None,
    tenant_column: str | None,
    reader_options: tuple[str, ...],
) -> None:
    """Load files in bulk, as one atomic write; the last row of an id wins.

    The namespace's live writer is not disturbed. With --master Spark reads and sorts the files:
    there rows have no order, so several rows of an id are an error unless --order-by is given.
    """
    paths = (*files, *more)
    if not paths:
        raise click.UsageError("give files with --from FILE…")
    if master is not None:
        if (namespace == "-") != (tenant_column is not None):
            raise click.UsageError('--tenant-column goes with "-" as the namespace')
        if truncate and mode not in ("upsert", "overwrite"):
            raise click.UsageError(f"--truncate and --mode {mode} contradict each other")
        asked = BulkLoad(
            paths,
            kind,
            reader_options,
            "overwrite" if truncate else mode,
            on_conflict,
            id_column or "id",
            tuple(split_names(order_by)) if order_by else (),
            tenant_column,
            idempotency_key,
            create,
        )
        load_on_spark(session, None if tenant_column else namespace, asked, master)
        return
    for option, given in (
        ("--mode", mode != "upsert"),
        ("--on-conflict", on_conflict != "refuse"),
        ("--order-by", order_by is not None),
        ("--tenant-column", tenant_column is not None),
        ("--reader-option", bool(reader_options)),
    ):
        if given:
            raise click.UsageError(f"{option} needs --master, such as --master local[*]")
    if kind is not None and kind not in _FORMATS.choices:
        raise click.UsageError(f"--format {kind} needs --master, such as --master local[*]")
    _load_here(session, namespace, paths, kind, id_column, truncate, idempotency_key, create)


def _load_here(
    session: Session,
    namespace: str,
    paths: tuple[str, ...],
    kind: str | None,
    id_column: str | None,
    truncate: bool,
    idempotency_key: str | None,
    create: bool,
) -> None:
    from reef.cli.sources import Source
    from reef.errors import NamespaceExists

    with session.database(create=create) as database, ExitStack() as closing:
        began = database.environment.monotonic()
        if create:
            with suppress(NamespaceExists):
                database.create(namespace)
        opened = closing.enter_context(database.namespace(namespace, "r"))
        sources = []
        for path in paths:
            sources.append(Source(path, kind, opened.schema, id_column))
            closing.callback(sources[-1].close)
        with progress("loading", sum(source.size for source in sources)) as advance:
            pieces = _Pieces(sources, advance)
            try:
                receipt = opened.load(
                    iter(pieces), idempotency_key=idempotency_key, truncate=truncate
                )
            except InvalidInput as error:
                raise pieces.place(error) from None
        seconds = database.environment.monotonic() - began
    rate = round(pieces.rows / seconds) if seconds > 0 else 0
    if session.json:
        print_json(
            {
                "rows": pieces.rows,
                "upserted": receipt.upserted,
                "lsn": receipt.lsn,
                "seconds": round(seconds, 3),
                "rows_per_second": rate,
            }
        )
    else:
        click.echo(
            f"{counted(pieces.rows, 'row')} ({receipt.upserted:,} documents) in {seconds:.1f} s,"
            f" {rate:,} rows/s, lsn {receipt.lsn}"
        )


class _Pieces:
    """The blocks of all files one after the other, remembering which is at work."""

    def __init__(self, sources: list[Source], advance: Any) -> None:
        self._sources = sources
        self._advance = advance
        self._block: Block | None = None
        self.rows = 0

    def __iter__(self) -> Iterator[Any]:
        behind = 0
        for source in self._sources:
            for self._block in source.blocks(_LOAD_ROWS):
                self.rows += len(self._block)
                yield self._block.rows
                self._advance(self.rows, behind + source.position)
            self._block = None
            behind += source.size

    def place(self, error: InvalidInput) -> InvalidInput:
        """The error with the file and the row that it is about."""
        placed = error if self._block is None else self._block.place(error)
        return type(error)(f"{placed}; nothing was loaded")

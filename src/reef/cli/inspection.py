"""`reef status`, `stats` and `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reef.cli.cluster import master_option, on_spark, parts_shown
from reef.cli.output import print_facts, print_json, print_table, print_title
from reef.cli.session import Session, check_there, common_options, pass_session
from reef.cli.values import age_text, bytes_text, counted

if TYPE_CHECKING:
    from reef.documents.status import Status

PROBLEMS = 2


@click.command()
@click.argument("namespace")
@common_options
@pass_session
def status(session: Session, namespace: str) -> None:
    """Show the shape of the tree: levels, unfolded log, what waits for collection, epochs."""
    with session.reader(namespace) as opened:
        shape = opened.status()
    if session.json:
        print_json(shape)
    else:
        _print_status(shape)


def _print_status(shape: Status) -> None:
    print_title(f"{shape.namespace}: generation {shape.generation}, lsn {shape.lsn}")
    numbers = "runs segments rows tombstones bytes"
    rows = [
        [
            f"L{level.level}",
            f"{level.runs:,}",
            f"{level.segments:,}",
            f"{level.rows:,}",
            f"{level.tombstones:,}",
            bytes_text(level.bytes),
        ]
        for level in shape.levels
    ]
    total = [
        f"{sum(getattr(level, name) for level in shape.levels):,}"
        for name in ("runs", "segments", "rows", "tombstones")
    ]
    log = ["log", "", "", f"{shape.unfolded_rows:,}", "", bytes_text(shape.unfolded_bytes)]
    size = bytes_text(sum(level.bytes for level in shape.levels))
    print_table(["level", *numbers.split()], [log, *rows, ["all", *total, size]], numbers)
    slots = f"{shape.wal_floor} to {shape.lsn}" if shape.lsn >= shape.wal_floor else "none"
    print_facts(
        {
            "unfolded log": f"{counted(shape.unfolded_objects, 'object')}, slots {slots}",
            "bulk loads to fold": counted(shape.unfolded_ingests, "segment"),
            "folded through": f"lsn {shape.last_applied_lsn}",
            "waiting for gc": f"{counted(shape.superseded_objects, 'superseded object')},"
            f" {counted(shape.folded_slots, 'folded log slot')}",
            "orphan floor": f"generation {shape.orphan_floor}",
            "epochs": f"writer {shape.writer_epoch}, compactor {shape.compactor_epoch}",
            "ids": shape.id_kind or "not decided yet",
            "attributes": f"{len(shape.attributes)}",
            "idempotency window": counted(shape.window_segments, "segment"),
            "pinned": "; ".join(shape.pinned) or "none",
            "retention": f"{age_text(shape.retention)}, grace {age_text(shape.grace)}",
        }
    )


@click.command()
@click.argument("namespace")
@common_options
@pass_session
def stats(session: Session, namespace: str) -> None:
    """Show the schema, and what the segments' own statistics say of each attribute.

    Reads no rows: counts are of stored versions, and the unfolded log is not in them.
    """
    from reef.cli.statistics import gather

    with session.tree(namespace) as tree:
        tree.recover()
        found = gather(tree)
    if session.json:
        print_json({"namespace": namespace, **found.to_dict()})
        return
    print_title(f"{namespace}: {counted(found.rows, 'stored row')}, {bytes_text(found.bytes)}")
    rows = [
        [
            about.name,
            about.type,
            f"{about.values:,}",
            f"{about.nulls:,}",
            f"{about.absent:,}",
            bytes_text(about.bytes),
            _bound(about.minimum),
            _bound(about.maximum),
        ]
        for about in found.attributes
    ]
    headers = ["attribute", "type", "values", "nulls", "absent", "bytes", "min", "max"]
    print_table(headers, rows, "values nulls absent bytes")
    if found.unfolded:
        click.echo(f"(and {counted(found.unfolded, 'row')} in the unfolded log)")


def _bound(value: Any) -> str:
    if value is None:
        return "-"
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= 32 else f"{text[:31]}…"


@click.command()
@click.argument("namespace")
@click.option("--deep", is_flag=True, help="Check every block of every segment.")
@master_option
@common_options
@pass_session
def verify(session: Session, namespace: str, deep: bool, master: str | None) -> None:
    """Check manifests, log and segments. Exits with 2 if something is wrong."""
    from reef.lsm.repair.verify import verify as verify_tree

    if master is None:
        with session.tree(namespace) as tree:
            check_there(tree, namespace)
            with parts_shown("verifying", "objects") as advance:
                report = verify_tree(tree, deep=deep, progress=advance)
    else:
        from reef.spark.maintenance import verify as verify_there

        with on_spark(session, master, "verifying") as (bucket, spark, advance):
            report = verify_there(bucket, namespace, deep=deep, session=spark, progress=advance)
    if session.json:
        print_json({"namespace": namespace, "sound": report.sound, **_report(report)})
    else:
        for problem in report.problems:
            click.echo(f"{problem.key} at byte {problem.offset}: {problem.meaning}")
        checked = ", ".join(
            (
                counted(report.manifests, "manifest"),
                counted(report.log_objects, "log object"),
                f"{counted(report.segments, 'segment')}{' in depth' if deep else ''}",
            )
        )
        found = counted(len(report.problems), "problem") if report.problems else "sound"
        orphans = f" ({counted(report.orphans, 'orphan')} for gc)" if report.orphans else ""
        click.echo(f"{namespace}: {found}; checked {checked}{orphans}")
    if not report.sound:
        raise click.exceptions.Exit(PROBLEMS)


def _report(report: Any) -> dict[str, Any]:
    from reef.cli.output import plain

    return dict(plain(report))

"""`reef index`, `compact`, `gc`, `repair` and `rebuild`: none of them needs to be the writer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from reef.cli.cluster import master_option, on_spark
from reef.cli.output import plain, print_facts, print_json, print_table, progress
from reef.cli.session import Session, check_there, common_options, pass_session
from reef.cli.values import age_text, bytes_text, counted, moment_text

if TYPE_CHECKING:
    from reef.lsm.retention.collector import Collected
    from reef.lsm.upkeep.compact import Compacted
    from reef.lsm.upkeep.fold import Folded


@click.command()
@click.argument("namespace")
@click.option("--all", "everything", is_flag=True, help="Pass after pass, until nothing is left.")
@master_option
@common_options
@pass_session
def index(session: Session, namespace: str, everything: bool, master: str | None) -> None:
    """Fold a stretch of the log into segments."""
    if master is None:
        passes = _index_here(session, namespace, everything)
    else:
        from reef.spark.maintenance import fold

        with on_spark(session, master, "folding") as (bucket, spark, advance):
            passes = fold(bucket, namespace, everything=everything, session=spark, progress=advance)
    if session.json:
        print_json({"namespace": namespace, "passes": passes})
        return
    for folded in passes:
        click.echo(
            f"folded lsn {folded.first} to {folded.last}: {counted(folded.rows, 'row')},"
            f" {counted(folded.tombstones, 'tombstone')} in {counted(folded.segments, 'segment')},"
            f" {bytes_text(folded.bytes)}; generation {folded.generation}"
        )
    if not passes:
        click.echo("nothing to fold")


def _index_here(session: Session, namespace: str, everything: bool) -> list[Folded]:
    passes: list[Folded] = []
    with session.reader(namespace) as opened, progress("folding", None, "passes") as advance:
        # What is appended meanwhile is left: a busy writer must not keep this going for ever.
        until = opened.lsn
        while (folded := opened.index()) is not None:
            passes.append(folded)
            advance(len(passes), 0)
            if not everything or folded.last >= until:
                break
    return passes


@click.command()
@click.argument("namespace")
@click.option("--full", is_flag=True, help="Everything into one run.")
@click.option("--all", "everything", is_flag=True, help="Pass after pass, until nothing is left.")
@master_option
@common_options
@pass_session
def compact(
    session: Session, namespace: str, full: bool, everything: bool, master: str | None
) -> None:
    """Merge runs of segments; one pass that is worth doing, if there is one."""
    if master is None:
        passes = _compact_here(session, namespace, full, everything)
    else:
        from reef.spark.maintenance import compact as compact_there

        with on_spark(session, master, "compacting") as (bucket, spark, advance):
            passes = compact_there(
                bucket,
                namespace,
                full=full,
                everything=everything,
                session=spark,
                progress=advance,
            )
    if session.json:
        print_json({"namespace": namespace, "passes": passes})
        return
    for done in passes:
        click.echo(
            f"merged {counted(done.inputs, 'segment')} ({bytes_text(done.bytes_read)}) into"
            f" {counted(done.outputs, 'segment')} of level {done.level}"
            f" ({bytes_text(done.bytes_written)}), {counted(done.rows, 'row')};"
            f" generation {done.generation}"
        )
    if not passes:
        click.echo("nothing to compact")


def _compact_here(
    session: Session, namespace: str, full: bool, everything: bool
) -> list[Compacted]:
    passes: list[Compacted] = []
    with session.reader(namespace) as opened, progress("compacting", None, "passes") as advance:
        while (done := opened.compact(full=full)) is not None:
            passes.append(done)
            advance(len(passes), 0)
            if full or not everything:
                break
    return passes


@click.command()
@click.argument("namespace", required=False)
@click.option("--dropped", is_flag=True, help="What is left of namespaces that were dropped.")
@click.option("--apply", is_flag=True, help="Delete what is due.")
@common_options
@pass_session
def gc(session: Session, namespace: str | None, dropped: bool, apply: bool) -> None:
    """Show what nothing needs any more, why, and when it may go; delete what is due on --apply."""
    if (namespace is None) != dropped:
        raise click.UsageError("give a namespace, or --dropped for those that were dropped")
    with session.database() as database:
        if namespace is None:
            found = database.gc_dropped(apply=apply)
        else:
            with database.namespace(namespace, "r") as opened:
                found = {namespace: opened.gc(apply=apply)}
        now = database.environment.now()
    if session.json:
        answers = [_collected(name, collected) for name, collected in found.items()]
        print_json({"dropped": answers} if dropped else answers[0])
        return
    for name, collected in found.items():
        if dropped:
            click.echo(f"{name}:")
        _print_collected(collected, now)
    if not found:
        click.echo("nothing is left of namespaces that were dropped")


def _collected(namespace: str, collected: Collected) -> dict[str, Any]:
    plan = collected.plan
    return {
        "namespace": namespace,
        "applied": collected.applied,
        "deleted": collected.deleted,
        "bytes": collected.bytes if collected.applied else plan.bytes,
        "due": plan.due,
        "orphans": plan.orphans,
        "waiting": plan.waiting,
    }


def _print_collected(collected: Collected, now: float) -> None:
    plan = collected.plan
    due = (*plan.due, *plan.orphans)
    shown = [(item, "now") for item in due]
    for item in plan.waiting:
        left = None if item.due is None else age_text(max(item.due - now, 0))
        shown.append((item, "when it is released" if left is None else f"in {left}"))
    if not collected.applied and shown:
        rows = [
            [
                item.key,
                bytes_text(item.size),
                item.reason,
                when,
                "" if item.due is None else moment_text(item.due),
            ]
            for item, when in shown
        ]
        print_table(["object", "bytes", "why", "due", "since or from"], rows, "bytes")
    waiting = f"{counted(len(plan.waiting), 'object')} must wait"
    if collected.applied:
        size = bytes_text(collected.bytes)
        click.echo(f"deleted {counted(collected.deleted, 'object')}, {size}; {waiting}")
    else:
        hint = "; nothing was deleted: use --apply" if due else ""
        click.echo(
            f"{counted(len(due), 'object')} may go, {bytes_text(plan.bytes)}; {waiting}{hint}"
        )


@click.command()
@click.argument("namespace")
@click.option("--apply", is_flag=True, help="Do it.")
@common_options
@pass_session
def repair(session: Session, namespace: str, apply: bool) -> None:
    """Show how damage would be put right: what is set aside, what is rolled back; or do it."""
    from reef.lsm.repair.repair import repair as repair_tree

    # A damaged namespace may not open at all: nothing is read of it before.
    with session.tree(namespace) as tree:
        check_there(tree, namespace)
        with progress("examining", None, "passes"):
            done = repair_tree(tree, apply=apply)
    _print_outcome(session, namespace, done)


@click.command()
@click.argument("namespace")
@master_option
@common_options
@pass_session
def rebuild(session: Session, namespace: str, master: str | None) -> None:
    """Make all derived state anew from what the bucket holds."""
    from reef.lsm.repair.rebuild import rebuild as rebuild_tree

    if master is None:
        with session.tree(namespace) as tree:
            check_there(tree, namespace)
            with progress("rebuilding", None, "passes"):
                done = rebuild_tree(tree, name=namespace)
    else:
        from reef.spark.maintenance import rebuild as rebuild_there

        with on_spark(session, master, "rebuilding") as (bucket, spark, advance):
            done = rebuild_there(bucket, namespace, session=spark, progress=advance)
    _print_outcome(session, namespace, done)


def _print_outcome(session: Session, namespace: str, outcome: Any) -> None:
    """Every field of a result: lists as lines, the rest as facts."""
    fields = plain(outcome) if dataclasses.is_dataclass(outcome) else {"result": plain(outcome)}
    if session.json:
        print_json({"namespace": namespace, **fields})
        return
    print_facts({_words(k): _text(k, v) for k, v in fields.items() if not isinstance(v, list)})
    for name, items in fields.items():
        if not isinstance(items, list):
            continue
        click.echo(f"{_words(name)}: {'none' if not items else len(items)}")
        for item in items:
            click.echo(f"  {_line(item)}")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return bytes_text(value) if "bytes" in name else f"{value:,}"
    return _line(value)


def _line(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{_words(name)} {_line(value)}" for name, value in item.items())
    if isinstance(item, list):
        return " ".join(map(_line, item))
    return str(item)

"""`reef create`, `list` and `drop`."""

from __future__ import annotations

import click

from reef.cli.output import print_json
from reef.cli.session import Session, common_options, pass_session
from reef.cli.values import AGE, parse_attributes
from reef.errors import no_namespace


@click.command()
@click.argument("namespace")
@click.option("--schema", metavar="NAME=TYPE,…", multiple=True, help="Attributes and their types.")
@click.option(
    "--attribute", metavar="NAME=TYPE", multiple=True, help="One attribute; may be repeated."
)
@click.option("--ids", type=click.Choice(["string", "uint64"]), help="The kind of ids.")
@click.option("--retention", type=AGE, help="How long old states stay readable (default 1h).")
@click.option("--grace", type=AGE, help="How long unneeded objects are kept (default 15m).")
@common_options
@pass_session
def create(
    session: Session,
    namespace: str,
    schema: tuple[str, ...],
    attribute: tuple[str, ...],
    ids: str | None,
    retention: float | None,
    grace: float | None,
) -> None:
    """Make an empty namespace.

    Types: bool, int64, float64, string, bytes, timestamp, json, list<T>, vector<float32, N> and
    vector<float16, N>. What is not declared is taken from the first rows written.
    """
    from reef.manifest import Settings

    declared = parse_attributes((*schema, *attribute))
    if "id" in declared:
        raise click.UsageError("the kind of ids is said with --ids, not as an attribute")
    if ids:
        declared["id"] = ids
    usual = Settings()
    settings = Settings(
        retention=usual.retention if retention is None else retention,
        grace=usual.grace if grace is None else grace,
    )
    with session.database(create=True) as database:
        database.create(namespace, schema=declared, settings=settings)
    if session.json:
        print_json({"namespace": namespace, "created": True})
    else:
        click.echo(f"created {namespace}")


@click.command("list")
@common_options
@pass_session
def list_namespaces(session: Session) -> None:
    """List the namespaces of the bucket."""
    with session.database() as database:
        names = database.namespaces()
    if session.json:
        print_json({"namespaces": names})
    else:
        for name in names:
            click.echo(name)


@click.command()
@click.argument("namespace")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common_options
@pass_session
def drop(session: Session, namespace: str, yes: bool) -> None:
    """Drop a namespace and everything in it. There is no way back.

    It is gone at once; its objects are deleted by `gc --dropped`, once its retention has passed.
    """
    with session.database() as database:
        if not database.exists(namespace):
            raise no_namespace(namespace)
        if not yes:
            if session.json:
                raise click.UsageError("dropping a namespace with --json needs --yes")
            question = f"Drop namespace {namespace} and everything in it for good?"
            click.confirm(question, abort=True, err=True)
        database.drop(namespace)
    if session.json:
        print_json({"namespace": namespace, "dropped": True})
    else:
        click.echo(f"dropped {namespace}")

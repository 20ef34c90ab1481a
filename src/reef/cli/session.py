"""What holds for one run of the command line: the bucket, and how to answer."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from reef.documents.database import Database
    from reef.documents.namespace import Namespace
    from reef.lsm.tree import Tree

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass
class Session:
    """Filled in by the options that stand before and after the command."""

    bucket: str | None = None
    json: bool = False
    verbosity: int = 0
    interrupted: bool = False

    @contextmanager
    def database(self, *, create: bool = False) -> Iterator[Database]:
        """The bucket, closed afterwards. A folder is only made with `create`."""
        if not self.bucket:
            raise click.UsageError("no bucket: give --bucket URL or set REEF_BUCKET")
        from reef.documents.database import connect

        database = connect(self.bucket, create=create)
        try:
            yield database
        finally:
            database.close()

    @contextmanager
    def reader(self, name: str) -> Iterator[Namespace]:
        """A namespace open for reading; its writer is left alone."""
        with self.database() as database, database.namespace(name, "r") as namespace:
            yield namespace

    @contextmanager
    def tree(self, name: str) -> Iterator[Tree]:
        """A namespace's tree with nothing read of it yet, for work on one that may be damaged."""
        from reef.data.ids import check_namespace_name
        from reef.documents.database import PREFIX
        from reef.lsm.tree import Tree
        from reef.segment import BlockCache

        with self.database() as database:
            check_namespace_name(name)
            yield Tree(
                database.store.below(f"{PREFIX}{name}/"),
                database.environment,
                database.options,
                BlockCache(database.options.cache_bytes),
                name,
            )

    def start_logging(self) -> None:
        """Send the library's log to stderr, as loud as asked."""
        level = {0: logging.WARNING, 1: logging.INFO}.get(self.verbosity, logging.DEBUG)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("reef: %(message)s"))
        logger = logging.getLogger("reef")
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False


def check_there(tree: Tree, name: str) -> None:
    """`NamespaceNotFound` if the bucket holds no object of the namespace, sound or damaged."""
    from reef.errors import no_namespace
    from reef.lsm.retention.collect import list_objects

    if not list_objects(tree):
        raise no_namespace(name)


pass_session = click.make_pass_decorator(Session, ensure=True)


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = context.ensure_object(Session)
    name = parameter.name
    if not value or name is None:
        return
    if name == "verbosity":
        session.verbosity += value
        session.start_logging()
    else:
        setattr(session, name, value)


def common_options(function: Function) -> Function:
    """Options that may stand before the command as well as after it."""
    function = click.option(
        "-v", "--verbose", "verbosity", count=True, callback=_set, expose_value=False,
        help="Say more; -vv shows tracebacks.",
    )(function)  # fmt: skip
    function = click.option(
        "--json", "json", is_flag=True, callback=_set, expose_value=False,
        help="Answer in JSON.",
    )(function)  # fmt: skip
    return click.option(
        "--bucket", metavar="URL", callback=_set, expose_value=False,
        help="A folder, s3://…, gs://… or az://… (or REEF_BUCKET).",
    )(function)  # fmt: skip

"""Commands on a cluster: the option `--master`, and the Spark session behind it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from reef.cli.output import progress
from reef.cli.session import Function, Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reef.spark.executor import Progress


class WithoutPandas:
    """An import hook that hides pandas. Arrow imports it when it is there, to know its types:
    that takes longer than most commands, and none but those on Spark has frames."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuse pandas, and leave everything else to the other finders."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def master_option(function: Function) -> Function:
    """The option that sends the work to Spark."""
    return click.option(
        "--master",
        metavar="URL",
        help="Do it on Spark: local[*], or a cluster such as spark://host:7077.",
    )(function)


@contextmanager
def spark_session(master: str, *, loud: bool) -> Iterator[SparkSession]:
    """A Spark session on that master, stopped afterwards if it was started here. What its log
    says of an error comes again in the error itself, so it is silent unless `loud`."""
    from reef.spark.session import running_session
    from reef.spark.session import session as start

    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not WithoutPandas]
    before = running_session()
    with progress("starting Spark", None, "sessions"):
        session = start(master)
    if not loud:
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if before is None:
            session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        if before is None:
            session.stop()


@contextmanager
def parts_shown(what: str, unit: str = "parts") -> Iterator[Progress]:
    """Progress of work that is done in parts."""
    with progress(what, 100, unit=unit) as advance:
        yield lambda name, done, total: advance(done, 100 * done // max(total, 1))


@contextmanager
def on_spark(
    session: Session, master: str, what: str
) -> Iterator[tuple[str, SparkSession, Progress]]:
    """The bucket's address, a Spark session, and how to show progress."""
    if not session.bucket:
        raise click.UsageError("no bucket: give --bucket URL or set REEF_BUCKET")
    # The folder must be there: a mistyped address makes no bucket.
    with session.database():
        pass
    loud = session.verbosity > 1
    with (
        spark_session(master, loud=loud) as spark,
        parts_shown(what) as advance,
        _told_in_one_line(),
    ):
        yield session.bucket, spark, advance


class _SparkFailed(click.ClickException):
    """Spark could not do what it was asked to."""


_SparkFailed.__name__ = "SparkFailed"
# A condition that Spark names, or the Java exception that was at the bottom of it.
_NAMED = re.compile(r"\[[A-Z][A-Z_.]+\] [^\n]*")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.*)$", re.MULTILINE)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Let an error of Spark's own come out as the sentence that matters in it."""
    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if not kinds & {"PySparkException", "Py4JJavaError"}:
            raise
        text = str(error)
        found = [*_NAMED.findall(text)[-1:], *_CAUSE.findall(text)[-1:], text.strip()]
        raise _SparkFailed(f"Spark failed: {found[0].splitlines()[0]}") from error

"""`reef`: the commands, and what becomes of errors.

Exit codes: 0 fine; 1 an error, told in one line; 2 wrong usage, or problems found by `verify`;
130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

import reef
from reef.cli import documents, files, inspection, namespaces, upkeep
from reef.cli.cluster import WithoutPandas
from reef.cli.session import Session, common_options
from reef.errors import ReefError

ERROR, USAGE, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141


class Reef(click.Group):
    """The group of all commands, which turns every error into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run, and exit with the code that says how it went."""
        arguments = list(sys.argv[1:] if args is None else args)
        session = extra.setdefault("obj", Session())
        session.json = "--json" in arguments
        session.bucket = os.environ.get("REEF_BUCKET")
        session.start_logging()
        try:
            code = super().main(
                arguments, prog_name or "reef", complete_var, standalone_mode=False, **extra
            )
            sys.stdout.flush()
        except BaseException as error:
            code = _explain(error, session)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, before click makes something else of interrupts and closed pipes."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except OSError as error:
            if not _is_closed_pipe(error):
                raise
            raise click.exceptions.Exit(_give_up_output()) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one meets them, not by the alphabet."""
        return list(self.commands)


def _explain(error: BaseException, session: Session) -> int:
    # An interrupt may come out as another error, of an import that it broke off.
    if isinstance(error, KeyboardInterrupt) or session.interrupted:
        return INTERRUPTED
    if _is_closed_pipe(error):
        return _give_up_output()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ERROR
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    code, message, hint = ERROR, "", ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    if isinstance(error, click.Abort):
        message = "aborted"
    elif isinstance(error, click.ClickException):
        code, message = error.exit_code, error.format_message().rstrip(".")
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f" (see {error.ctx.command_path} --help)"
    elif isinstance(error, ReefError):
        message = str(error)
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        message = f"unexpected {type(error).__name__}: {error} (-vv shows where)"
    if session.verbosity > 1:
        traceback.print_exception(error)
    if session.json:
        import msgspec

        told = {"error": message, "type": type(error).__name__}
        click.echo(msgspec.json.encode(told).decode(), err=True)
    else:
        click.echo(f"reef: {' '.join(message.split())}{hint}", err=True)
    return code


def _give_up_output() -> int:
    """What is left in the buffer has nowhere to go; do not let the interpreter try."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return CLOSED_PIPE


def _is_closed_pipe(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EPIPE


@click.group(cls=Reef, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(reef.__version__, prog_name="reef", message="%(prog)s %(version)s")
@common_options
def cli() -> None:
    """Reef: a database whose only durable state is a bucket.

    Commands that look at a namespace or tend it never disturb its live writer; write and delete
    take over from it.
    """


for _command in (
    namespaces.create,
    namespaces.list_namespaces,
    namespaces.drop,
    files.write,
    files.load,
    documents.get,
    documents.scan,
    documents.count,
    documents.delete,
    documents.changes,
    documents.export,
    inspection.status,
    inspection.stats,
    inspection.verify,
    upkeep.index,
    upkeep.compact,
    upkeep.gc,
    upkeep.repair,
    upkeep.rebuild,
):
    cli.add_command(_command)


def main() -> NoReturn:
    """The entry point of the `reef` script."""
    sys.meta_path.insert(0, WithoutPandas)
    session = Session()

    def interrupt(number: int, frame: object) -> NoReturn:
        session.interrupted = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    cli.main(obj=session)


if __name__ == "__main__":
    main()

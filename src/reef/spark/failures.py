"""Errors that cross from tasks to the driver and keep their type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from reef import errors
from reef.errors import ConditionFailed, ReefError

# As the last line of a Python traceback shows it, inside whatever Spark wraps around it.
_SHOWN = re.compile(r"^[\s|]*reef\.errors\.(\w+): (.*)$", re.MULTILINE)


class Failure(msgspec.Struct, frozen=True):
    """What a task has to say about its input, as a value.

    A task that raises is run again, and what is wrong with the rows is wrong every time; so it
    hands this back, and the driver raises it.
    """

    kind: str
    message: str
    ids: tuple[str | int, ...] = ()

    @staticmethod
    def of(error: ReefError) -> Failure:
        """The failure that an error describes."""
        ids = error.ids if isinstance(error, ConditionFailed) else ()
        return Failure(type(error).__name__, str(error), ids)

    def error(self) -> ReefError:
        """The error that it describes."""
        return error_named(self.kind, self.message, self.ids)


def error_named(kind: str, message: str, ids: tuple[str | int, ...] = ()) -> ReefError:
    """An error of `reef.errors` by the name of its class; the root of them if there is none."""
    found = getattr(errors, kind, None)
    if not isinstance(found, type) or not issubclass(found, ReefError):
        found = ReefError
    if issubclass(found, ConditionFailed):
        return found(message, ids)
    # Some of them are made of a key and a reason; here there is only the sentence they came to.
    error = found.__new__(found)
    Exception.__init__(error, message)
    return error


def unwrap(error: BaseException) -> BaseException:
    """The error of Reef's that an error of Spark's was caused by; the error itself if by none."""
    if isinstance(error, ReefError):
        return error
    found = _SHOWN.findall(str(error))
    return error_named(*found[-1]) if found else error


@contextmanager
def spark_errors() -> Iterator[None]:
    """Let errors that tasks raised come out as what they were before Spark wrapped them."""
    try:
        yield
    except Exception as error:
        inner = unwrap(error)
        if inner is error:
            raise
        raise inner from None

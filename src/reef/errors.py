"""Every error that Reef raises: a small tree under `ReefError`, one clear sentence each."""

from __future__ import annotations

from collections.abc import Sequence


class ReefError(Exception):
    """The root of every error that Reef raises on purpose."""


class InvalidInput(ReefError, ValueError):
    """The caller passed something that Reef refuses; nothing was written."""


class InvalidName(InvalidInput):
    """A namespace or attribute name, or a bucket URL, that cannot be used."""


class InvalidId(InvalidInput):
    """A document id that is empty, too long, malformed, or of the wrong kind."""


class InvalidFilter(InvalidInput):
    """A filter that does not parse, or that names a column or type that is not there."""


class SchemaConflict(InvalidInput):
    """A value whose type or dimension disagrees with the namespace's schema."""


class BatchTooLarge(InvalidInput):
    """A batch over the size limit."""


class ConditionFailed(ReefError):
    """A conditional write that did not hold; nothing of the batch was written."""

    def __init__(self, message: str, ids: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.ids = tuple(ids)


class Fenced(ReefError):
    """Another writer took over this namespace; open it again to write."""


class Backpressure(ReefError):
    """The unfolded log has reached its limit; nothing was written."""


class CommitUncertain(ReefError):
    """The store did not say whether the commit happened; it did entirely or not at all."""


class ConcurrentPublication(ReefError):
    """A publication was abandoned because a concurrent one made it senseless."""


class Closed(ReefError):
    """The namespace handle was closed."""


class ReadOnly(ReefError):
    """A write on a handle opened for reading."""


class NamespaceNotFound(ReefError):
    """There is no such namespace in the bucket."""


class NamespaceDropped(NamespaceNotFound, Fenced):
    """The namespace was dropped: it is not there, and whoever wrote to it is superseded.

    `lsn` is the log slot that says so, 0 if that was not where it was found.
    """

    def __init__(self, name: str, lsn: int = 0, *, since: str = "it was dropped") -> None:
        super().__init__(f"there is no namespace {name!r}: {since}")
        self.lsn = lsn


class NamespaceExists(ReefError):
    """A namespace of that name is already in the bucket."""


class PastRetention(ReefError):
    """The version asked for is older than what the bucket still holds."""


class Corruption(ReefError):
    """An object whose bytes are not what was written: names the object and the offset."""

    def __init__(self, key: str, reason: str, offset: int = 0) -> None:
        super().__init__(f"{key} is damaged at byte {offset}: {reason}")
        self.key = key
        self.reason = reason
        self.offset = offset


class UnsupportedFormat(ReefError):
    """An object written by a newer version of Reef."""


class SparkUnavailable(ReefError):
    """Spark was asked for, and it or its Java is not installed."""


class StoreError(ReefError):
    """The bucket could not do what was asked."""


class StoreUnavailable(StoreError):
    """The bucket did not answer, or answered with a passing failure, through all retries."""


class StoreFull(StoreError):
    """The bucket has no room, or a quota is used up; nothing was written."""


class UnsafeStore(StoreError):
    """The bucket does not keep put-if-absent, so writes could be lost; see docs/stores.md."""


class AccessDenied(StoreError):
    """The bucket refused the credentials, or its file system does not permit it."""


class BucketNotFound(StoreError):
    """The bucket does not exist."""


class ObjectNotFound(StoreError):
    """There is no object under this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no object {key}")
        self.key = key


class AlreadyExists(StoreError):
    """A put-if-absent found an object in its place (or may have: see the store's contract)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"an object {key} is already there")
        self.key = key


class PreconditionFailed(StoreError):
    """A conditional overwrite found another version than the one it was made against."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key} is not at the expected version")
        self.key = key


def no_namespace(name: str, bucket: str = "") -> NamespaceNotFound:
    """The error for a name that nothing is called in the bucket."""
    what = f"namespace {name!r}" if name else "such namespace"
    return NamespaceNotFound(
        f"there is no {what} in " + (f"the bucket {bucket!r}" if bucket else "this bucket")
    )

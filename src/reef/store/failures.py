"""What a service's failure means, in Reef's errors."""

from __future__ import annotations

import re

from obstore.exceptions import (
    AlreadyExistsError,
    InvalidPathError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from reef.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    InvalidName,
    ObjectNotFound,
    PreconditionFailed,
    ReefError,
    StoreError,
    StoreUnavailable,
)
from reef.store.redact import redacted_text

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
_NO_ACCESS = ("ExpiredToken", "InvalidToken", "AuthenticationFailed")
# Where the client library looks for a machine's role when it finds no credentials.
_ROLE_ADDRESSES = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")


def translate(error: BaseException, key: str, url: str, *, conditional: bool = False) -> ReefError:
    """The error to raise for what the client library raised. Only the failure of a conditional
    write can say that an object is there, or is not at a version."""
    text = str(error)
    if any(code in text for code in _NO_BUCKET):
        return BucketNotFound(f"there is no bucket at {url}")
    if isinstance(error, FileNotFoundError):
        return ObjectNotFound(key)
    if conditional and isinstance(error, PreconditionError):
        return PreconditionFailed(key)
    # Some servers answer 304 where a write was not to be made.
    if conditional and isinstance(error, AlreadyExistsError | NotModifiedError):
        return AlreadyExists(key)
    if isinstance(error, InvalidPathError):
        return InvalidName(f"object key {key!r} is not one that {url} takes")
    status = _status(text)
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    if denied or status in (401, 403) or any(code in text for code in _NO_ACCESS):
        return AccessDenied(f"{url} refused the credentials: {_reason(text)}")
    if any(address in text for address in _ROLE_ADDRESSES):
        return AccessDenied(f"no credentials for {url} were found in the environment")
    if 300 <= status < 400 or "redirect" in text:
        return StoreError(f"{url} sends requests elsewhere: its region or endpoint may be wrong")
    if 400 <= status < 500 and status not in (408, 409, 423, 425, 429):
        return StoreError(f"{url} refused a request for {key!r}: {_reason(text)}")
    return StoreUnavailable(f"{url} did not serve {key!r}: {_reason(text)}")


def translate_listing(error: BaseException, prefix: str, url: str) -> ReefError:
    """The same for a listing."""
    if isinstance(error, InvalidPathError):
        return StoreError(
            f"{url} holds an object below {prefix!r} that no program of Reef has made and that"
            " cannot be listed: its key has an empty or a relative part"
        )
    return translate(error, prefix, url)


def is_past_end(error: BaseException) -> bool:
    """Whether a range began at or after the object's end."""
    return _status(str(error)) == 416


def is_conflict(error: BaseException | None) -> bool:
    """Whether a conditional write met another that was under way, and neither was decided."""
    text = str(error)
    return _status(text) == 409 or "ConditionalRequestConflict" in text


def is_not_offered(error: BaseException) -> bool:
    """Whether the service says that it cannot do what was asked at all, now or later."""
    text = str(error)
    return (
        isinstance(error, NotSupportedError)
        or _status(text) == 501
        or any(f"<Code>{code}</Code>" in text for code in ("NotImplemented", "NotSupported"))
    )


def _status(text: str) -> int:
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


def _reason(text: str) -> str:
    code, status = _CODE.search(text), _STATUS.search(text)
    if code:
        return code[1]
    if status:
        return f"status {status[1]}"
    return redacted_text(text.partition("\n")[0].rpartition(" - ")[2])[:200]

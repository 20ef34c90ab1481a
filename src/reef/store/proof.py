"""A store must prove that put-if-absent works before Reef trusts it with a log.

Everything in Reef rests on one promise: of racing creates of a key at most one wins, and no create
overwrites. Some servers that speak S3 ignore the condition and overwrite, and answer as if all were
well; two writers there would overwrite each other's commits, and nobody would be told. So the first
create of a process on a bucket is preceded by a try on a scratch key of its own. It takes seven
requests, and nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Lock

from reef.environment import Environment
from reef.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from reef.store.contract import Store

FOLDER = ".reef-proof/"

_RACERS = 3
# Failures from which nothing follows about conditions, and the one that says all.
_SAYS_NOTHING = (AccessDenied, BucketNotFound, StoreUnavailable, UnsafeStore)

_lock = Lock()
_locks: dict[object, Lock] = {}
_proved: set[object] = set()


def prove_once(bucket: object, proof: Callable[[], None]) -> None:
    """Run a proof unless it has succeeded on that bucket in this process. Others who want to
    write to the bucket wait for it; those of other buckets do not."""
    with _lock:
        own = _locks.setdefault(bucket, Lock())
    with own:
        if bucket not in _proved:
            proof()
            _proved.add(bucket)


def prove(store: Store, environment: Environment) -> None:
    """Return if put-if-absent works on the store, or raise `UnsafeStore`, naming what it did.

    Other errors mean that the store could not be asked.
    """
    # What the store cannot do it says at the first request, and need not be asked again and again.
    with suppress(StoreUnavailable):
        return _prove(store.without_retries(), f"{FOLDER}{environment.unique_id()}")
    return _prove(store, f"{FOLDER}{environment.unique_id()}")


def prove_replace(store: Store, environment: Environment) -> None:
    """The same for `replace`: it must refuse a version that is not there any more."""
    key = f"{FOLDER}{environment.unique_id()}"
    try:
        old = store.put(key, b"first")
        new = store.put(key, b"second")
        if _replace(store, key, old):
            raise _unsafe(store, "overwrote an object whose version was not the one of If-Match")
        if _held(store, key) != b"second":
            raise _unsafe(store, "answered that If-Match had failed, and overwrote the object")
        if not _replace(store, key, new):
            raise _unsafe(store, "refused If-Match with the version that it had just given")
    finally:
        with suppress(StoreError):
            store.delete(key)


def _prove(store: Store, key: str) -> None:
    try:
        _try(store, key)
    except _SAYS_NOTHING:
        raise
    except StoreError as refusal:
        # Is it the condition that it refuses, or everything?
        store.put(key, b"")
        raise _unsafe(store, "takes a write, but refuses it as put-if-absent") from refusal
    finally:
        with suppress(StoreError):
            store.delete(key)


def _try(store: Store, key: str) -> None:
    contents = [f"racer {number} on {key}".encode() for number in range(_RACERS)]
    outcomes = zip(contents, _race(store, key, contents), strict=True)
    won = [content for content, winner in outcomes if winner]
    if len(won) == _RACERS:
        raise _unsafe(store, "ignores put-if-absent: it overwrote an object and said nothing")
    if len(won) > 1:
        raise _unsafe(store, f"accepted {len(won)} of {_RACERS} racing put-if-absents of one key")
    # None won if the winner's answer was lost; then the bytes must be those of one of them.
    held = _held(store, key)
    if held not in (won or contents):
        claim = "it was written" if won else "the key was taken"
        raise _unsafe(store, f"answered to a put-if-absent that {claim}, and it is not so")
    if _create(store, key, b"late"):
        raise _unsafe(store, "accepted a put-if-absent of a key that was taken")
    if _held(store, key) != held:
        raise _unsafe(store, "answered that a put-if-absent had failed, and overwrote the object")


def _race(store: Store, key: str, contents: list[bytes]) -> list[bool]:
    """Which of several creates of one key, begun at one moment, say that they won."""
    barrier = Barrier(len(contents))

    def enter(content: bytes) -> bool:
        barrier.wait()
        return _create(store, key, content)

    # Threads of its own: those of the store may all be waiting for this proof.
    with ThreadPoolExecutor(len(contents), "reef-proof") as pool:
        return list(pool.map(enter, contents))


def _create(store: Store, key: str, content: bytes) -> bool:
    try:
        store.create(key, content)
        return True
    except AlreadyExists:
        return False


def _replace(store: Store, key: str, version: str) -> bool:
    try:
        store.replace(key, b"replaced", version)
        return True
    except PreconditionFailed:
        return False


def _held(store: Store, key: str) -> bytes | None:
    try:
        return bytes(store.get(key).data)
    except ObjectNotFound:
        return None


def _unsafe(store: Store, what: str) -> UnsafeStore:
    return UnsafeStore(
        f"{store.url} {what}. Writers could overwrite each other's commits there, so Reef does not"
        " write to it (docs/stores.md)"
    )

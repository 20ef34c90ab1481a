"""A bucket of an object-storage service: S3 and its like, Google Cloud Storage, Azure."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from reef.environment import SYSTEM, Environment
from reef.errors import (
    AlreadyExists,
    InvalidName,
    ObjectNotFound,
    PreconditionFailed,
    StoreUnavailable,
    UnsafeStore,
)
from reef.store.contract import (
    Blob,
    Data,
    ObjectInfo,
    Result,
    Store,
    as_bytes,
    check_key,
    parts_of,
    size_of,
)
from reef.store.failures import (
    is_conflict,
    is_not_offered,
    is_past_end,
    translate,
    translate_listing,
)
from reef.store.ordering import (
    after_folder,
    by_code_point,
    offset_before,
    offset_in_tree,
    possible_part,
)
from reef.store.proof import prove, prove_once, prove_replace
from reef.store.redact import HIDDEN, redacted_text

PROVIDERS = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

_MEBIBYTE = 1 << 20
# What the client library requests at once for one call; larger sets are split and overlapped.
_RANGES_PER_CALL = 8
_KEYS_PER_DELETE = 1000
_PAGE = 1000
_JOINED = 256 << 10


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """How to reach the service, and for how long to try. Times are in seconds.

    Without `prove`, the store is trusted to keep put-if-absent (see `reef.store.proof`).
    """

    endpoint: str = ""
    region: str = ""
    allow_http: bool | None = None
    virtual_hosted: bool | None = None
    timeout: float = 60.0
    connect_timeout: float = 5.0
    retries: int = 6
    retry_timeout: float = 90.0
    backoff: float = 0.05
    longest_backoff: float = 5.0
    conflict_retries: int = 5
    prove: bool = True
    multipart_threshold: int = 32 * _MEBIBYTE
    part_size: int = 16 * _MEBIBYTE


class CloudStore(Store):
    """Credentials come from the environment or the machine's role, unless given."""

    def __init__(
        self,
        scheme: str,
        bucket: str,
        prefix: str = "",
        settings: CloudSettings = CloudSettings(),  # noqa: B008
        environment: Environment = SYSTEM,
        *,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._scheme = scheme
        self._bucket = bucket
        self._prefix = prefix
        self._settings = settings
        self._environment = environment
        self._secrets = dict(secrets or {})
        self._proved: set[str] = set() if settings.prove else {"create", "replace"}
        # Services that keep real folders list in the order of those; AWS and Google do not.
        self._tree_order = scheme == "az" or (scheme == "s3" and bool(_endpoint(settings)))
        try:
            self._client: Any = _client(scheme, bucket, prefix, settings, secrets or {})
        except (BaseError, ValueError, TypeError) as error:
            reason = redacted_text(str(error).partition("\n")[0])
            for secret in filter(None, (secrets or {}).values()):
                reason = reason.replace(secret, HIDDEN)
            # Without its cause, which would repeat what was left out.
            raise InvalidName(f"{redacted_text(self.url)!r} cannot be opened: {reason}") from None

    @property
    def url(self) -> str:
        path = quote(f"{self._bucket}/{self._prefix}" if self._prefix else self._bucket)
        query = {
            "endpoint": self._settings.endpoint,
            "region": self._settings.region,
            **{
                name: "true" if value else "false"
                for name in ("allow_http", "virtual_hosted")
                if (value := getattr(self._settings, name)) is not None
            },
        }
        text = urlencode({name: value for name, value in query.items() if value}, safe=":/")
        return f"{self._scheme}://{path}" + (f"?{text}" if text else "")

    def get(self, key: str) -> Blob:
        check_key(key)
        try:
            response = obstore.get(self._client, key)
            return Blob(memoryview(response.bytes()), self._version(response.meta))
        except (BaseError, OSError) as error:
            raise translate(error, key, self.url) from error

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        check_key(key)
        if length <= 0:
            self.head(key)
            return memoryview(b"")
        try:
            return memoryview(obstore.get_range(self._client, key, start=start, length=length))
        except (BaseError, OSError) as error:
            if is_past_end(error):
                return memoryview(b"")
            raise translate(error, key, self.url) from error

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        if len(ranges) < 2 or min(length for _, length in ranges) <= 0:
            return super().get_ranges(key, ranges)
        check_key(key)
        groups = [
            ranges[first : first + _RANGES_PER_CALL]
            for first in range(0, len(ranges), _RANGES_PER_CALL)
        ]
        found = self.concurrently([partial(self._get_group, key, group) for group in groups])
        return [data for group in found for data in group]

    def _get_group(self, key: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[memoryview]:
        starts, lengths = zip(*ranges, strict=True)
        try:
            found = obstore.get_ranges(
                self._client, key, starts=starts, lengths=lengths, coalesce=0
            )
        except (BaseError, OSError) as error:
            if is_past_end(error):
                return [self.get_range(key, start, length) for start, length in ranges]
            raise translate(error, key, self.url) from error
        return [memoryview(data) for data in found]

    def put(self, key: str, data: Data) -> str:
        large = size_of(data) > self._settings.multipart_threshold
        return self._retrying_conflicts(lambda: self._put(key, data, "overwrite", multipart=large))

    def create(self, key: str, data: Data) -> str:
        if "create" not in self._proved:
            self._prove("create", prove)
        return self._retrying_conflicts(lambda: self._put(key, data, "create"))

    def replace(self, key: str, data: Data, version: str) -> str:
        if "replace" not in self._proved:
            self._prove("replace", prove_replace)
        mode = {"version" if self._scheme == "gs" else "e_tag": version}
        try:
            return self._put(key, data, mode)
        except (ObjectNotFound, AlreadyExists):
            raise PreconditionFailed(key) from None

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        try:
            return self._info(obstore.head(self._client, key))
        except (BaseError, OSError) as error:
            raise translate(error, key, self.url) from error

    def list(self, prefix: str, *, start_after: str = "") -> Iterator[ObjectInfo]:
        found = self._list(prefix, start_after)
        return by_code_point(found, prefix) if self._tree_order else found

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        # The client library takes whole path components for a prefix; the rest is done here,
        # by starting just before the wanted keys and stopping just after them.
        folder = prefix[: prefix.rfind("/") + 1]
        if possible_part(folder) != folder.removesuffix("/"):
            return
        after = max(start_after, offset_before(prefix) if prefix != folder else "")
        after = offset_in_tree(after) if self._tree_order else possible_part(after)
        try:
            pages = obstore.list(
                self._client, folder or None, offset=after or None, chunk_size=_PAGE
            )
            for page in pages:
                for entry in page:
                    key = entry["path"]
                    if key.startswith(prefix):
                        if key > start_after:
                            yield self._info(entry)
                    elif self._is_behind(key, prefix, len(folder)):
                        return
        except (BaseError, OSError) as error:
            raise translate_listing(error, prefix, self.url) from error

    def _is_behind(self, key: str, prefix: str, folder: int) -> bool:
        if self._tree_order:
            return key[folder:].partition("/")[0] > prefix[folder:]
        return key > prefix

    def list_folders(self, prefix: str) -> builtins.list[str]:
        try:
            found = obstore.list_with_delimiter(self._client, prefix or None)
        except (BaseError, OSError) as error:
            raise translate_listing(error, prefix, self.url) from error
        names = sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])
        return self._without_empty(prefix, names) if self._tree_order and names else names

    def _without_empty(self, prefix: str, names: builtins.list[str]) -> builtins.list[str]:
        """Less the folders that hold nothing, as far as one page of objects tells.

        Where folders are real they may outlive their objects for a while. To ask for each of
        them would take as many requests.
        """
        try:
            page = next(iter(obstore.list(self._client, prefix or None, chunk_size=_PAGE)), [])
        except (BaseError, OSError) as error:
            raise translate_listing(error, prefix, self.url) from error
        keys = [entry["path"][len(prefix) :] for entry in page]
        full = {key.partition("/")[0] for key in keys if "/" in key}
        if len(keys) < _PAGE:
            return [name for name in names if name in full]
        # By folder or by code point: what would have been listed by now in either order.
        last = keys[-1]
        component = last.partition("/")[0]
        return [
            name for name in names if name in full or name >= component or after_folder(name) > last
        ]

    def delete(self, key: str) -> None:
        check_key(key)
        self._retrying_conflicts(lambda: self._delete(key))

    def _delete(self, key: str) -> None:
        try:
            obstore.delete(self._client, key)
        except FileNotFoundError as error:
            failure = translate(error, key, self.url)
            if not isinstance(failure, ObjectNotFound):
                raise failure from error
        except (BaseError, OSError) as error:
            raise translate(error, key, self.url) from error

    def delete_many(self, keys: Iterable[str]) -> None:
        doomed = [check_key(key) for key in keys]
        if self._scheme != "s3":
            return super().delete_many(doomed)
        self.concurrently(
            [
                partial(self._delete_page, doomed[first : first + _KEYS_PER_DELETE])
                for first in range(0, len(doomed), _KEYS_PER_DELETE)
            ]
        )
        return None

    def _delete_page(self, keys: Sequence[str]) -> None:
        self._retrying_conflicts(lambda: self._delete_some(keys))

    def _delete_some(self, keys: Sequence[str]) -> None:
        try:
            obstore.delete(self._client, keys)
        except FileNotFoundError:
            for key in keys:
                self.delete(key)
        except (BaseError, OSError) as error:
            raise translate(error, keys[0], self.url) from error

    def _put(self, key: str, data: Data, mode: Any, *, multipart: bool = False) -> str:
        check_key(key)
        payload: Any
        if isinstance(data, bytes | bytearray | memoryview) or size_of(data) <= _JOINED:
            payload = as_bytes(data)
            if isinstance(payload, memoryview):
                payload = payload.cast("B")
        else:
            payload = [memoryview(part).cast("B") for part in parts_of(data)]
        try:
            result = obstore.put(
                self._client,
                key,
                payload,
                mode=mode,
                use_multipart=multipart,
                chunk_size=self._settings.part_size,
            )
        except (BaseError, OSError) as error:
            if mode != "overwrite" and is_not_offered(error):
                raise UnsafeStore(
                    f"{self.url} does not offer conditional writes, which Reef needs to keep"
                    " writers apart (docs/stores.md)"
                ) from error
            conditional = mode != "overwrite"
            raise translate(error, key, self.url, conditional=conditional) from error
        return self._version(result)

    def without_retries(self) -> CloudStore:
        settings = replace(self._settings, retries=0, prove=False)
        where = (self._scheme, self._bucket, self._prefix)
        return CloudStore(*where, settings, self._environment, secrets=self._secrets)

    def _prove(self, condition: str, proof: Callable[[Store, Environment], None]) -> None:
        """Before the first conditional write of this process to the bucket, try whether it keeps
        conditions at all."""
        trusting = copy(self)
        trusting._proved = {"create", "replace"}
        bucket = (condition, self._scheme, self._bucket, _endpoint(self._settings))
        prove_once(bucket, lambda: proof(trusting, self._environment))
        self._proved.add(condition)

    def _retrying_conflicts(self, write: Callable[[], Result]) -> Result:
        """S3 may answer 409 to a race that nobody has won yet, also to writes and deletions that
        have no condition; ask again before believing it."""
        pause = self._settings.backoff
        for _ in range(self._settings.conflict_retries):
            try:
                return write()
            except (AlreadyExists, StoreUnavailable) as error:
                if not is_conflict(error.__cause__):
                    raise
            chance = self._environment.entropy(1)[0] / 255
            self._environment.sleep(pause * (0.5 + chance))
            pause = min(pause * 2, self._settings.longest_backoff)
        return write()

    def _version(self, found: Any) -> str:
        if self._scheme == "gs":
            return found["version"] or found["e_tag"] or ""
        return found["e_tag"] or found["version"] or ""

    def _info(self, found: Any) -> ObjectInfo:
        return ObjectInfo(
            found["path"], found["size"], found["last_modified"].timestamp(), self._version(found)
        )


def _endpoint(settings: CloudSettings) -> str:
    return (
        settings.endpoint
        or os.environ.get("AWS_ENDPOINT_URL_S3", "")
        or os.environ.get("AWS_ENDPOINT_URL", "")
        or os.environ.get("AWS_ENDPOINT", "")
    )


def _client(
    scheme: str, bucket: str, prefix: str, settings: CloudSettings, secrets: Mapping[str, str]
) -> Any:
    config: dict[str, Any] = dict(secrets)
    endpoint = _endpoint(settings) if scheme == "s3" else settings.endpoint
    if endpoint:
        if not endpoint.startswith(("http://", "https://")):
            raise ValueError("its endpoint does not start with http:// or https://")
        if "@" in endpoint or "?" in endpoint or "#" in endpoint:
            raise ValueError("its endpoint has more than host, port and path")
        config["endpoint"] = endpoint
    if scheme == "s3":
        if settings.region:
            config["region"] = settings.region
        if settings.virtual_hosted is not None:
            config["virtual_hosted_style_request"] = settings.virtual_hosted
    allow_http = settings.allow_http
    if allow_http is None:
        allow_http = endpoint.startswith("http://")
    return PROVIDERS[scheme](
        bucket,
        prefix=prefix or None,
        config=config,
        client_options={
            "allow_http": allow_http,
            "timeout": timedelta(seconds=settings.timeout),
            "connect_timeout": timedelta(seconds=settings.connect_timeout),
        },
        retry_config={
            "max_retries": settings.retries,
            "retry_timeout": timedelta(seconds=settings.retry_timeout),
            "backoff": {
                "init_backoff": timedelta(seconds=settings.backoff),
                "max_backoff": timedelta(seconds=settings.longest_backoff),
                "base": 2,
            },
        },
    )

"""A bucket of an object-storage service: S3 and its like, Google Cloud Storage, Azure."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from reef.environment import SYSTEM, Environment
from reef.errors import AlreadyExists, InvalidName, ObjectNotFound, PreconditionFailed
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
from reef.store.failures import is_conflict, is_past_end, translate
from reef.store.ordering import by_code_point, offset_before, offset_in_tree, possible_part

PROVIDERS = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

_MEBIBYTE = 1 << 20
# What the client library requests at once for one call; larger sets are split and overlapped.
_RANGES_PER_CALL = 8
_KEYS_PER_DELETE = 1000
_PAGE = 1000
_JOINED = 256 << 10


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """How to reach the service, and for how long to try. Times are in seconds."""

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
        # Services that keep real folders list in the order of those; AWS and Google do not.
        self._tree_order = scheme == "az" or (scheme == "s3" and bool(_endpoint(settings)))
        try:
            self._client: Any = _client(scheme, bucket, prefix, settings, secrets or {})
        except (BaseError, ValueError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise InvalidName(f"{self.url!r} cannot be opened: {reason}") from error

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
        return self._put(key, data, "overwrite", multipart=large)

    def create(self, key: str, data: Data) -> str:
        return self._retrying_conflicts(key, lambda: self._put(key, data, "create"))

    def replace(self, key: str, data: Data, version: str) -> str:
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
            raise translate(error, prefix, self.url) from error

    def _is_behind(self, key: str, prefix: str, folder: int) -> bool:
        if self._tree_order:
            return key[folder:].partition("/")[0] > prefix[folder:]
        return key > prefix

    def list_folders(self, prefix: str) -> builtins.list[str]:
        try:
            found = obstore.list_with_delimiter(self._client, prefix or None)
        except (BaseError, OSError) as error:
            raise translate(error, prefix, self.url) from error
        names = sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])
        if not self._tree_order:
            return names
        # Where folders are real, they may outlive their objects for a while.
        full = self.concurrently([partial(self._holds_any, f"{prefix}{name}/") for name in names])
        return [name for name, holds in zip(names, full, strict=True) if holds]

    def _holds_any(self, folder: str) -> bool:
        return next(self._list(folder, ""), None) is not None

    def delete(self, key: str) -> None:
        check_key(key)
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
                partial(self._delete_some, doomed[first : first + _KEYS_PER_DELETE])
                for first in range(0, len(doomed), _KEYS_PER_DELETE)
            ]
        )
        return None

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
            raise translate(error, key, self.url) from error
        return self._version(result)

    def _retrying_conflicts(self, key: str, write: Callable[[], Result]) -> Result:
        """S3 may answer 409 to a race that nobody has won yet; ask again before believing it."""
        pause = self._settings.backoff
        for _ in range(self._settings.conflict_retries):
            try:
                return write()
            except AlreadyExists as error:
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
            raise ValueError(f"endpoint {endpoint!r} does not start with http:// or https://")
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

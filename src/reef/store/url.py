"""From an address to a store.

./bucket   /srv/bucket   file:///srv/bucket     a folder
memory://                                       a new store in memory
memory://name                                   the one of that name in this process
s3://bucket/prefix?endpoint=http://host:port    S3 and its like
gs://bucket/prefix   az://container/prefix      Google Cloud Storage, Azure Blob Storage
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reef.environment import SYSTEM, Environment
from reef.errors import InvalidName
from reef.store.cloud import PROVIDERS, CloudSettings, CloudStore
from reef.store.contract import Store, check_key
from reef.store.folder import FolderStore
from reef.store.memory import MemoryStore
from reef.store.redact import redacted

_SECRETS = {"access_key_id", "secret_access_key", "session_token", "account_key"}
_HARMLESS = frozenset(field.name for field in fields(CloudSettings))
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

_named: dict[str, MemoryStore] = {}
_named_lock = Lock()


def open_store(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    environment: Environment = SYSTEM,
    **options: object,
) -> Store:
    """The store at an address, or `InvalidName` if it is none.

    With `create=False`, a folder that is not there is a `BucketNotFound`. Options are the
    fields of `CloudSettings`, and `access_key_id`, `secret_access_key`, `session_token` and
    `account_key` where the environment's credentials will not do.
    """
    address = os.fspath(url)
    if not isinstance(address, str) or not address or "\0" in address:
        shown = redacted(address) if isinstance(address, str) else type(address).__name__
        raise InvalidName(f"{shown!r} is not the address of a bucket")
    scheme, mark, rest = address.partition("://")
    if not mark:
        return _folder(address, create, environment, options)
    if scheme == "file":
        return _folder(_path_of(address), create, environment, options)
    if scheme == "memory":
        _refuse(options, address)
        return _memory(rest, environment)
    if scheme in PROVIDERS:
        return _cloud(address, environment, options)
    raise InvalidName(
        f"{_shown(address)} is not the address of a bucket:"
        " use a folder, memory://, s3://, gs:// or az://"
    )


def _folder(
    path: str, create: bool, environment: Environment, options: Mapping[str, object]
) -> Store:
    _refuse(options, path)
    path = os.path.expanduser(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise InvalidName(f"{_shown(path)} is a file, not a folder")
    return FolderStore(path, environment, create=create)


def _path_of(address: str) -> str:
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidName(f"{_shown(address)} is not the address of a folder: use file:///path")
    return unquote(parts.path)


def _memory(name: str, environment: Environment) -> Store:
    if not name:
        return MemoryStore(environment)
    _check_path(name, f"memory://{name}")
    with _named_lock:
        if name not in _named:
            _named[name] = MemoryStore(environment, name=name)
        return _named[name]


def _cloud(address: str, environment: Environment, options: Mapping[str, object]) -> Store:
    try:
        parts = urlsplit(address)
        query = (
            dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
            if parts.query
            else {}
        )
    except ValueError:
        # What is wrong is not repeated: it may be a part of a secret.
        raise InvalidName(f"{_shown(address)} is not the address of a bucket") from None
    if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc or parts.fragment:
        raise InvalidName(f"{_shown(address)} does not name a bucket")
    if leaked := _SECRETS & query.keys():
        raise InvalidName(f"{min(leaked)} does not belong into an address; use the environment")
    prefix = unquote(parts.path).strip("/")
    if prefix:
        _check_path(prefix, address)
    given = {**query, **options}
    secrets = {name: str(given.pop(name)) for name in _SECRETS & given.keys()}
    settings = _settings(given)
    return CloudStore(parts.scheme, parts.netloc, prefix, settings, environment, secrets=secrets)


def _check_path(path: str, address: str) -> None:
    try:
        check_key(path)
    except InvalidName:
        raise InvalidName(f"{_shown(address)} has a path that not every store takes") from None


def _settings(given: Mapping[str, object]) -> CloudSettings:
    settings = CloudSettings()
    known = {field.name for field in fields(CloudSettings)}
    for name, value in given.items():
        if name not in known:
            shown = repr(name) if name.isidentifier() else "what follows the question mark"
            raise InvalidName(f"{shown} is not an option of a bucket's address")
        settings = replace(settings, **{name: _convert(name, value, getattr(settings, name))})
    return settings


def _convert(name: str, value: object, default: object) -> Any:
    try:
        if isinstance(default, bool) or name in ("allow_http", "virtual_hosted"):
            return value if isinstance(value, bool) else _TRUTH[str(value).lower()]
        if isinstance(default, int | float):
            number = type(default)(str(value))
            if number < 0:
                raise ValueError
            return number
    except (KeyError, ValueError):
        raise InvalidName(f"{value!r} is not a value for the option {name}") from None
    return str(value)


def _refuse(options: Mapping[str, object], address: str) -> None:
    if options:
        raise InvalidName(f"{min(options)!r} is not an option of {_shown(address)}")


def _shown(address: str) -> str:
    return repr(redacted(address, _HARMLESS))

"""Reef: a database whose only durable state is a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reef.environment import Environment
from reef.errors import (
    AccessDenied,
    Backpressure,
    BatchTooLarge,
    BucketNotFound,
    Closed,
    CommitUncertain,
    ConcurrentPublication,
    ConditionFailed,
    Corruption,
    Fenced,
    InvalidFilter,
    InvalidId,
    InvalidInput,
    InvalidName,
    NamespaceDropped,
    NamespaceExists,
    NamespaceNotFound,
    PastRetention,
    ReadOnly,
    ReefError,
    SchemaConflict,
    SparkUnavailable,
    StoreError,
    StoreFull,
    StoreUnavailable,
    UnsafeStore,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from reef.data.filter import attribute
    from reef.data.schema import Schema
    from reef.data.types import AttributeType, vector
    from reef.documents import (
        Change,
        Database,
        Namespace,
        Scan,
        connect,
        if_absent,
        if_equal,
        if_exists,
    )
    from reef.lsm.options import Options
    from reef.lsm.write.batch import Condition, Receipt
    from reef.manifest import Settings

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AttributeType",
    "Backpressure",
    "BatchTooLarge",
    "BucketNotFound",
    "Change",
    "Closed",
    "CommitUncertain",
    "ConcurrentPublication",
    "Condition",
    "ConditionFailed",
    "Corruption",
    "Database",
    "Environment",
    "Fenced",
    "InvalidFilter",
    "InvalidId",
    "InvalidInput",
    "InvalidName",
    "Namespace",
    "NamespaceDropped",
    "NamespaceExists",
    "NamespaceNotFound",
    "Options",
    "PastRetention",
    "ReadOnly",
    "Receipt",
    "ReefError",
    "Scan",
    "Schema",
    "SchemaConflict",
    "Settings",
    "SparkUnavailable",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "UnsafeStore",
    "UnsupportedFormat",
    "attribute",
    "connect",
    "if_absent",
    "if_equal",
    "if_exists",
    "vector",
]

# Loaded when first asked for: Arrow takes a while, and `reef --help` does not need it.
_HOMES = {
    "reef.data.filter": ("attribute",),
    "reef.data.schema": ("Schema",),
    "reef.data.types": ("AttributeType", "vector"),
    "reef.documents": (
        "Change",
        "Database",
        "Namespace",
        "Scan",
        "connect",
        "if_absent",
        "if_equal",
        "if_exists",
    ),
    "reef.lsm.write.batch": ("Condition", "Receipt"),
    "reef.lsm.options": ("Options",),
    "reef.manifest": ("Settings",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

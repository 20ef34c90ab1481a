"""Spark: the door for bulk work. What touches all the data of a namespace runs here on a cluster.

Relies on the faces and the tree: the driver plans, tasks read and write objects of the bucket
themselves and hand back descriptions, the driver commits once. Invariant: nothing that a task did
is visible before that commit, so a task that dies or runs twice leaves orphans only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# A file named as what it holds would take its place here when first imported, so it is imported
# now; neither needs Spark to be installed.
from reef.spark.export import export
from reef.spark.session import session

if TYPE_CHECKING:
    from reef.spark.loading import LoadReport, load
    from reef.spark.maintenance import compact, fold, rebuild, verify
    from reef.spark.reading import read
    from reef.spark.tenants import TenantsFailed, TenantsReport

__all__ = [
    "LoadReport",
    "TenantsFailed",
    "TenantsReport",
    "compact",
    "export",
    "fold",
    "load",
    "read",
    "rebuild",
    "session",
    "verify",
]

# Loaded when first asked for, so that `import reef.spark` works where Spark is not installed.
_HOMES = {
    "reef.spark.loading": ("LoadReport", "load"),
    "reef.spark.maintenance": ("compact", "fold", "rebuild", "verify"),
    "reef.spark.reading": ("read",),
    "reef.spark.tenants": ("TenantsFailed", "TenantsReport"),
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

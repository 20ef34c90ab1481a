"""Where a namespace's manifests lie, and the register of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from reef.environment import Environment
from reef.errors import NamespaceDropped, no_namespace
from reef.manifest.codec import MANIFEST
from reef.manifest.layout import Layout
from reef.manifest.model import Manifest
from reef.manifest.register import Register
from reef.store.contract import Store

PREFIX = "manifest/"
HINT = "hint.json"
MANIFESTS: Layout[Manifest] = Layout(
    PREFIX, ".manifest.json", MANIFEST, partial(no_namespace, ""), HINT
)


def manifest_register(
    store: Store, environment: Environment, publisher: str, name: str = ""
) -> Register[Manifest]:
    """The register of the manifests below the prefix of the namespace of that name."""
    layout = replace(
        MANIFESTS,
        absent=partial(no_namespace, name),
        over=partial(NamespaceDropped, name),
        name=name,
    )
    return Register(store, environment, publisher, layout)

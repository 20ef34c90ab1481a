"""Where a namespace's manifests lie, and the register of them."""

from __future__ import annotations

from reef.environment import Environment
from reef.errors import NamespaceNotFound
from reef.manifest.codec import MANIFEST
from reef.manifest.layout import Layout
from reef.manifest.model import Manifest
from reef.manifest.register import Register
from reef.store.contract import Store

PREFIX = "manifest/"
HINT = "hint.json"


def _absent() -> NamespaceNotFound:
    return NamespaceNotFound("there is no such namespace in this bucket")


MANIFESTS: Layout[Manifest] = Layout(PREFIX, ".manifest.json", MANIFEST, _absent, HINT)


def manifest_register(store: Store, environment: Environment, publisher: str) -> Register[Manifest]:
    """The register of the manifests below a namespace's prefix."""
    return Register(store, environment, publisher, MANIFESTS)

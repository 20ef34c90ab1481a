"""The manifest: the root that decides what is visible.

Owns the register, over roots of any type, that publishes generations by put-if-absent and finds
the newest one without a listing that grows with history; and the root of a namespace, the
manifest, with its contents and codec. Relies on the store, and on the segments' descriptions. The
invariant: one winner a generation, and whatever is visible is named by the newest one.
"""

from reef.manifest.manifests import MANIFESTS, manifest_register
from reef.manifest.model import Life, Manifest, Pin, Settings
from reef.manifest.register import Head, Register
from reef.manifest.retired import LogSpan, Retired, Superseded
from reef.manifest.root import Root
from reef.manifest.runs import Segments
from reef.manifest.take_over import take_over

__all__ = [
    "MANIFESTS",
    "Head",
    "Life",
    "LogSpan",
    "Manifest",
    "Pin",
    "Register",
    "Retired",
    "Root",
    "Segments",
    "Settings",
    "Superseded",
    "manifest_register",
    "take_over",
]

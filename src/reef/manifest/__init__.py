"""The manifest: the root that decides what is visible.

Owns the manifest's contents and codec, and the register that publishes generations by
put-if-absent and finds the newest one without a listing that grows with history. Relies on
the store, and on the segments' descriptions. The invariant: one winner a generation, and
whatever is visible is named by the newest one.
"""

from reef.manifest.model import LogSpan, Manifest, Pin, Settings, Superseded
from reef.manifest.register import Register

__all__ = ["LogSpan", "Manifest", "Pin", "Register", "Settings", "Superseded"]

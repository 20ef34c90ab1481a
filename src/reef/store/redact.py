"""Addresses as they may be shown: whatever could be a secret is left out of them.

What is shown of a refused address is what is known to be harmless, not what does not look like a
secret: passwords hold slashes, and nobody knows all the names that secrets go by.
"""

from __future__ import annotations

import re

HIDDEN = "***"

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>)]+")


def redacted(address: str, harmless: frozenset[str] = frozenset()) -> str:
    """The address without user names and passwords, without a fragment, and with those parameters
    alone that are harmless."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        scheme, rest = "", address
    rest, hash_mark, fragment = rest.partition("#")
    rest, question, query = rest.partition("?")
    fields = query.split("&") if question else []
    if "@" in fragment or any("@" in field and not _is_known(field, harmless) for field in fields):
        # A password may hold any of these characters, too: all before its end is hidden.
        return f"{scheme}{mark}{HIDDEN}"
    shown = f"{scheme}{mark}{_without_user(rest, bool(mark))}{question}"
    shown += "&".join(_parameter(field, harmless) for field in fields)
    return shown + (f"#{HIDDEN}" if hash_mark else "")


def redacted_text(text: str) -> str:
    """A text, with the addresses in it redacted."""
    return _ADDRESS.sub(lambda found: redacted(found[0]), text)


def _without_user(rest: str, has_host: bool) -> str:
    if "@" in rest:
        return f"{HIDDEN}@{rest.rpartition('@')[2]}"
    name, colon, port = rest.partition("/")[0].partition(":")
    if has_host and colon and not port.isdecimal():
        return f"{name}:{HIDDEN}"
    return rest


def _is_known(field: str, harmless: frozenset[str]) -> bool:
    name, mark, _ = field.partition("=")
    return bool(mark) and name in harmless


def _parameter(field: str, harmless: frozenset[str]) -> str:
    if not _is_known(field, harmless):
        return HIDDEN
    name, _, value = field.partition("=")
    return f"{name}={redacted(value)}"

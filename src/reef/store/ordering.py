"""Listings in code-point order from services that list in the order of their folders.

Such a service sorts by path components: "a/b" before "a-b", because "a" sorts before "a-b".
By code point it is the other way round, "-" being less than "/".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from reef.store.contract import ObjectInfo


def by_code_point(found: Iterable[ObjectInfo], prefix: str) -> Iterator[ObjectInfo]:
    """The same objects by code point. Holds back at most one folder directly below the prefix.

    What is still to come sorts after "<component> ", the component being the first one of
    the newest key: so whatever does not sort after that may go.
    """
    start = prefix.rfind("/") + 1
    held: list[tuple[str, ObjectInfo]] = []
    for info in found:
        end = info.key.find("/", start)
        bound = (info.key if end < 0 else info.key[:end]) + " "
        heappush(held, (info.key, info))
        while held and held[0][0] <= bound:
            yield heappop(held)[1]
    while held:
        yield heappop(held)[1]


def offset_before(text: str) -> str:
    """A text that sorts shortly before this one and everything that starts with it.

    Empty if there is none that a service would take for a key.
    """
    text = text.rstrip("/ ")
    if not text:
        return ""
    last = ord(text[-1]) - 1
    if last == ord("/"):
        last -= 1
    elif 0xD800 <= last <= 0xDFFF:
        last = 0xD7FF
    return f"{text[:-1]}{chr(last)}~"


def after_folder(name: str) -> str:
    """A text that sorts after every key of a folder: "0" is the character after the slash."""
    return f"{name}0"


def possible_part(text: str) -> str:
    """The leading components of a text that could be those of a key; it never sorts after it."""
    components = text.split("/")
    for number, component in enumerate(components):
        if component in ("", ".", ".."):
            return "/".join(components[:number])
    return text


def offset_in_tree(after: str) -> str:
    """An offset that in folder order, too, comes before every key that sorts after this one.

    A folder whose name is the offset itself is passed over by such services. And where a
    component has a character below the slash, a folder named by what precedes it sorts later
    by code point but earlier by folder. So start just before that name.
    """
    after = possible_part(after)
    beginning = True
    for position, character in enumerate(after):
        if character < "/" and not beginning:
            after = after[:position]
            break
        beginning = character == "/"
    return offset_before(after)

"""Changing bytes: the small, nasty changes that parsers get wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

import msgspec

Value = object

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 8, 9, 15, 16, 17, 127, 128, 255, 256, 257),
    *(2**15, 2**16 - 1, 2**16, 2**16 + 1, 2**20, 2**24, 2**27, 2**27 + 1),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**60, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
)
"""Lengths, counts and offsets that lie, and their neighbours."""

DEPTH = 5000
"""Deeper than any parser may follow on its own stack."""

_DEEP_JSON = msgspec.Raw(b"[" * DEPTH + b"]" * DEPTH)
_DEEP_PACK = msgspec.Raw(b"\x91" * DEPTH + b"\xc0")
_HUGE_PACK = tuple(
    msgspec.Raw(head + b"\xff\xff\xff\xff")
    for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")
)
_VALUES: tuple[Value, ...] = (
    *(None, True, False, "", "id", "x", "\0", "é", "uint64", "string", "vector<float32, 65536>"),
    *(0.0, -1.5, 1e300, float("nan"), b"", b"\xff", [], {}, [[]], {"a": 1}, [None], [0], ["x"]),
    *("list<json>", "int64", "bool", "timestamp", "json", "list<string>", "x" * 200),
    "vector<float32, " + "9" * 4400 + ">",
)
_TOKENS = (
    *b"null true false 0 1 -1 -0 0.5 1e18 1e999 2147483647 4294967296 1152921504606846976".split(),
    *b"9223372036854775807 18446744073709551615 18446744073709551616 NaN Infinity".split(),
    *b'"" "x" "id" "\\ud800" "\\u0000" "uint64" "string" "vector<float32,65536>"'.split(),
    *b'"list<json>" [] {} [1] {"a":1} [null] { [ " , : } ]'.split(),
    *(b"9" * 400, b'"' + b"9" * 4400 + b'"', b'"' + b"x" * 3000 + b'"'),
)
_TOKEN = re.compile(rb'-?\d[\d.e+-]*|"[^"]*"|true|false|null|[\[\]{},:]')


def chance_bytes(random: Random, most: int = 200) -> bytes:
    """Any bytes."""
    return random.randbytes(random.randrange(most + 1))


def mutated(random: Random, data: bytes, other: bytes = b"") -> bytes:
    """The same bytes with one to four changes; `other` lends a piece of itself."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 4))):
        random.choice(_CHANGES)(random, changed, other)
    return bytes(changed)


def _flip(random: Random, data: bytearray, other: bytes) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, other: bytes) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice(
            (0, 1, 0x7F, 0x80, 0xFF, random.getrandbits(8))
        )


def _set_number(random: Random, data: bytearray, other: bytes) -> None:
    """Overwrite an integer of 2, 4 or 8 bytes, aligned mostly, as most are."""
    size = random.choice((2, 4, 4, 4, 8, 8))
    if len(data) < size:
        return
    at = random.randrange(len(data) - size + 1)
    if random.random() < 0.8:
        at -= at % min(size, 4)
    number = random.choice(NUMBERS)
    if random.random() < 0.2:
        number += int.from_bytes(data[at : at + size], "little")
    order = "little" if random.random() < 0.9 else "big"
    data[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, order)  # type: ignore[arg-type]


def _cut(random: Random, data: bytearray, other: bytes) -> None:
    del data[random.randrange(len(data) + 1) :]


def _remove(random: Random, data: bytearray, other: bytes) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : start + random.choice((1, 2, 4, 8, 16))]


def _insert(random: Random, data: bytearray, other: bytes) -> None:
    at = random.randrange(len(data) + 1)
    size = random.choice((1, 4, 8, 16))
    data[at:at] = random.randbytes(size) if random.random() < 0.5 else bytes(size)


def _extend(random: Random, data: bytearray, other: bytes) -> None:
    data += random.choice((b"\0", bytes(8), b"\xff" * 8, other[-16:], random.randbytes(12)))


def _repeat(random: Random, data: bytearray, other: bytes) -> None:
    start = random.randrange(len(data) + 1)
    piece = bytes(data[start : start + random.choice((8, 16, 32))])
    data[start:start] = piece


def _splice(random: Random, data: bytearray, other: bytes) -> None:
    at = random.randrange(len(data) + 1)
    data[at:] = other[min(at, len(other)) :] if random.random() < 0.7 else other[len(other) // 2 :]


def _swap(random: Random, data: bytearray, other: bytes) -> None:
    if len(data) < 16:
        return
    first, second = (random.randrange(0, len(data) - 7) for _ in range(2))
    data[first : first + 8], data[second : second + 8] = (
        data[second : second + 8],
        data[first : first + 8],
    )


_CHANGES: Sequence[Callable[[Random, bytearray, bytes], None]] = (
    *(_flip, _flip, _set_byte, _set_byte),
    *(_set_number, _set_number, _set_number, _set_number, _set_number, _set_number),
    *(_cut, _remove, _insert, _extend, _repeat, _splice, _swap),
)


def mutated_text(random: Random, text: bytes) -> bytes:
    """JSON with a token replaced, removed, repeated, or nested too deep."""
    for _ in range(random.choice((1, 1, 2))):
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            return text
        found = random.choice(tokens)
        chosen = random.random()
        if chosen < 0.75:
            new = random.choice(_TOKENS)
        elif chosen < 0.85:
            new = b""
        elif chosen < 0.95:
            new = found[0] * 2
        elif chosen < 0.99:
            new = random.choice(tokens)[0]
        else:
            new = bytes(memoryview(_DEEP_JSON))
        text = text[: found.start()] + new + text[found.end() :]
    return text


def mutated_value(random: Random, value: Value, *, packed: bool) -> Value:
    """A tree of lists and dicts with one thing in it changed. What it was made from stays as it is.

    It may come to hold raw MessagePack (or JSON) that claims a length, or nests too deep.
    """
    if isinstance(value, dict) and value and random.random() < 0.85:
        return _changed_dict(random, value, packed)
    if isinstance(value, list) and value and random.random() < 0.85:
        return _changed_list(random, value, packed)
    return _other_value(random, value, packed)


def _changed_dict(random: Random, value: dict[str, Value], packed: bool) -> Value:
    changed = dict(value)
    key = random.choice(list(changed))
    chosen = random.random()
    if chosen < 0.8:
        changed[key] = mutated_value(random, changed[key], packed=packed)
    elif chosen < 0.88:
        del changed[key]
    elif chosen < 0.95:
        changed[random.choice(("id", "x", "", "attributes", "\0null\0x", *value))] = changed.pop(
            key
        )
    else:
        changed[random.choice(("id", "x", "\0kind", "y"))] = random.choice(_VALUES)
    return changed


def _changed_list(random: Random, value: list[Value], packed: bool) -> Value:
    changed = list(value)
    at = random.randrange(len(changed))
    chosen = random.random()
    if chosen < 0.75:
        changed[at] = mutated_value(random, changed[at], packed=packed)
    elif chosen < 0.82:
        del changed[at]
    elif chosen < 0.9:
        changed.insert(at, changed[random.randrange(len(changed))])
    elif chosen < 0.95:
        other = random.randrange(len(changed))
        changed[at], changed[other] = changed[other], changed[at]
    else:
        changed.append(random.choice(_VALUES))
    return changed


def _other_value(random: Random, value: Value, packed: bool) -> Value:
    chosen = random.random()
    if isinstance(value, bytes) and chosen < 0.6:
        return mutated(random, value)
    if isinstance(value, int) and chosen < 0.7:
        number = random.choice(NUMBERS)
        return max(-(2**63), min(2**64 - 1, number + value if random.random() < 0.3 else number))
    if isinstance(value, str) and chosen < 0.3:
        return value + random.choice(("x", "\0", "é", value))
    if isinstance(value, str) and chosen < 0.4:
        return value[:-1]
    if chosen < 0.98:
        return random.choice(_VALUES)
    if not packed:
        return _DEEP_JSON
    return random.choice((_DEEP_PACK, *_HUGE_PACK))

"""What is fuzzed: for each target how its inputs are made, and everything that reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from torture.fuzz import reading, seeds
from torture.fuzz.mutate import (
    NUMBERS,
    chance_bytes,
    mutated,
    mutated_text,
    mutated_value,
)
from torture.fuzz.sealing import (
    Anatomy,
    described,
    packed,
    sealed_log,
    sealed_manifest,
    sealed_segment,
    with_log_footer,
)

_pack = msgspec.msgpack.encode


@dataclass(frozen=True)
class Target:
    """One reader of bytes. `weight` is how many of its inputs are drawn in a round."""

    name: str
    make: Callable[[Random], bytes]
    read: Callable[[bytes], None]
    weight: int


_LOG_TEXTS = tuple((msgspec.json.encode(header), records) for header, records in seeds.LOGS)
_MANIFEST_TEXTS = tuple(data[34:-1] for data in seeds.MANIFESTS)
_ANATOMIES = tuple(Anatomy(segment.data) for segment in seeds.SEGMENTS)


def _make_log(random: Random) -> bytes:
    chosen = random.random()
    if chosen < 0.1:
        return chance_bytes(random)
    if chosen < 0.3:
        return mutated(random, random.choice(seeds.LOG_OBJECTS), random.choice(seeds.LOG_OBJECTS))
    if chosen < 0.5:
        data = random.choice(seeds.LOG_OBJECTS)
        return with_log_footer(mutated(random, data, random.choice(seeds.LOG_OBJECTS)))
    text, records = random.choice(_LOG_TEXTS)
    if chosen < 0.8:
        return sealed_log(_json(random, text), records)
    count = random.choice(NUMBERS) & 0xFFFF_FFFF if chosen < 0.82 else None
    others = tuple(_make_record(random) for _ in range(random.randrange(3)))
    return sealed_log(text, (*records[: random.randrange(3)], *others), count)


def _json(random: Random, text: bytes) -> bytes:
    chosen = random.random()
    if chosen < 0.6:
        return mutated_text(random, text)
    if chosen < 0.8:
        return msgspec.json.encode(mutated_value(random, msgspec.json.decode(text), packed=False))
    return mutated(random, text)


def _make_record(random: Random) -> bytes:
    chosen = random.random()
    if chosen < 0.05:
        return random.choice((b"\1", b"\2", b"\3", b"\4", b"")) + chance_bytes(random)
    if chosen < 0.45:
        return mutated(random, random.choice(seeds.ROW_RECORDS), random.choice(seeds.ROW_RECORDS))
    if chosen < 0.85:
        return _plain_record(random)
    data = random.choice((*seeds.INGEST_RECORDS, *seeds.CONDEMN_RECORDS))
    return data[:1] + _json(random, data[1:])


def _plain_record(random: Random) -> bytes:
    chosen = random.random()
    if chosen < 0.3:
        data = random.choice(seeds.PLAIN_RECORDS)
        return mutated(random, data, random.choice(seeds.PLAIN_RECORDS))
    rows = random.choice(seeds.PLAIN)
    types, kinds, count = rows.types.encoded, rows.kinds, len(rows)
    documents: object = rows.rows
    if chosen < 0.75:
        documents = mutated_value(random, documents, packed=True)
    elif chosen < 0.9:
        types = _json(random, types)
    else:
        kinds = mutated(random, kinds)
        count = random.choice((len(kinds), count, *NUMBERS)) & 0xFFFF_FFFF
    each = documents if isinstance(documents, list) else [documents]
    head = len(types).to_bytes(4, "little") + types + count.to_bytes(4, "little") + kinds
    return b"".join((b"\4", head, *map(_pack, each)))


def _make_manifest(random: Random) -> bytes:
    chosen = random.random()
    if chosen < 0.1:
        return chance_bytes(random)
    if chosen < 0.25:
        return mutated(random, random.choice(seeds.MANIFESTS), seeds.MANIFESTS[1])
    return sealed_manifest(_json(random, random.choice(_MANIFEST_TEXTS)))


def _make_segment(random: Random) -> bytes:
    chosen = random.random()
    if chosen < 0.05:
        return chance_bytes(random)
    if chosen < 0.2:
        data = random.choice(seeds.SEGMENTS).data
        return mutated(random, data, random.choice(seeds.SEGMENTS).data)
    parts = random.choice(_ANATOMIES)
    groups, filter, tree = parts.groups, parts.filter, parts.index
    if chosen < 0.5:
        groups, tree = _other_block(random, parts)
    elif chosen < 0.6:
        filter = mutated(random, filter)
    elif chosen < 0.8:
        tree = mutated_value(random, tree, packed=True)  # type: ignore[assignment]
    raw = _pack(tree)
    if 0.8 <= chosen < 0.83:
        raw = mutated(random, raw)
    index = bytes(reading.compress(raw))
    size = len(raw)
    if 0.83 <= chosen < 0.86:
        index = mutated(random, index)
    elif 0.86 <= chosen < 0.88:
        size = random.choice(NUMBERS)
    footer: object = parts.footer_of(groups, filter, index, size)
    if chosen >= 0.88:
        footer = mutated_value(random, footer, packed=True)
    body = _pack(footer)
    if chosen >= 0.98:
        body = mutated(random, body)
    return sealed_segment(groups, filter, index, body)


def _other_block(random: Random, parts: Anatomy) -> tuple[bytes, list[object]]:
    which = random.randrange(len(parts.blocks))
    return parts.with_block(which, _mutated_block(random, parts.blocks[which][2]))


def _mutated_block(random: Random, body: bytes) -> bytes:
    """A block's description and body, with one of them or both changed."""
    chosen = random.random()
    if chosen < 0.45:
        return described(mutated(random, body))
    if chosen < 0.85:
        return described(_with_nodes(random, body))
    if chosen < 0.92:
        return packed(mutated(random, body))
    return mutated(random, packed(body) if random.random() < 0.5 else described(body))


_COUNTS = (0, 1, 3, 4, 20, 21, 60, 2**16, 2**24, 2**27, 2**31 - 1, 2**32 - 1)


def _with_nodes(random: Random, body: bytes) -> bytes:
    """A body in which words (everything is aligned to eight) became heads of nodes, or numbers
    that another word of it holds: two lies that agree go further than one."""
    words = bytearray(body)
    if len(words) < 8:
        return bytes(words)
    places = range(0, len(words) - 7, 8)
    agreed = random.choice(_COUNTS)
    for _ in range(random.choice((1, 2, 3))):
        at = random.choice(places)
        chosen = random.random()
        if chosen < 0.4:
            word = bytes(
                (random.randrange(10), random.choice((0, 1, 2, 4, 8)), random.randrange(4), 0)
            )
            word += agreed.to_bytes(4, "little")
        elif chosen < 0.6:
            word = bytes(words[at : at + 4]) + agreed.to_bytes(4, "little")
        elif chosen < 0.8:
            word = agreed.to_bytes(8, "little")
        else:
            word = (random.choice(NUMBERS) & (2**64 - 1)).to_bytes(8, "little")
        words[at : at + 8] = word
    return bytes(words)


def _make_block(random: Random) -> bytes:
    """One block of a group that reads well otherwise: its number, and what is behind its prefix."""
    number = random.randrange(len(reading.BLOCKS))
    block = _mutated_block(random, reading.BLOCKS[number].body)
    return number.to_bytes(2, "little") + block


TARGETS = {
    target.name: target
    for target in (
        Target("log", _make_log, reading.read_log, 30),
        Target("record", _make_record, reading.read_record, 30),
        Target("manifest", _make_manifest, reading.read_manifest, 20),
        Target("segment", _make_segment, reading.read_segment, 8),
        Target("block", _make_block, reading.read_block, 40),
    )
}


def input_of(target: Target, seed: int, number: int, random: Random | None = None) -> bytes:
    """The input of that number; the same whenever and wherever it is made."""
    random = random or Random()
    random.seed(seed << 72 | number << 8 | _PLACES[target.name])
    return target.make(random)


_PLACES = {name: place for place, name in enumerate(TARGETS)}

"""Salvaging: what can still be read of a damaged segment.

Every row group has checksums of its own, kept in the index and again before each block. Groups
whose blocks all pass are whole; the rest is lost. When the footer is the damaged part, and with it
the checksum of the index, the index is looked for where it must lie, and believed if every block
that it names is whole: one that is damaged may still parse, leave columns out, and name ids that
are not those of its groups. For the same reason nothing is left without an index that passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
from crc32c import crc32c

from reef.data.schema import Schema
from reef.errors import Corruption, InvalidInput, ObjectNotFound, UnsupportedFormat
from reef.lsm.tree import Tree
from reef.lsm.write.upload import upload_segments
from reef.segment import Group, SegmentInfo
from reef.segment.index import Index
from reef.segment.layout import TRAILER, Section, check_section, decode_footer
from reef.store.contract import Store

Id = str | int
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SIZES = {0: (1, 0), 1: (2, 256), 2: (4, 0), 3: (8, 0)}


@dataclass(frozen=True)
class Salvage:
    """A damaged segment, the groups of it that are whole, and the ranges that are lost."""

    info: SegmentInfo
    rows: int
    lost_ids: tuple[tuple[Id, Id], ...]
    lost_lsns: tuple[tuple[int, int], ...]
    groups: tuple[int, ...] = ()
    schema: Schema = field(default_factory=Schema)
    index: Index | None = None


def check_supported(store: Store, info: SegmentInfo) -> None:
    """Raise `UnsupportedFormat` for a segment that is not damaged but written by a newer Reef."""
    try:
        tail = store.get_range(info.key, info.size - info.tail, info.tail)
        decode_footer(info.key, tail, info.size)
    except (Corruption, ObjectNotFound):
        pass


def survey(store: Store, info: SegmentInfo, schema: Schema) -> Salvage:
    """Find out what is left of a segment. `schema` is used if the segment's own cannot be read."""
    nothing = Salvage(info, 0, ((info.min_id, info.max_id),), ((info.min_lsn, info.max_lsn),))
    found = _find_index(store, info, schema)
    if found is None:
        return nothing
    index, schema, checked = found
    good: list[int] = []
    lost_ids: list[tuple[Id, Id]] = []
    lost_lsns: list[tuple[int, int]] = []
    for number in range(index.count):
        if _read_group(store, info, schema, index, number) is not None:
            good.append(number)
            continue
        if not checked:
            return nothing
        lost_ids.append((index.first[number], index.last[number]))
        lsns = (index.min_lsn[number], index.max_lsn[number])
        lost_lsns.append((info.lsn, info.lsn) if info.lsn else lsns)
    rows = sum(index.rows[number] for number in good)
    return Salvage(info, rows, tuple(lost_ids), tuple(lost_lsns), tuple(good), schema, index)


def rewrite(tree: Tree, salvage: Salvage, birth: int) -> list[SegmentInfo]:
    """Write the rows that are left, with their LSNs, as fresh segments of the same level."""
    if not salvage.groups:
        return []
    info = salvage.info
    fresh = upload_segments(
        salvaged_rows(tree.store, salvage),
        salvage.schema,
        store=tree.store,
        environment=tree.environment,
        birth=birth,
        level=info.level,
        target_bytes=tree.options.segment_bytes,
    )
    if not info.lsn:
        return fresh
    return [
        msgspec.structs.replace(new, lsn=info.lsn, min_lsn=info.lsn, max_lsn=info.lsn)
        for new in fresh
    ]


def salvaged_rows(store: Store, salvage: Salvage) -> Iterator[pa.RecordBatch]:
    """The rows that are left, in id order, a batch a group, with their LSNs as stored."""
    assert salvage.index is not None
    for number in salvage.groups:
        batch = _read_group(store, salvage.info, salvage.schema, salvage.index, number)
        if batch is None:
            raise Corruption(salvage.info.key, "it is damaged further since it was surveyed")
        yield batch


def _read_group(
    store: Store, info: SegmentInfo, schema: Schema, index: Index, number: int
) -> pa.RecordBatch | None:
    start, length = index.span(number)
    places = index.places(number)
    try:
        data = store.get_range(info.key, start, length)
        blocks = {
            name: data[place.offset - start : place.offset - start + place.length]
            for name, place in places.items()
        }
        group = Group(info.key, schema, index.rows[number], places, blocks, 0)
        batch = group.batch()
    except (Corruption, ObjectNotFound):
        return None
    ends = (group.ids[0].as_py(), group.ids[-1].as_py())
    return batch if ends == (index.first[number], index.last[number]) else None


def _find_index(
    store: Store, info: SegmentInfo, schema: Schema
) -> tuple[Index, Schema, bool] | None:
    """The index, the schema that goes with it, and whether its checksum was there to hold it to."""
    key = info.key
    data_end = info.size - info.tail
    try:
        size = store.head(key).size
        tail = store.get_range(key, data_end, info.tail)
    except ObjectNotFound:
        return None
    try:
        footer, own = decode_footer(key, tail, size)
    except (Corruption, UnsupportedFormat):
        index = _search_index(info, bytes(tail), data_end, schema)
        return None if index is None else (index, schema, False)
    if footer.id != info.id:
        return None  # Sound, but of another segment: nothing in it is this one's.
    try:
        at = footer.index.offset - (size - len(tail))
        stored = tail[at : at + footer.index.length]
        check_section(key, footer.index, stored, "index")
        index = Index(key, footer.index, stored, footer.data_end)
    except Corruption:
        return None
    return (index, own, True) if _belongs(index, own) else None


def _search_index(info: SegmentInfo, tail: bytes, data_end: int, schema: Schema) -> Index | None:
    """The index without the footer's word for where it is: a zstd frame in the tail that parses
    as the index of the rows that the manifest says."""
    at = tail.find(_ZSTD_MAGIC)
    while at >= 0:
        raw = _raw_size(tail, at)
        for end in _ends(tail, at):
            data = memoryview(tail)[at:end]
            section = Section(data_end + at, len(data), raw, crc32c(data))
            try:
                index = Index(info.key, section, data, data_end)
            except (Corruption, InvalidInput):
                continue
            if _describes(index, info) and _belongs(index, schema):
                return index
        at = tail.find(_ZSTD_MAGIC, at + 1)
    return None


def _ends(tail: bytes, at: int) -> Iterator[int]:
    """Where the frame may end: where the trailer says that the footer begins, if that is left."""
    if len(tail) >= TRAILER.size:
        length = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)[0]
        stop = len(tail) - TRAILER.size - length
        if stop > at:
            yield stop


def _raw_size(tail: bytes, at: int) -> int:
    """The uncompressed length that a zstd frame states; 0 if it states none."""
    if at + 6 > len(tail):
        return 0
    descriptor = tail[at + 4]
    single = descriptor >> 5 & 1
    width, base = _ZSTD_SIZES[descriptor >> 6]
    if not single and not descriptor >> 6:
        return 0
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    start = at + 5 + (0 if single else 1) + dictionary
    return int.from_bytes(tail[start : start + width], "little") + base


def _describes(index: Index, info: SegmentInfo) -> bool:
    said = (sum(index.rows), sum(index.tombstones), index.first[0], index.last[-1])
    return said == (info.rows, info.tombstones, info.min_id, info.max_id)


def _belongs(index: Index, schema: Schema) -> bool:
    return all(name in schema.attributes for name in index.columns)

"""Everything that reads bytes, and then looks at what it got the way the rest of Reef does.

Each raises an error of `reef.errors`, or nothing. Arrow data that comes out is checked for what
Arrow itself takes for granted: whoever uses it next would read outside of its memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from reef.data.documents import Documents, documents_of
from reef.data.plain import PlainRows
from reef.data.schema import Schema
from reef.environment import SYSTEM
from reef.errors import Corruption
from reef.log.codec import LogEntry
from reef.log.log import Log
from reef.log.naming import WAL
from reef.lsm.read.merge import merge
from reef.lsm.records import records_of
from reef.lsm.unfolded import Unfolded
from reef.manifest.codec import decode as decode_manifest
from reef.segment import BlockCache, Group, SegmentReader, describe
from reef.segment.block import zstd
from reef.segment.index import BlockPlace
from reef.segment.tail import Tail
from reef.store import MemoryStore
from torture.fuzz import seeds
from torture.fuzz.sealing import Anatomy, described, sealed_block

_KEY = WAL.key(seeds.LSN)


class _OneObject(MemoryStore):
    """A store that has the same object wherever one looks."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.put(_KEY, data)


def compress(data: bytes) -> bytes:
    """As the index of a segment is."""
    return bytes(zstd().compress(data, asbytes=True))


def read_log(data: bytes) -> None:
    """A log object in its slot: decoded, replayed, looked into."""
    _replay(Log(_OneObject(data), SYSTEM).read(seeds.LSN))


def read_record(data: bytes) -> None:
    """The payload of a record whose checksum was right."""
    _replay(LogEntry(seeds.HEADERS[1], (memoryview(data),), len(data)))


def _replay(entry: LogEntry) -> None:
    records = records_of(entry)
    unfolded = Unfolded(1, Schema(), 0)
    unfolded.apply(entry, records)
    for record in records:
        if isinstance(record, PlainRows):
            for row in range(len(record)):
                record.document(row)
        elif isinstance(record, pa.RecordBatch):
            record.validate(full=True)
            documents = Documents(record)
            for row in range(record.num_rows):
                documents.document(row)
    for rows in merge(unfolded.memtable.sorted().sources(), keep_tombstones=True):
        rows.validate(full=True)
        for document in documents_of(rows):
            unfolded.memtable.find(document["id"])  # type: ignore[arg-type]


def read_manifest(data: bytes) -> None:
    """A manifest, and the schema in it."""
    manifest = decode_manifest("manifest", memoryview(data))
    manifest.parsed_schema()
    for info in (*manifest.segments, *manifest.window):
        _ = info.key


def read_segment(data: bytes) -> None:
    """A segment: described, verified, and read in every way."""
    store = _OneObject(data)
    info = describe(store, _KEY)
    reader = SegmentReader(store, _KEY, info, BlockCache(1 << 26))
    reader.verify(deep=True)
    for group in reader.groups():
        reader.statistics(group)
    for batch in reader.read(reader.groups()):
        batch.validate(full=True)
        documents_of(batch)
    for identity in (info.min_id, info.max_id):
        found = reader.find(identity)
        if found is not None:
            found[0].document(found[1])


@dataclass(frozen=True)
class Block:
    """A block of a group: the group's other blocks are as they were written."""

    body: bytes
    name: str | None
    rows: int
    schema: Schema
    others: dict[str | None, bytes]


def _blocks() -> list[Block]:
    found = []
    for segment in seeds.SEGMENTS:
        tail = Tail("seed", memoryview(segment.data), len(segment.data))
        parts = Anatomy(segment.data)
        names = (None, *tail.index.columns)
        for group, place, body in parts.blocks:
            others = {
                names[p]: sealed_block(described(b))[0] for g, p, b in parts.blocks if g == group
            }
            others = {name: other for name, other in others.items() if name in (None, names[place])}
            found.append(Block(body, names[place], parts.rows[group], segment.schema, others))
    return found


BLOCKS = _blocks()


def read_block(data: bytes) -> None:
    """A group of which one block is given: its number, and what is behind its prefix."""
    if len(data) < 2:
        raise Corruption("block", "nothing is there")
    block = BLOCKS[int.from_bytes(data[:2], "little") % len(BLOCKS)]
    framed = {**block.others, block.name: sealed_block(data[2:])[0]}
    places = {
        name: BlockPlace(16, len(part), int.from_bytes(part[4:8], "little"))
        for name, part in framed.items()
    }
    blocks = {name: memoryview(part) for name, part in framed.items()}
    group = Group("block", block.schema, block.rows, places, blocks, 0)
    _ = group.nbytes
    batch = group.batch()
    batch.validate(full=True)
    _ = group.id_list
    for row in range(0, block.rows, 3):
        group.document(row)
        group.lsn(row)
        group.kind(row)
    documents_of(batch)

"""Segments: immutable objects of rows sorted by id.

Owns the format RFSEG1: row groups whose columns are encoded, compressed and checksummed one by
one, an id filter, an index and a footer; its writer, its reader, the cache that readers share,
and the search for damage. Relies on `reef.data` for what a row is and on `reef.store` for bytes.
The invariant: whatever a reader returns passed its checks, and is exactly what was appended.
"""

from __future__ import annotations

from reef.data.statistics import ColumnStatistics
from reef.segment.cache import BlockCache
from reef.segment.group import Group
from reef.segment.info import SegmentInfo, birth_of
from reef.segment.reader import SegmentReader
from reef.segment.split import SEGMENT_BYTES, split_segments
from reef.segment.verify import Problem, describe
from reef.segment.writer import GROUP_BYTES, SegmentWriter

__all__ = [
    "GROUP_BYTES",
    "SEGMENT_BYTES",
    "BlockCache",
    "ColumnStatistics",
    "Group",
    "Problem",
    "SegmentInfo",
    "SegmentReader",
    "SegmentWriter",
    "birth_of",
    "describe",
    "split_segments",
]

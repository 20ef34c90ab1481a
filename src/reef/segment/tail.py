"""The tail of a segment in memory: footer, index and filter, checked."""

from __future__ import annotations

from itertools import chain

from reef.data.schema import Schema
from reef.errors import Corruption
from reef.segment.bloom import BloomFilter
from reef.segment.index import Index
from reef.segment.info import SegmentInfo
from reef.segment.layout import Footer, check_head, check_section, decode_footer, holds_ids


class Tail:
    """What planning any read needs. `whole` holds a small segment's every byte, else None."""

    __slots__ = ("filter", "footer", "group_keys", "index", "nbytes", "schema", "whole")

    def __init__(self, key: str, data: memoryview, end: int, group_key: object = None) -> None:
        """Parse bytes that end at the object's end, at byte `end`, and begin in or before the tail.

        `group_key` is what the cache keys of this segment's groups begin with.
        """
        self.footer: Footer
        self.schema: Schema
        self.footer, self.schema = decode_footer(key, data, end)
        start = end - len(data)
        if self.footer.data_end < start:
            raise Corruption(key, "its tail is longer than its manifest says", start)
        self.whole = data if start == 0 else None
        if self.whole is not None:
            check_head(key, data)
        sections = []
        for section, meaning in ((self.footer.filter, "filter"), (self.footer.index, "index")):
            at = section.offset - start
            sections.append(check_section(key, section, data[at : at + section.length], meaning))
        self.filter = BloomFilter(key, self.footer.filter.offset, sections[0])
        self.index = Index(key, self.footer.index, sections[1], self.footer.data_end)
        if any(name not in self.schema.attributes for name in self.index.columns):
            raise Corruption(key, "its index has columns that its schema lacks", end - len(data))
        if not holds_ids(self.schema, chain(self.index.first, self.index.last)):
            raise Corruption(
                key, "its index has ids of another kind than its schema", self.footer.index.offset
            )
        self.group_keys = [(group_key, number) for number in range(self.index.count)]
        held = len(data) if self.whole is not None else 0
        self.nbytes = held + self.filter.nbytes + self.index.nbytes + 200 * self.index.count + 2000

    def check_against(self, key: str, info: SegmentInfo) -> None:
        """Raise unless this is the tail of the segment that a manifest describes."""
        footer = self.footer
        if footer.data_end != info.size - info.tail:
            raise Corruption(
                key, "its tail begins elsewhere than its manifest says", footer.data_end
            )
        said = (info.id, info.rows, info.tombstones, info.min_id, info.max_id)
        if said != (footer.id, footer.rows, footer.tombstones, footer.min_id, footer.max_id):
            raise Corruption(key, "its footer is not that of the segment asked for", info.size)

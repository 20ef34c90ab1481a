"""Where a namespace's manifests lie, and the register of them.

Segments of large runs are named by list objects. A publication first writes the lists that it
needs and that are not there yet, and whoever reads a manifest reads those that it needs. What is
known of a run already is kept: following the root costs as much as has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

import msgspec

from reef.environment import Environment
from reef.errors import NamespaceDropped, no_namespace
from reef.manifest.codec import MANIFEST
from reef.manifest.layout import Layout
from reef.manifest.listing import arrange, gather, members
from reef.manifest.lists import ListInfo, decode_list
from reef.manifest.model import NO_SEGMENTS, NOTHING_RETIRED, Manifest
from reef.manifest.register import Register
from reef.manifest.retired import Retired, RetiredGroup, RetiredList, Superseded
from reef.manifest.retiring import arrange_retired, entries_of, merge_spans
from reef.manifest.runs import SegmentRun, Segments
from reef.segment.info import SegmentInfo
from reef.store.contract import Store

PREFIX = "manifest/"
HINT = "hint.json"


_LISTS_HELD = 4
MANIFESTS: Layout[Manifest] = Layout(
    PREFIX, ".manifest.json", MANIFEST, partial(no_namespace, ""), HINT
)


def manifest_register(
    store: Store, environment: Environment, publisher: str, name: str = ""
) -> Register[Manifest]:
    """The register of the manifests below the prefix of the namespace of that name."""
    layout = replace(
        MANIFESTS,
        absent=partial(no_namespace, name),
        over=partial(NamespaceDropped, name),
        name=name,
    )
    return _ManifestRegister(store, environment, publisher, layout)


def whole_manifest(key: str, data: memoryview, get: Callable[[str], memoryview]) -> Manifest:
    """A manifest out of its bytes, with all that its lists name, which `get` gives the bytes of."""

    def segments_of(info: ListInfo) -> tuple[SegmentInfo, ...]:
        return decode_list(info, get(info.key), SegmentInfo)

    def entries(name: RetiredList) -> tuple[Superseded, ...]:
        if name.generation:
            return entries_of(name, segments_of(name.list))
        return decode_list(name.list, get(name.list.key), Superseded)

    root = MANIFEST.decode(key, data)
    return msgspec.structs.replace(
        root,
        segments=Segments.of(tuple(gather(root.segments, root.lists, segments_of))),
        superseded=Retired(
            (*root.superseded, *(entry for name in root.retired for entry in entries(name)))
        ),
    )


class _ManifestRegister(Register[Manifest]):
    def __init__(
        self, store: Store, environment: Environment, publisher: str, layout: Layout[Manifest]
    ) -> None:
        super().__init__(store, environment, publisher, layout)
        self._runs: WeakValueDictionary[object, SegmentRun] = WeakValueDictionary()
        # Small runs share lists, and are asked for one after the other.
        self._read: dict[str, tuple[SegmentInfo, ...]] = {}

    def _completed(self, root: Manifest) -> Manifest:
        segments = gather(root.segments, root.lists, self._segments_of)
        groups = [RetiredGroup(name, self._entries_of) for name in root.retired]
        return msgspec.structs.replace(
            root,
            segments=Segments(map(self._known, segments.runs)),
            superseded=Retired(root.superseded.named, groups),
        )

    def _prepared(self, root: Manifest, base: Manifest | None) -> Manifest:
        listing = arrange(
            root.segments,
            root.lists,
            birth=root.generation - 1,
            make_id=self.environment.unique_id,
        )
        kept = {info.id for info in listing.lists}
        gone = [info for info in (base.lists if base else ()) if info.id not in kept]
        named = members(base.segments, gone) if base is not None else {}
        retirement = arrange_retired(
            root.superseded,
            {info: named[info.id] for info in gone},
            generation=root.generation,
            read=self._entries_of,
            make_id=self.environment.unique_id,
        )
        self.store.concurrently(
            [
                partial(self.store.put, info.key, data)
                for info, data in (*listing.fresh, *retirement.fresh)
            ]
        )
        return msgspec.structs.replace(
            root,
            segments=listing.segments or NO_SEGMENTS,
            lists=listing.lists,
            superseded=retirement.retired or NOTHING_RETIRED,
            retired=retirement.lists,
            folded=merge_spans(root.folded),
        )

    def _known(self, run: SegmentRun) -> SegmentRun:
        """The same run as it was met before, if it was."""
        identity = tuple(run.homes) + run.key if run.homes else run.segments
        return self._runs.setdefault(identity, run)

    def _segments_of(self, info: ListInfo) -> tuple[SegmentInfo, ...]:
        found = self._read.get(info.id)
        if found is None:
            found = decode_list(info, self.store.get(info.key).data, SegmentInfo)
            self._read[info.id] = found
            while len(self._read) > _LISTS_HELD:
                self._read.pop(next(iter(self._read)), None)
        return found

    def _entries_of(self, name: RetiredList) -> tuple[Superseded, ...]:
        if name.generation:
            return entries_of(name, self._segments_of(name.list))
        return decode_list(name.list, self.store.get(name.list.key).data, Superseded)

"""What a publication, an opening and a new view cost when there are many segments and pins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import reef
from bench.scale_figure import Figure, timed
from reef.lsm.retention.pins import pin
from reef.manifest import Manifest
from reef.segment import SegmentInfo
from reef.store import CountingStore, open_store

_FEW, _MANY, _FEWER_MANY = 1_000, 100_000, 20_000
_PINS = 100


def root(full: bool, folder: Path) -> Iterator[Figure]:
    """The root of a large namespace against a small one's. Its segments exist by name only."""
    many = _MANY if full else _FEWER_MANY
    small = _opening(str(folder / "few"), _FEW)
    url = str(folder / "many")
    large = _opening(url, many)
    yield Figure(f"open, {many:,} segments against {_FEW:,}", large / small, "×", 1.3)
    store = CountingStore(open_store(url))
    namespace = reef.connect(store).namespace("n", maintain=False)
    tree = namespace._tree
    for number in range(_PINS):
        pin(tree, tree.view, f"pin-{number}", 600.0)
    before = store.counts()
    tree.register.publish(_nothing_much, tree.register.head())
    written = (store.counts() - before).bytes_written
    yield Figure(f"bytes of a publication, {many:,} segments", written / 1024, "KiB", 256)
    largest = max(info.size for info in store.list("namespaces/n/manifest/"))
    yield Figure("the root itself", largest / 1024, "KiB", 1024)
    seconds = timed(lambda: tree.register.publish(_nothing_much, tree.register.head()), 9)
    yield Figure(f"a publication, {many:,} segments", seconds * 1e3, "ms", 20)
    namespace.write(upserts=[{"id": "zz", "n": 1}])
    namespace.index()
    seconds = timed(lambda: tree.install(tree.head, tree.view.unfolded), 9)
    yield Figure(f"a new view, {many:,} segments", seconds * 1e3, "ms", 5)
    namespace.close()


def _opening(url: str, count: int) -> float:
    """How many seconds it takes to open a namespace of that many segments."""
    database = reef.connect(url)
    with database.namespace("n", maintain=False) as namespace:
        namespace.write(upserts=[{"id": "zzz", "n": 1}])
        namespace.index()
        infos = [_segment(number, count) for number in range(count)]
        namespace._tree.register.publish(
            lambda newest: msgspec.structs.replace(newest, segments=newest.segments.plus(infos))
        )
    return timed(lambda: database.namespace("n", "r").close(), 15)


def _segment(number: int, count: int) -> SegmentInfo:
    run = f"run{number * 3 // count}"
    first, last = f"user-{number:010d}", f"user-{number:010d}z"
    identity = f"01hzyx{number:020d}"
    return SegmentInfo(
        identity, 1, run, 2, 100_000, 0, first, last, 1, 2, 64_000_000 + number, 50_000, number
    )


def _nothing_much(newest: Manifest) -> Any:
    return msgspec.structs.replace(newest, compactor_epoch=newest.compactor_epoch + 1)

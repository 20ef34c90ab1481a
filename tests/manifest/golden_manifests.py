"""Manifests as values; `golden/` holds them as versions 1 and 2 wrote them.

`python -m manifest.golden_manifests` (from `tests`) writes the files that are not there yet, and
never one that is: what was stored must keep its meaning.
"""

from __future__ import annotations

from pathlib import Path

from reef.manifest import Manifest
from reef.manifest.codec import encode
from reef.manifest.lists import encode_list, encode_segments
from reef.manifest.model import Life, Pin, Settings
from reef.manifest.retired import LogSpan, Retired, RetiredList, Superseded
from reef.segment import SegmentInfo

GOLDEN = Path(__file__).parent / "golden"

_OLD = SegmentInfo("s1", 1, "r1", 2, 1000, 10, "a", "mærke", 1, 90, 65_536, 4096, 2**32 - 1)
_LOADED = SegmentInfo("s2", 3, "r2", 0, 5, 0, "n", "z", 95, 95, 800, 400, 0, lsn=95)
_WINDOW = SegmentInfo("s3", 4, "r3", 0, 2, 0, "key-1", "key-2", 91, 94, 600, 300, 7)

MANIFESTS: dict[str, Manifest] = {
    "smallest": Manifest(1, "movies", 1_700_000_000.25, "p", "0123456789abcdef"),
    "whole": Manifest(
        generation=7,
        namespace="movies",
        created_at=1_700_000_001.5,
        publisher="01hzyx0000000000000000000a",
        nonce="0123456789abcdef",
        previous="fedcba9876543210",
        schema={"id": "string", "attributes": {"title": "string", "v": "vector<float32, 3>"}},
        fingerprint="0011223344556677",
        settings=Settings(60.0, 15.0, 10, 20.5),
        writer_epoch=4,
        compactor_epoch=2,
        wal_floor=96,
        last_applied_lsn=95,
        segments=(_OLD, _LOADED),
        window=(_WINDOW,),
        orphan_floor=3,
        superseded=(Superseded("segments/00000000000000000001-s0.seg", 6),),
        folded=(LogSpan(1, 90, 5), LogSpan(91, 95, 7)),
        snapshots={"report": Pin(5, 92, 6, 60.0)},
    ),
    "numbered": Manifest(
        *(2, "n", 0.0, "p", "0"),
        schema={"id": "uint64", "attributes": {}},
        segments=(SegmentInfo("s", 1, "r", 0, 2, 0, 0, 2**64 - 1, 1, 2, 500, 300, 1),),
    ),
}

# A name that was dropped once: older programs must not take it for what it is not.
LIVES: dict[str, Manifest] = {
    "dropping": Manifest(*(3, "n", 0.0, "p", "0", "1", 2), writer_epoch=2, dropping=True),
    "dropped": Manifest(
        *(4, "n", 0.0, "p", "0", "1", 2),
        writer_epoch=2,
        compactor_epoch=1,
        wal_floor=9,
        last_applied_lsn=8,
        orphan_floor=4,
        superseded=(Superseded("segments/00000000000000000001-s0.seg", 4),),
        folded=(LogSpan(1, 8, 4),),
        dropped=True,
    ),
    "created-again": Manifest(
        *(5, "n", 0.0, "p", "0", "1", 2),
        settings=Settings(60.0, 15.0, 10, 20.5),
        writer_epoch=2,
        compactor_epoch=2,
        wal_floor=9,
        last_applied_lsn=8,
        orphan_floor=5,
        folded=(LogSpan(1, 8, 4),),
        life=Life(5, 9, 900.0),
    ),
}
LISTED_SEGMENTS = (_OLD, _LOADED)
RETIRED_SEGMENTS = (_WINDOW,)
RETIRED_ENTRIES = (Superseded("segments/00000000000000000001-s0.seg", 6), Superseded("x", 7))
_LISTS = [
    encode_segments(LISTED_SEGMENTS, "l1", 6),
    encode_segments(RETIRED_SEGMENTS, "l2", 5),
    encode_list(RETIRED_ENTRIES, "l3", 6),
]
LISTS = {info.id: (info, data) for data, info in _LISTS}
LISTED = Manifest(
    *(7, "movies", 1_700_000_001.5, "p", "0123456789abcdef"),
    format=2,
    lists=(LISTS["l1"][0],),
    superseded=Retired((Superseded("y", 7),)),
    retired=(RetiredList(LISTS["l2"][0], 7), RetiredList(LISTS["l3"][0], 0)),
)


def files() -> dict[str, bytes]:
    """Every golden file as it is written today."""
    found = {f"version-1-{name}.json": encode(manifest) for name, manifest in MANIFESTS.items()}
    found |= {f"version-1-{id}.list": data for id, (_, data) in LISTS.items()}
    found |= {f"version-2-{name}.json": encode(manifest) for name, manifest in LIVES.items()}
    found["version-2-listed.json"] = encode(LISTED)
    return found


def make() -> None:
    """Write what is not there yet."""
    for name, data in files().items():
        path = GOLDEN / name
        if not path.exists():
            path.write_bytes(data)


if __name__ == "__main__":
    make()

"""Manifests written by every format version stay readable."""

from __future__ import annotations

import pytest

from manifest.golden_manifests import (
    GOLDEN,
    LISTED,
    LISTED_SEGMENTS,
    LISTS,
    LIVES,
    MANIFESTS,
    RETIRED_ENTRIES,
    RETIRED_SEGMENTS,
    files,
)
from reef.manifest import Superseded
from reef.manifest.codec import decode
from reef.manifest.manifests import whole_manifest


@pytest.mark.parametrize("name", MANIFESTS)
def test_version_1(name: str) -> None:
    data = (GOLDEN / f"version-1-{name}.json").read_bytes()
    assert decode("k", memoryview(data)) == MANIFESTS[name]


@pytest.mark.parametrize("name", LIVES)
def test_version_2_of_a_name_that_was_dropped(name: str) -> None:
    data = (GOLDEN / f"version-2-{name}.json").read_bytes()
    assert decode("k", memoryview(data)) == LIVES[name]
    assert LIVES[name].least_format == LIVES[name].format == 2


def test_version_2_and_its_lists() -> None:
    data = (GOLDEN / "version-2-listed.json").read_bytes()
    assert decode("k", memoryview(data)) == LISTED

    def get(key: str) -> memoryview:
        (id,) = (id for id, (info, _) in LISTS.items() if info.key == key)
        return memoryview((GOLDEN / f"version-1-{id}.list").read_bytes())

    manifest = whole_manifest("k", memoryview(data), get)
    assert tuple(manifest.segments) == LISTED_SEGMENTS
    assert tuple(manifest.superseded) == (
        *LISTED.superseded,
        Superseded(LISTS["l2"][0].key, 7),
        *(Superseded(info.key, 7) for info in RETIRED_SEGMENTS),
        *RETIRED_ENTRIES,
    )


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".json")])
def test_what_is_written_today_is_the_same(name: str) -> None:
    assert files()[name] == (GOLDEN / name).read_bytes()


def test_nothing_golden_is_forgotten() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(files())

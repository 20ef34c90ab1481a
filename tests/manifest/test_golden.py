"""Manifests written by every format version stay readable."""

from __future__ import annotations

import pytest

from manifest.golden_manifests import GOLDEN, MANIFESTS
from reef.manifest.codec import decode, encode


@pytest.mark.parametrize("name", MANIFESTS)
def test_version_1(name: str) -> None:
    data = (GOLDEN / f"version-1-{name}.json").read_bytes()
    assert decode("k", memoryview(data)) == MANIFESTS[name]


@pytest.mark.parametrize("name", MANIFESTS)
def test_what_is_written_today_is_version_1(name: str) -> None:
    assert encode(MANIFESTS[name]) == (GOLDEN / f"version-1-{name}.json").read_bytes()


def test_nothing_golden_is_forgotten() -> None:
    names = {f"version-1-{name}.json" for name in MANIFESTS}
    assert {path.name for path in GOLDEN.iterdir()} == names

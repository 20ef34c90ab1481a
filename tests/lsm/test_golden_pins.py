"""Pin boards written by every format version stay readable."""

from __future__ import annotations

import pytest

from lsm.golden_boards import BOARDS, GOLDEN
from reef.lsm.retention.pinboard import PINS


@pytest.mark.parametrize("name", BOARDS)
def test_version_1(name: str) -> None:
    data = (GOLDEN / f"version-1-{name}.json").read_bytes()
    assert PINS.codec.decode("k", memoryview(data)) == BOARDS[name]
    assert PINS.codec.encode(BOARDS[name]) == data


def test_nothing_golden_is_forgotten() -> None:
    names = {f"version-1-{name}.json" for name in BOARDS}
    assert {path.name for path in GOLDEN.iterdir()} == names

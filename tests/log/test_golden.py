"""Log objects written by every format version stay readable."""

from __future__ import annotations

import pytest

from log.golden_objects import GOLDEN, OBJECTS, encoded, is_plain, value_of
from reef.log import decode
from reef.lsm.records import records_of


@pytest.mark.parametrize("name", OBJECTS)
def test_version_1(name: str) -> None:
    header, records = OBJECTS[name]
    data = (GOLDEN / f"version-1-{name}.wal").read_bytes()
    entry = decode("k", memoryview(data))
    assert entry.header == header
    found = records_of(entry)
    assert [type(record) for record in found] == [type(record) for record in records]
    assert [value_of(record) for record in found] == [value_of(record) for record in records]


@pytest.mark.parametrize("name", OBJECTS)
def test_what_is_written_today_is_version_1(name: str) -> None:
    _, records = OBJECTS[name]
    data = encoded(name)
    if all(map(is_plain, records)):
        assert data == (GOLDEN / f"version-1-{name}.wal").read_bytes()
    entry = decode("k", memoryview(data))
    assert [value_of(record) for record in records_of(entry)] == [value_of(r) for r in records]


def test_nothing_golden_is_forgotten() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"version-1-{name}.wal" for name in OBJECTS}

"""Namings: each slot has one key, and keys in order are slots in order."""

from __future__ import annotations

import pytest

from reef.log import WAL, Bucketed, Flat, Naming

LOG = Bucketed("log/")
NAMINGS = [WAL, Flat("edits/", ""), LOG]
SLOTS = [1, 2, 9, 10, 15, 16, 255, 256, 4095, 4096, 4097, 8192, 8193, 2**32, 2**63, 2**64 - 1]


@pytest.mark.parametrize("naming", NAMINGS)
def test_there_and_back(naming: Naming) -> None:
    keys = [naming.key(lsn) for lsn in SLOTS]
    assert [naming.lsn_of(key) for key in keys] == SLOTS
    assert all(key.startswith(naming.prefix) for key in keys)
    assert keys == sorted(keys)
    assert naming.key(0) < keys[0]


def test_the_keys_themselves() -> None:
    assert WAL.key(7) == "wal/00000000000000000007.wal"
    assert LOG.key(1) == "log/0000000000000000/0000000000000001"
    assert LOG.key(4096) == "log/0000000000000000/0000000000001000"
    assert LOG.key(4097) == "log/0000000000000001/0000000000001001"
    assert LOG.key(2**64 - 1) == "log/000fffffffffffff/ffffffffffffffff"


@pytest.mark.parametrize(
    "key",
    ["wal/7.wal", "wal/x.wal", "wal/0000000000000000000x.wal", "other", "wal/", WAL.key(3)[4:]],
)
def test_no_slot_of_a_flat_log(key: str) -> None:
    assert WAL.lsn_of(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "log/",
        "log/0000000000000000/",
        "log/0000000000000000/0000000000000000",
        "log/0000000000000001/0000000000000001",
        "log/0000000000000000/000000000000000G",
        "log/0000000000000000/000000000000000A",
        "log/0000000000000000/00000000000000+1",
        "other/0000000000000000/0000000000000001",
    ],
)
def test_no_slot_of_a_bucketed_log(key: str) -> None:
    assert LOG.lsn_of(key) is None

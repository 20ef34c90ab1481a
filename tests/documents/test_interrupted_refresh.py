"""A refresh that fails on its way: what is read afterwards is the state that the handle names."""

from __future__ import annotations

import pytest

import reef
from reef.store import MemoryStore
from support.faults import Clock, FaultyStore, request


def test_a_load_that_was_read_is_shown_though_the_refresh_failed() -> None:
    clock = Clock()
    store = MemoryStore(clock.environment())
    writer = reef.connect(store, environment=clock.environment()).namespace("n", maintain=False)
    writer.write(upserts=[{"id": "a"}])
    faulty = FaultyStore(store)
    options = reef.Options(staleness=10_000.0)
    database = reef.connect(faulty, options=options, environment=clock.environment())
    reader = database.namespace("n", "r")
    writer.load([{"id": "b"}])
    # It sleeps while it reads the log, so that it has to look at the root again, and cannot.
    faulty.pause_after(request("get", "wal/"), lambda: clock.advance(5_000))
    faulty.refuse(request("get", "hint"), nth=2)
    with pytest.raises(reef.StoreUnavailable):
        reader.refresh()
    ids = ["a", "b"] if reader.lsn == writer.lsn else ["a"]
    assert [row["id"] for row in reader.scan().documents()] == ids
    reader.refresh()
    assert [row["id"] for row in reader.scan().documents()] == ["a", "b"]

"""Bad input: a typed error in one sentence, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import reef
from reef import (
    BatchTooLarge,
    ConditionFailed,
    InvalidFilter,
    InvalidId,
    InvalidInput,
    InvalidName,
    NamespaceExists,
    NamespaceNotFound,
    Options,
    SchemaConflict,
)
from reef.documents import Database, Namespace
from reef.documents.changes import entries_between
from reef.lsm.write.batch import Condition
from reef.store import MemoryStore, Store


@pytest.fixture
def bucket() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def database(bucket: MemoryStore) -> Database:
    return reef.connect(bucket, options=Options(batch_bytes=100_000))


@pytest.fixture
def ns(database: Database) -> Namespace:
    ns = database.namespace("n", maintain=False)
    ns.write(
        upserts=[
            {"id": "a", "n": 1, "s": "x", "v": np.array([1, 2], np.float32), "l": [1], "b": True}
        ]
    )
    return ns


def listing(store: Store) -> list[tuple[str, int, str]]:
    return [(info.key, info.size, info.version) for info in store.list("")]


BAD_NAMES: list[Any] = [
    "", " ", ".", "..", "a/b", "a..b", "../a", ".a", "-a", "_a", "a b", "é", "a\0", "a\n", "\ud800",
    "a" * 129, None, 7, b"a", ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_namespace_names(bucket: MemoryStore, database: Database, name: Any) -> None:
    for call in (database.namespace, database.create, database.exists, database.drop):
        with pytest.raises(InvalidName):
            call(name)
    assert listing(bucket) == []


@pytest.mark.parametrize("name", ["a", "A-1_x.y", "0", "a" * 128])
def test_good_namespace_names(database: Database, name: str) -> None:
    database.create(name)
    assert database.namespaces() == [name]


BAD_IDS: list[Any] = [
    "", "x" * 513, "é" * 257, "a\0b", "a\n", "\x7f", "\x85", "\ud800", None, 7, 1.5, b"a", True,
    ["a"], {"a": 1}, np.int64(3),
]  # fmt: skip


@pytest.mark.parametrize("id", BAD_IDS, ids=repr)
def test_ids(bucket: MemoryStore, ns: Namespace, id: Any) -> None:
    before = listing(bucket)
    calls: list[Callable[[], object]] = [
        lambda: ns.write(upserts=[{"id": id}]),
        lambda: ns.write(upserts=[{"id": "fine"}, {"id": id, "n": 2}]),
        lambda: ns.write(patches=[{"id": id, "n": 1}]),
        lambda: ns.write(deletes=[id]),
        lambda: ns.get(id),
        lambda: ns.get_many(["a", id]),
        lambda: ns.load([{"id": id}]),
    ]
    # A bound need not be an id: see test_bounds.py.
    if not isinstance(id, str | None):
        calls.append(lambda: ns.scan(start=id))
        calls.append(lambda: ns.scan(stop=id))
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    assert listing(bucket) == before
    assert ns.count() == 1


@pytest.mark.parametrize("id", [-1, 2**64, "text", 1.5, True, None])
def test_integer_ids(database: Database, id: Any) -> None:
    ns = database.namespace("numbers", maintain=False)
    ns.write(upserts=[{"id": 0}, {"id": 2**64 - 1}])
    with pytest.raises(InvalidId):
        ns.write(upserts=[{"id": id}])
    with pytest.raises(InvalidId):
        ns.get(id)
    ns.index()
    assert [row["id"] for row in ns.scan().documents()] == [0, 2**64 - 1]
    assert ns.get(2**64 - 1) == {"id": 2**64 - 1}


def test_rows_without_an_id(ns: Namespace) -> None:
    with pytest.raises(InvalidId):
        ns.write(upserts=[{"n": 1}])
    with pytest.raises(InvalidId):
        ns.write(upserts={"n": [1]})


NAN, INFINITY = float("nan"), float("inf")


def named(value: object) -> str:
    """How a case is called: the same in every process."""
    return ascii(value).split(" at 0x")[0][:40] if not isinstance(value, type) else value.__name__


BAD_VALUES: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"v": [1.0, NAN]}, InvalidInput),
    ({"v": [1.0, INFINITY]}, InvalidInput),
    ({"v": np.array([1, -INFINITY], np.float32)}, InvalidInput),
    ({"v": [1.0]}, SchemaConflict),
    ({"v": [1.0, 2.0, 3.0]}, SchemaConflict),
    ({"v": []}, SchemaConflict),
    ({"v": "text"}, SchemaConflict),
    ({"v": 1.0}, SchemaConflict),
    ({"v": [1.0, None]}, InvalidInput),
    ({"n": "text"}, SchemaConflict),
    ({"n": 2**63}, InvalidInput),
    ({"n": -(2**63) - 1}, InvalidInput),
    ({"n": 2**200}, InvalidInput),
    ({"n": 1.5}, SchemaConflict),
    ({"n": [1]}, SchemaConflict),
    ({"n": {"x": 1}}, SchemaConflict),
    ({"n": True}, SchemaConflict),
    ({"fresh": 2**64}, InvalidInput),
    ({"fresh": object()}, SchemaConflict),
    ({"fresh": {"x": object()}}, InvalidInput),
    ({"fresh": {1, 2}}, SchemaConflict),
    ({"fresh": 1j}, SchemaConflict),
    ({"fresh": "\ud800"}, InvalidInput),
    ({"s": 1}, SchemaConflict),
    ({"s": b"bytes"}, SchemaConflict),
    ({"s": "\ud800"}, InvalidInput),
    ({"b": 1}, SchemaConflict),
    ({"l": ["text"]}, SchemaConflict),
    ({"l": 5}, SchemaConflict),
    ({"": 1}, InvalidName),
    ({"x" * 129: 1}, InvalidName),
    ({"\0n": 1}, InvalidName),
    ({"a\nb": 1}, InvalidName),
    ({"\ud800": 1}, InvalidName),
    ({7: 1}, InvalidInput),  # type: ignore[dict-item]
]


@pytest.mark.parametrize("kind", ["upserts", "patches", "load"])
@pytest.mark.parametrize(("values", "error"), BAD_VALUES, ids=named)
def test_values(
    bucket: MemoryStore, ns: Namespace, kind: str, values: dict[str, Any], error: type[Exception]
) -> None:
    before = listing(bucket)
    rows = [{"id": "a", **values}]
    with pytest.raises(error):
        ns.load(rows) if kind == "load" else ns.write(**{kind: rows})
    # Among good rows too, and then none of them is written.
    rows = [{"id": f"fine{n}", "n": n} for n in range(50)] + rows
    with pytest.raises(error):
        ns.load(rows) if kind == "load" else ns.write(**{kind: rows})
    assert listing(bucket) == before
    assert ns.count() == 1
    assert ns.get("a") == {"id": "a", "n": 1, "s": "x", "v": [1.0, 2.0], "l": [1], "b": True}
    assert set(ns.schema.attributes) == {"n", "s", "v", "l", "b"}


@pytest.mark.parametrize("data", [7, "text", b"bytes", [1, 2], ["a"], [None], [[]], object(), 1.5])
def test_what_is_not_rows(bucket: MemoryStore, ns: Namespace, data: Any) -> None:
    before = listing(bucket)
    for kind in ("upserts", "patches"):
        with pytest.raises(InvalidInput):
            ns.write(**{kind: data})
    with pytest.raises(InvalidInput):
        ns.load(data)
    assert listing(bucket) == before


def test_columns_of_different_lengths(ns: Namespace) -> None:
    with pytest.raises(InvalidInput):
        ns.write(upserts={"id": ["x", "y"], "n": [1]})


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {"upserts": []},
        {"upserts": [], "patches": [], "deletes": []},
        {"deletes": []},
        {"upserts": {"id": []}},
        {"upserts": pa.table({"id": pa.array([], pa.string())})},
        {"idempotency_key": "k"},
        {"condition": reef.if_absent()},
    ],
    ids=repr,
)
def test_empty_batches(bucket: MemoryStore, ns: Namespace, batch: dict[str, Any]) -> None:
    before = listing(bucket)
    with pytest.raises(InvalidInput, match="empty"):
        ns.write(**batch)
    assert listing(bucket) == before


@pytest.mark.parametrize("data", [[], {"id": []}, iter([]), iter([[], []])], ids=named)
def test_empty_loads(bucket: MemoryStore, ns: Namespace, data: Any) -> None:
    before = listing(bucket)
    with pytest.raises(InvalidInput):
        ns.load(data)
    assert listing(bucket) == before


def test_a_batch_over_the_limit(bucket: MemoryStore, ns: Namespace) -> None:
    before = listing(bucket)
    with pytest.raises(BatchTooLarge):
        ns.write(upserts=[{"id": "big", "s": "x" * 200_000}])
    assert listing(bucket) == before
    ns.load([{"id": "big", "s": "x" * 200_000}])
    assert len(ns.get("big")["s"]) == 200_000  # type: ignore[index]


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", 7, b"k", "\ud800"])
def test_idempotency_keys(bucket: MemoryStore, ns: Namespace, key: Any) -> None:
    before = listing(bucket)
    with pytest.raises(InvalidInput):
        ns.write(upserts=[{"id": "b"}], idempotency_key=key)
    with pytest.raises(InvalidInput):
        ns.load([{"id": "b"}], idempotency_key=key)
    assert listing(bucket) == before


def test_of_several_rows_of_one_id_the_last_counts(ns: Namespace) -> None:
    receipt = ns.write(
        upserts=[{"id": "d", "n": 1, "s": "gone"}, {"id": "e"}, {"id": "d", "n": 2}],
        patches=[{"id": "d", "n": 3, "s": "gone"}, {"id": "d", "n": 4}],
        deletes=["e", "e"],
    )
    assert (receipt.upserted, receipt.patched, receipt.deleted) == (2, 1, 1)
    assert ns.get("d") == {"id": "d", "n": 4}
    assert list(ns.scan(start="d").documents()) == [{"id": "d", "n": 4}]
    ns.index()
    assert ns.get("d") == {"id": "d", "n": 4}
    assert ns.get("e") is None


def test_a_load_keeps_the_last_of_an_id(ns: Namespace) -> None:
    pieces = iter([[{"id": "d", "n": 1}, {"id": "d", "n": 2}], [{"id": "d", "n": 3}]])
    assert ns.load(pieces).upserted == 1
    assert ns.get("d") == {"id": "d", "n": 3}


def test_patches_of_what_is_not_there(bucket: MemoryStore, ns: Namespace) -> None:
    before = listing(bucket)
    receipt = ns.write(patches=[{"id": "x", "n": 1}, {"id": "y", "n": 1}])
    assert (receipt.patched, receipt.missing, receipt.lsn) == (0, 2, ns.lsn)
    assert listing(bucket) == before
    ns.write(deletes=["a"])
    assert ns.write(patches=[{"id": "a", "n": 1}]).missing == 1
    assert ns.get("a") is None


@pytest.mark.parametrize(
    "filter",
    ["", "n", "n =", "= 1", "n = 1 and", "(n = 1", "n = 'text'", "s = 1", "unknown = 1",
     "n === 1", "n = 1; drop", "v = 1", "id = 7", "not", "n like 'x'", "n = 1 or or n = 2",
     7, b"n = 1", ["n = 1"], {"n": 1}],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_filters(bucket: MemoryStore, ns: Namespace, filter: Any) -> None:
    before = listing(bucket)
    with pytest.raises(InvalidFilter):
        ns.scan(filter=filter)
    with pytest.raises(InvalidFilter):
        ns.count(filter)
    with pytest.raises(InvalidFilter):
        ns.write(delete_where=filter)
    assert listing(bucket) == before


def test_odd_filters_that_mean_something(ns: Namespace) -> None:
    assert ns.count("n in ()") == 0
    assert ns.count("n = " + "9" * 400) == 0
    assert ns.count("n < " + "9" * 400) == 1
    assert ns.count("(" * 5000 + "n = 1" + ")" * 5000) == 1


def test_reading_with_bad_arguments(ns: Namespace) -> None:
    calls: list[Callable[[], object]] = [
        lambda: ns.get("a", columns=["unknown"]),
        lambda: ns.get("a", columns="n"),
        lambda: ns.get_many(["a"], columns=["unknown"]),
        lambda: ns.scan(columns=["unknown"]),
        lambda: ns.scan(columns="n"),
        lambda: ns.scan(limit=-1),
        lambda: ns.scan(limit="x"),  # type: ignore[arg-type]
        lambda: ns.scan(prefix="a", start="b"),
        lambda: ns.scan(prefix=7),  # type: ignore[arg-type]
        lambda: ns.at(),
        lambda: ns.at(lsn=1, generation=1),
        lambda: ns.at(lsn=-1),
        lambda: ns.at(lsn=10**30),
        lambda: ns.at(generation=0),
        lambda: ns.at(generation=10**30),
        lambda: list(ns.changes(after=-1)),
        lambda: list(ns.changes(after="x")),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()


def test_conditions(bucket: MemoryStore, ns: Namespace) -> None:
    before = listing(bucket)
    for condition in (7, "absent", {"n": 1}, reef.if_equal(unknown=1)):
        with pytest.raises(InvalidInput):
            ns.write(upserts=[{"id": "b"}], condition=condition)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        reef.if_equal()
    with pytest.raises(InvalidInput):
        reef.if_equal(n=[1])
    with pytest.raises(InvalidInput):
        ns.write(upserts=[{"id": "b"}], on_conflict="whatever")
    for condition in (reef.if_equal(n=2), reef.if_equal(n=True), reef.if_equal(s="X")):
        with pytest.raises(ConditionFailed) as caught:
            ns.write(patches=[{"id": "a", "n": 5}], condition=condition)
        assert caught.value.ids == ("a",)
    with pytest.raises(ConditionFailed) as caught:
        ns.write(upserts=[{"id": "a"}, {"id": "b"}], deletes=["a"], condition=reef.if_absent())
    assert caught.value.ids == ("a",)
    assert listing(bucket) == before
    assert ns.write(patches=[{"id": "a", "n": 5}], condition=reef.if_equal(n=1, s="x")).patched == 1


PLAIN_CONDITIONS: list[tuple[str, Any]] = [
    ("f", np.float64(1.5)),
    ("f", np.float32(1.5)),
    ("n", np.int8(1)),
    ("n", np.uint64(1)),
    ("n", IntEnum("Number", {"ONE": 1}).ONE),  # type: ignore[attr-defined]
    ("s", np.str_("x")),
    ("s", StrEnum("Text", {"X": "x"}).X),  # type: ignore[attr-defined]
    ("b", np.bool_(True)),
    ("y", np.bytes_(b"\0\xff")),
    ("t", pd.Timestamp("2020-01-02T03:04:05", tz="Europe/Berlin")),
    ("t", datetime(2020, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))),
    ("z", None),
]


@pytest.mark.parametrize(("name", "value"), PLAIN_CONDITIONS, ids=lambda case: repr(case)[:40])
def test_conditions_take_whatever_equals_a_plain_value(
    database: Database, name: str, value: Any
) -> None:
    """The log holds a copy of them: nothing of it may fail in its encoding."""
    ns = database.namespace("plain", maintain=False)
    moment = datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)
    row = {"id": "a", "f": 1.5, "n": 1, "s": "x", "b": True, "y": b"\0\xff", "t": moment, "z": None}
    ns.write(upserts=[row])
    for condition in (reef.if_equal(**{name: value}), Condition("equal", {name: value})):
        receipt = ns.write(patches=[{"id": "a", "k": 1}], condition=condition)
        assert receipt.patched == 1
        (entry,) = entries_between(ns._tree, receipt.lsn - 1)
        assert entry.header.batches[0].condition is not None


@pytest.mark.parametrize(
    "value",
    ["\ud800", "a\udfff", datetime(2020, 1, 1), np.datetime64("2020-01-01"), 1j, 10**400, [1],
     datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), ..., np.array([1])],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_conditions_that_the_log_cannot_hold(
    bucket: MemoryStore, ns: Namespace, value: Any
) -> None:
    before = listing(bucket)
    with pytest.raises(InvalidInput):
        reef.if_equal(n=value)
    # Made by hand, it is refused all the same, before it comes to share a log object with others.
    with pytest.raises(InvalidInput):
        ns.write(patches=[{"id": "a", "n": 5}], condition=Condition("equal", {"n": value}))
    assert listing(bucket) == before


def test_texts_of_other_classes_are_texts(ns: Namespace) -> None:
    """A NumPy string is a str that encoders do not know."""
    key = np.str_("key")
    first = ns.write(
        upserts=[{np.str_("id"): np.str_("b"), np.str_("new"): 1}], idempotency_key=key
    )
    assert ns.write(upserts=[{"id": "c"}], idempotency_key="key") == first
    assert ns.load([{"id": "d"}], idempotency_key=np.str_("load")).upserted == 1
    assert {type(name) for name in ns.schema.attributes} == {str}
    assert ns.get("b") == {"id": "b", "new": 1}


def test_settings_and_schemas(bucket: MemoryStore, database: Database) -> None:
    for settings in ({"retention": -1}, {"grace": float("nan")}, {"window_keys": 1e15}):
        with pytest.raises(InvalidInput):
            database.create("x", settings=reef.Settings(**settings))  # type: ignore[arg-type]
    schemas: list[Any] = [
        {"id": "float64"}, {"n": "number"}, {"n": "vector<float32, 0>"}, {"": "int64"}
    ]  # fmt: skip
    for schema in schemas:
        with pytest.raises(InvalidInput):
            database.create("x", schema=schema)
    assert listing(bucket) == []
    with pytest.raises(InvalidInput):
        database.namespace("x", "rw")


def test_a_declared_schema_that_conflicts(database: Database, ns: Namespace) -> None:
    with pytest.raises(SchemaConflict):
        database.namespace("n", "r", schema={"n": "string"})
    with pytest.raises(SchemaConflict):
        database.namespace("n", "r", schema={"id": "uint64"})


def test_namespaces_that_are_and_are_not(database: Database, ns: Namespace) -> None:
    with pytest.raises(NamespaceExists):
        database.create("n")
    for call in (
        lambda: database.namespace("other", "r"),
        lambda: database.namespace("other", create=False),
        lambda: database.drop("other"),
    ):
        with pytest.raises(NamespaceNotFound):
            call()
    assert database.exists("n")
    assert not database.exists("other")
    database.drop("n")
    assert not database.exists("n")
    assert database.namespaces() == []


def test_closed_and_read_only(database: Database, ns: Namespace) -> None:
    reader = database.namespace("n", "r")
    with pytest.raises(reef.ReadOnly):
        reader.write(upserts=[{"id": "b"}])
    for handle in (reader, ns):
        handle.close()
        handle.close()
        calls: list[Callable[[], object]] = [
            lambda handle=handle: handle.write(upserts=[{"id": "b"}]),
            lambda handle=handle: handle.get("a"),
            lambda handle=handle: handle.scan(),
            lambda handle=handle: handle.load([{"id": "b"}]),
            lambda handle=handle: handle.index(),
            lambda handle=handle: handle.gc(),
            lambda handle=handle: handle.changes(),
            lambda handle=handle: handle.at(lsn=1),
        ]  # type: ignore[misc]
        for call in calls:
            with pytest.raises(reef.Closed):
                call()


def test_a_bucket_that_is_not_there(tmp_path: Path, s3_url: str) -> None:
    address, _, query = s3_url.partition("?")
    missing = "s3://no-such-bucket-" + address.rpartition("-")[2] + "?" + query
    for call in (
        lambda db: db.namespace("n"),
        lambda db: db.namespace("n", "r"),
        lambda db: db.create("n"),
    ):
        with reef.connect(missing) as database, pytest.raises(reef.BucketNotFound):
            call(database)
    file = tmp_path / "file"
    file.write_text("not a folder")
    with pytest.raises(reef.ReefError):
        reef.connect(file / "bucket").namespace("n")


def test_garbage_where_objects_should_be(bucket: MemoryStore, ns: Namespace) -> None:
    ns.index()
    for info in list(bucket.list("namespaces/n/")):
        if "clock" not in info.key:
            bucket.put(info.key, b"garbage")
    fresh = reef.connect(bucket)
    for mode in ("r", "w"):
        with pytest.raises(reef.Corruption):
            fresh.namespace("n", mode, maintain=False)

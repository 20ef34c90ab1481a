"""The change feed: planning, the readers against real namespaces, and streams that restart."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

import reef
from reef.data.schema import Schema
from reef.data.types import parse_type
from reef.documents.changes import Change
from reef.errors import Corruption, InvalidInput, PastRetention, SchemaConflict
from reef.log.naming import WAL
from reef.lsm.records import Ingest
from reef.segment import SegmentInfo
from reef.spark.failures import spark_errors
from reef.spark.feed.plan import Bulk, Piece, Slot, Stretch, last_admitted, share_out
from reef.spark.feed.slots import slots_between
from reef.spark.feed.stream import FeedReader, ReefStreamReader, feed_schema
from reef.spark.source import ReefDataSource

ALL = ReadAllAvailable()
Row = dict[str, Any]
Batches = list[tuple[int, list[Row]]]


# Planning


def info(name: str, size: int) -> SegmentInfo:
    return SegmentInfo(name, 1, "run", 0, 10, 0, name, name, 0, 0, size, 1, 1)


def bulk_slot(lsn: int, *sizes: int, truncate: bool = False) -> Slot:
    segments = tuple(info(f"{place:02d}", size) for place, size in enumerate(sizes))
    return Slot(lsn, 300, 7, 10 * len(sizes), 0, Ingest(segments, {}, truncate))


def row_slots(*rows: int) -> list[Slot]:
    return [Slot(lsn, 100, rows=count) for lsn, count in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("slots", "rows", "nbytes", "last"),
    [
        ([], 10, None, None),
        (row_slots(3, 3, 3), None, None, 3),
        (row_slots(3, 3, 3), 6, None, 2),
        (row_slots(3, 3, 3), 5, None, 1),
        (row_slots(50, 3), 5, None, 1),  # larger than the limit, and never cut
        (row_slots(0, 0, 50, 3), 5, None, 3),  # fences do not count as progress
        (row_slots(3, 0, 0), 3, None, 3),
        (row_slots(1, 1, 1), None, 250, 2),
        (row_slots(9, 1, 1), 10, 250, 2),
        ([bulk_slot(1, 5000), *row_slots(1, 1)[1:]], None, 1000, 1),
    ],
)
def test_a_limit_admits_whole_slots(
    slots: list[Slot], rows: int | None, nbytes: int | None, last: int | None
) -> None:
    assert last_admitted(slots, rows, nbytes) == last


def test_slots_are_shared_out_in_order_and_cut_only_between_segments() -> None:
    megabyte = 1 << 20
    slots = [
        Slot(1, 200),  # a fence: nothing to read
        Slot(2, megabyte, rows=5),
        Slot(3, megabyte, rows=5),
        bulk_slot(4, megabyte, 3 * megabyte, megabyte, truncate=True),
        Slot(5, 10, is_known=False),
        Slot(6, 9 * megabyte, rows=1),
        Slot(7, 10, rows=1),
    ]
    whole = share_out(slots, 1 << 40)
    assert [type(piece) for piece in whole[0]] == [Stretch, Bulk, Stretch]
    assert (whole[0][0], whole[0][2]) == (Stretch(2, 3), Stretch(5, 7))
    cut = share_out(slots, 4 * megabyte)
    assert len(cut) == 5
    assert _slots_of(cut) == [2, 3, 4, 4, 4, 5, 6, 7]
    bulks = [piece for share in cut for piece in share if isinstance(piece, Bulk)]
    assert [piece.truncate for piece in bulks] == [True, False, False]
    assert [found.id for piece in bulks for found in piece.segments] == ["00", "01", "02"]
    assert {found.lsn for piece in bulks for found in piece.segments} == {4}
    assert share_out([Slot(1), Slot(2)], megabyte) == []


def _slots_of(shares: list[tuple[Piece, ...]]) -> list[int]:
    found: list[int] = []
    for piece in (piece for share in shares for piece in share):
        if isinstance(piece, Stretch):
            found += range(piece.first, piece.last + 1)
        else:
            found += [piece.lsn] * max(1, len(piece.segments))
    return found


# Readers, in this process


class Place:
    """A folder with a namespace, and readers of its feed."""

    def __init__(self, folder: Path, settings: reef.Settings | None = None) -> None:
        self.url = str(folder / "bucket")
        self.database = reef.connect(self.url)
        self.name = "movies"
        self.open = partial(
            self.database.namespace,
            self.name,
            maintain=False,
            settings=settings,
            options=reef.Options(large_batch_bytes=64 * 1024, segment_bytes=1 << 20),
        )

    def options(self, **given: object) -> dict[str, str]:
        return {"bucket": self.url, "namespace": self.name} | {
            name: str(value) for name, value in given.items()
        }

    def schema(self, change_feed: bool = True) -> StructType:
        source = ReefDataSource(self.options(readChangeFeed=change_feed))
        found = source.schema()
        assert isinstance(found, StructType)
        return found

    def stream(self, *, change_feed: bool = True, **given: object) -> ReefStreamReader:
        options = self.options(readChangeFeed=change_feed, **given)
        return ReefStreamReader(options, self.schema(change_feed), is_whole=True)

    def batch(self, **given: object) -> list[Row]:
        reader = FeedReader(self.options(**given), self.schema())
        return rows_of(reader, reader.partitions())

    def delete_object(self, key: str) -> None:
        (Path(self.url) / "namespaces" / self.name / key).unlink()

    def damage(self, key: str, at: int | None = None) -> None:
        path = Path(self.url) / "namespaces" / self.name / key
        data = bytearray(path.read_bytes())
        data[len(data) // 2 if at is None else at] ^= 0xFF
        path.unlink()
        path.write_bytes(data)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.database.close()


def rows_of(reader: ReefStreamReader | FeedReader, partitions: list[InputPartition]) -> list[Row]:
    """What tasks would read: reader and partition go through pickle, as with Spark."""
    found: list[Row] = []
    for partition in partitions or [InputPartition(None)]:
        sent = pickle.loads(pickle.dumps((reader, partition)))
        for batch in sent[0].read(sent[1]):
            found += batch.to_pylist()
    return found


def drain(reader: ReefStreamReader, start: dict[str, int]) -> Batches:
    """Batches of a stream until there is nothing new, each with the LSN where it ends."""
    found: Batches = []
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            return found
        found.append((end["lsn"], rows_of(reader, reader.partitions(start, end))))
        reader.commit(end)
        start = end


def read_all(reader: ReefStreamReader) -> list[Row]:
    return [row for _, rows in drain(reader, reader.initialOffset()) for row in rows]


def as_row(change: Change, columns: list[str]) -> Row:
    """What the feed shows of a change."""
    document = change.document or {}
    patched = change.kind == "patch"
    told: Row = {
        "id": change.id,
        "_change_type": change.kind,
        "_commit_version": change.lsn,
        "_commit_timestamp": change.created_at,
        "_changed_columns": [name for name in columns if name in document] if patched else None,
    }
    return {name: document.get(name) for name in columns} | told


def expected(namespace: reef.Namespace, after: int = 0) -> list[Row]:
    columns = list(namespace.schema.attributes)
    return [as_row(change, columns) for change in namespace.changes(after=after)]


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["_commit_version"], str(row["id"] or "")))


def write_everything(place: Place) -> reef.Namespace:
    """A log with all that a log can have."""
    namespace = place.open()
    namespace.write(
        upserts=[{"id": f"{n:03d}", "n": n, "title": f"t{n}", "v": [0.5, n]} for n in range(20)]
    )
    namespace.write(patches=[{"id": "003", "n": None}, {"id": "004", "title": "x", "v": [1, 2]}])
    namespace.write(deletes=["005", "006"])
    namespace.load({"id": [f"{n:03d}" for n in range(10, 60)], "n": list(range(50))})
    namespace.close()
    namespace = place.open()  # a fence
    namespace.declare(Schema(None, {"late": parse_type("timestamp")}))
    namespace.write(upserts=pa.table({"id": [f"b{n:05d}" for n in range(9000)], "n": range(9000)}))
    namespace.load({"id": ["only"], "n": [1]}, truncate=True)
    namespace.write(upserts=[{"id": "end", "late": datetime(2026, 1, 2, tzinfo=UTC)}])
    return namespace


@pytest.mark.parametrize("split_bytes", [1, 64 << 20])
def test_the_feed_is_the_log(place: Place, split_bytes: int) -> None:
    with write_everything(place) as namespace:
        wanted = expected(namespace)
        assert {row["_change_type"] for row in wanted} == {"upsert", "patch", "delete", "truncate"}
        reader = place.stream(splitBytes=split_bytes)
        rows = read_all(reader)
        assert rows == wanted
        # As a task that is not told of the ingests: it finds them in the log.
        untold = InputPartition((Stretch(1, namespace.lsn),))
        assert rows_of(reader, [untold]) == wanted
        namespace.index()
        namespace.compact(full=True)
        assert read_all(place.stream(splitBytes=split_bytes)) == wanted
        assert place.batch(splitBytes=split_bytes) == wanted


def test_an_ingest_is_split_between_its_segments(place: Place) -> None:
    with place.open(options=reef.Options(segment_bytes=100_000)) as namespace:
        text = [f"{n * 7919 % 100_003:06d}" * 8 for n in range(40_000)]
        namespace.load(pa.table({"id": [f"{n:06d}" for n in range(40_000)], "text": text}))
        reader = place.stream(splitBytes=1)
        partitions = reader.partitions({"lsn": 0}, reader.latestOffset({"lsn": 0}, ALL))
        assert len(partitions) > 3
        assert all(len(pickle.dumps(partition)) < 2000 for partition in partitions)
        rows = rows_of(reader, partitions)
        assert [row["id"] for row in rows] == [f"{n:06d}" for n in range(40_000)]


def test_of_one_slot_an_id_comes_once(place: Place) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "old", "n": 1, "m": 1}])
        namespace.write(
            upserts=[{"id": "a", "n": 1, "m": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3}],
            patches=[{"id": "a", "n": 7}, {"id": "old", "n": 5}],
            deletes=["b"],
        )
        rows = read_all(place.stream())
    shown = {row["id"]: (row["_change_type"], row["n"], row["m"]) for row in rows[1:]}
    assert len(rows) == 5
    assert shown == {
        "a": ("upsert", 7, 1),
        "b": ("delete", None, None),
        "c": ("upsert", 3, None),
        "old": ("patch", 5, None),
    }


def test_many_small_slots_become_few_batches(place: Place) -> None:
    with place.open() as namespace:
        for n in range(150):
            namespace.write(upserts=[{"id": f"{n}", "n": n}])
        reader = place.stream()
        partitions = reader.partitions({"lsn": 0}, {"lsn": namespace.lsn})
        assert [batch.num_rows for batch in reader.read(partitions[0])] == [150]
        assert rows_of(reader, partitions) == expected(namespace)


def test_limits_stop_between_slots_and_lose_nothing(place: Place) -> None:
    with write_everything(place) as namespace:
        wanted = expected(namespace)
        for limit, most in (("maxRowsPerTrigger", 25), ("maxBytesPerTrigger", 3000)):
            reader = place.stream(change_feed=True, **{limit: most})
            batches = drain(reader, reader.initialOffset())
            assert len(batches) > 3
            assert [row for _, rows in batches for row in rows] == wanted
            if limit == "maxRowsPerTrigger":
                large = [rows for _, rows in batches if len(rows) > 25]
                assert [len({row["_commit_version"] for row in rows}) for rows in large] == [1, 1]
            assert reader.latestOffset({"lsn": 0}, ALL) == {"lsn": namespace.lsn}
        assert place.stream().getDefaultReadLimit() == ALL
        assert place.stream(maxRowsPerTrigger=5).getDefaultReadLimit() == ReadMaxRows(5)
        assert place.stream(maxBytesPerTrigger=5).getDefaultReadLimit() == ReadMaxBytes(5)


def test_of_a_larger_slot_only_the_front_is_looked_at(place: Place) -> None:
    with place.open() as namespace:
        many = [{"id": f"{n:03d}", "text": f"{n:0100d}"} for n in range(300)]
        receipt = namespace.write(upserts=many, deletes=["gone"])
        size = place.database.store.head(f"namespaces/{place.name}/{WAL.key(receipt.lsn)}").size
        assert size > 32 * 1024
        tree = place.stream()._open()
        counted = _Counted(tree.store)
        tree.store = tree.log.store = counted  # type: ignore[assignment]
        (slot,) = slots_between(tree, receipt.lsn, receipt.lsn)
        assert counted.names == ["list", "get_range"]
        assert (slot.rows, slot.changes, slot.nbytes, slot.ingest) == (301, 1, size, None)
        place.damage(WAL.key(receipt.lsn), 40)
        assert not next(iter(slots_between(tree, receipt.lsn, receipt.lsn))).is_known


def test_available_now_ends_where_the_log_did(place: Place) -> None:
    with place.open() as namespace:
        first = namespace.write(upserts=[{"id": "a"}])
        reader = place.stream(maxRowsPerTrigger=1)
        reader.prepareForTriggerAvailableNow()
        namespace.write(upserts=[{"id": "b"}])
        batches = drain(reader, reader.initialOffset())
        assert batches[-1][0] == first.lsn
        assert [row["id"] for _, rows in batches for row in rows] == ["a"]
        assert reader.reportLatestOffset() == {"lsn": namespace.lsn}


def test_where_a_stream_starts(place: Place) -> None:
    with place.open() as namespace:
        receipts = [namespace.write(upserts=[{"id": f"{n}"}]) for n in range(4)]
        moments = [change.created_at for change in namespace.changes()]

        def ids(**given: object) -> list[str]:
            return [row["id"] for row in read_all(place.stream(change_feed=True, **given))]

        assert ids() == ["0", "1", "2", "3"]
        assert ids(startingVersion=receipts[2].lsn) == ["2", "3"]
        assert ids(startingTimestamp=moments[1].isoformat()) == ["1", "2", "3"]
        assert ids(startingTimestamp="1999-01-01 00:00:00") == ["0", "1", "2", "3"]
        assert ids(startingTimestamp=(moments[3] + timedelta(days=1)).isoformat()) == []
        latest = place.stream(startingVersion="latest")
        start = latest.initialOffset()
        assert drain(latest, start) == []
        namespace.write(upserts=[{"id": "new"}])
        assert [row["id"] for _, rows in drain(latest, start) for row in rows] == ["new"]
        with pytest.raises(InvalidInput, match="startingVersion 99 is not written yet"):
            place.stream(startingVersion=99).initialOffset()
        with pytest.raises(InvalidInput, match="not both"):
            place.stream(startingVersion=1, startingTimestamp="2026-01-01")
        with pytest.raises(InvalidInput, match="startingTimestamp is a time"):
            place.stream(startingTimestamp="yesterday")


def test_between_two_versions(place: Place) -> None:
    with place.open() as namespace:
        lsns = [namespace.write(upserts=[{"id": f"{n}"}]).lsn for n in range(5)]
        moments = [change.created_at for change in namespace.changes()]

        def ids(**given: object) -> list[str]:
            return [row["id"] for row in place.batch(**given)]

        assert ids(startingVersion=lsns[1], endingVersion=lsns[3]) == ["1", "2", "3"]
        assert ids(endingVersion=lsns[0]) == ["0"]
        assert ids(
            startingTimestamp=moments[2].isoformat(), endingTimestamp=moments[3].isoformat()
        ) == ["2", "3"]
        assert ids(endingTimestamp="1999-01-01") == []
        with pytest.raises(InvalidInput, match="endingVersion 99 is not written yet"):
            ids(endingVersion=99)
        with pytest.raises(InvalidInput, match="is after endingVersion"):
            ids(startingVersion=lsns[3], endingVersion=lsns[1])
        with pytest.raises(InvalidInput, match="for streams"):
            ids(startingVersion="latest")
        with pytest.raises(InvalidInput, match="maxRowsPerTrigger"):
            ids(maxRowsPerTrigger=5)


@pytest.mark.parametrize(
    "change",
    [
        lambda namespace: namespace.write(deletes=["a"]),
        lambda namespace: namespace.write(patches=[{"id": "a", "n": 2}]),
        lambda namespace: namespace.load({"id": ["z"], "n": [1]}, truncate=True),
    ],
    ids=["delete", "patch", "truncate"],
)
def test_a_stream_of_documents_refuses_other_changes(
    place: Place, change: Callable[[reef.Namespace], reef.Receipt]
) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a", "n": 1}])
        assert read_all(place.stream(change_feed=False)) == [{"id": "a", "n": 1}]
        receipt = change(namespace)
        namespace.write(upserts=[{"id": "b", "n": 3}])
        with pytest.raises(InvalidInput, match=f"LSN {receipt.lsn} .*readChangeFeed=true"):
            place.stream(change_feed=False).partitions({"lsn": 0}, {"lsn": namespace.lsn})
        # A task, which sees the rows themselves, refuses too.
        reader = place.stream(change_feed=False)
        with pytest.raises(InvalidInput, match="ignoreChanges=true"):
            rows_of(reader, place.stream().partitions({"lsn": 0}, {"lsn": namespace.lsn}))
        shown = read_all(place.stream(change_feed=False, ignoreChanges=True))
        assert [row["id"] for row in shown if row["id"] != "z"] == ["a", "b"]


def test_an_attribute_that_appears_later_ends_the_stream(place: Place) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a", "n": 1}])
        reader = place.stream()
        (before,) = drain(reader, reader.initialOffset())
        namespace.write(upserts=[{"id": "b", "n": 2}])
        receipt = namespace.write(upserts=[{"id": "c", "extra": "x"}])
        with pytest.raises(SchemaConflict, match=f"'extra' appeared .* LSN {receipt.lsn}"):
            drain(reader, {"lsn": before[0]})
        again = place.stream()
        rows = [row for _, found in drain(again, {"lsn": before[0]}) for row in found]
        assert [(row["id"], row["extra"]) for row in rows] == [("b", None), ("c", "x")]
        chosen = StructType([place.schema()["_commit_version"], place.schema()["id"]])
        few = ReefStreamReader(place.options(readChangeFeed=True), chosen)
        assert read_all(few)[-1] == {"_commit_version": receipt.lsn, "id": "c"}


def test_columns_are_checked_before_anything_is_read(place: Place) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a", "year": 1}])
    for name, kind, message in [
        ("yaer", LongType(), "did you mean 'year'"),
        ("year", StringType(), "column 'year' is bigint, not string"),
        ("_commit_version", IntegerType(), "'_commit_version' is bigint, not int"),
    ]:
        struct = StructType().add("id", StringType()).add(name, kind)
        with pytest.raises(InvalidInput, match=message):
            ReefStreamReader(place.options(readChangeFeed=True), struct).initialOffset()
    with pytest.raises(InvalidInput, match="did you mean 'startingVersion'"):
        place.stream(startingVersoin=1)
    with pytest.raises(InvalidInput, match="'_change_type' has the name"):
        feed_schema(Schema(None, {"_change_type": parse_type("string")}))


def test_ids_that_are_numbers(place: Place) -> None:
    with place.open() as namespace:
        undecided = place.stream()
        namespace.write(upserts=[{"id": 7, "n": 1}], deletes=[9])
        assert [row["id"] for row in read_all(place.stream())] == [7, 9]
        with pytest.raises(SchemaConflict, match="kind of ids"):
            read_all(undecided)


# Retention, damage, other namespaces


def test_a_stream_that_falls_behind_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path, reef.Settings(retention=0, grace=0))
    with place.open() as namespace:
        first = namespace.write(upserts=[{"id": "a", "n": 1}])
        reader, tolerant = place.stream(), place.stream(failOnDataLoss=False)
        start = {"lsn": first.lsn}
        planned = reader.partitions({"lsn": 0}, start)
        namespace.write(upserts=[{"id": "b", "n": 2}])
        namespace.index()
        namespace.gc(apply=True)
        namespace.gc(apply=True)
        assert not list(Path(place.url).rglob(f"{first.lsn:020d}.wal"))
        for call in (
            lambda: reader.latestOffset(start, ALL),
            lambda: reader.partitions(start, {"lsn": first.lsn + 1}),
            lambda: read_all(place.stream()),
            lambda: place.batch(),
            lambda: place.batch(startingTimestamp="1999-01-01"),
        ):
            with pytest.raises(PastRetention, match=r"retention is 0 seconds.*failOnDataLoss"):
                call()
        with pytest.raises(PastRetention):
            rows_of(reader, planned)
        assert rows_of(tolerant, planned) == []
        assert [row for _, rows in drain(tolerant, start) for row in rows] == []
        kept = namespace.write(upserts=[{"id": "c", "n": 3}])
        assert [row["id"] for _, rows in drain(tolerant, start) for row in rows] == ["c"]
        assert [row["id"] for row in place.batch(startingVersion=kept.lsn)] == ["c"]
        assert [row["id"] for row in place.batch(failOnDataLoss="false")] == ["c"]


def test_slots_that_were_given_up_are_passed_over(place: Place) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a"}])
        lost = namespace.write(upserts=[{"id": "lost"}])
    place.damage(WAL.key(lost.lsn))
    reader = place.stream()
    assert reader.latestOffset({"lsn": 0}, ALL) == {"lsn": lost.lsn - 1}
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "b"}])
        wanted = [change.id for change in namespace.changes()]
        assert wanted == ["a", "b"]
        assert [row["id"] for row in read_all(place.stream())] == wanted
        assert [row["id"] for row in read_all(place.stream(maxRowsPerTrigger=1))] == wanted


def test_damage_in_the_middle_is_an_error(place: Place) -> None:
    with place.open() as namespace:
        lost = namespace.write(upserts=[{"id": "lost"}])
        namespace.write(upserts=[{"id": "b"}])
        place.damage(WAL.key(lost.lsn))
        with pytest.raises(Corruption):
            read_all(place.stream())


def test_an_end_of_the_log_that_is_lost_is_an_error(place: Place) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a"}])
        lost = namespace.write(upserts=[{"id": "lost"}])
        reader = place.stream()
        planned = reader.partitions({"lsn": 0}, {"lsn": lost.lsn})
        place.delete_object(WAL.key(lost.lsn))
        with pytest.raises(PastRetention):
            rows_of(reader, planned)


def test_a_namespace_made_anew_is_not_taken_for_the_old(place: Place) -> None:
    with place.open() as namespace:
        for n in range(5):
            namespace.write(upserts=[{"id": f"{n}"}])
        reader = place.stream()
        end = reader.latestOffset({"lsn": 0}, ALL)
    place.database.drop(place.name)
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "other"}])
        with pytest.raises(PastRetention, match="created anew"):
            place.stream().latestOffset(end, ALL)
        assert [row["id"] for row in read_all(place.stream())] == ["other"]
        going_on = place.stream(failOnDataLoss="false")
        later = going_on.latestOffset(end, ALL)
        assert [row["id"] for row in rows_of(going_on, going_on.partitions(end, later))] == [
            "other"
        ]


def test_looking_for_news_costs_few_requests(place: Place) -> None:
    with place.open() as namespace:
        for n in range(200):
            namespace.write(upserts=[{"id": f"{n}"}])
        namespace.index()
        reader = place.stream()
        end = reader.latestOffset({"lsn": 0}, ALL)
        tree = reader._open()
        counted = _Counted(tree.store)
        tree.store = tree.log.store = counted  # type: ignore[assignment]
        assert reader.latestOffset(end, ALL) == end
        assert counted.requests <= 1
        namespace.write(upserts=[{"id": "new"}])
        assert reader.latestOffset(end, ALL) == {"lsn": end["lsn"] + 1}
        assert counted.requests <= 3
        # Of a backlog only so much is looked at as the limit takes.
        counted.names.clear()
        reader.latestOffset({"lsn": 0}, ReadMaxRows(3))
        assert counted.requests <= 70


class _Counted:
    """Counts the requests that go through it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.names: list[str] = []

    @property
    def requests(self) -> int:
        return len(self.names)

    def __getattr__(self, name: str) -> Any:
        if name in ("get", "get_range", "list", "head"):
            self.names.append(name)
        return getattr(self._store, name)


# Streams that Spark runs


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(ReefDataSource)
    return spark


def run(
    frame: DataFrame, checkpoint: Path, batches: Batches | None = None, fail_at: int | None = None
) -> Batches:
    """Run a query over what is there now, and give the rows of its batches."""
    batches = [] if batches is None else batches

    def take(batch: DataFrame, number: int) -> None:
        if number == fail_at:
            raise RuntimeError("on purpose")
        batches.append((number, [row.asDict() for row in batch.collect()]))

    query = (
        frame.writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    with spark_errors():
        query.awaitTermination()
    return batches


def comparable(rows: list[Row]) -> list[Row]:
    """Rows from Spark and from here with times that compare: Spark's have no zone."""
    found = []
    for row in rows:
        cells = dict(row)
        for name, value in row.items():
            if isinstance(value, datetime) and value.tzinfo is not None:
                cells[name] = value.astimezone().replace(tzinfo=None)
        found.append(cells)
    return sorted_rows(found)


def test_a_query_that_restarts_sees_each_change_once(
    place: Place, source: SparkSession, tmp_path: Path
) -> None:
    with write_everything(place) as namespace:
        options = place.options(readChangeFeed=True, maxRowsPerTrigger=60)
        load = source.readStream.format("reef").options(**options).load
        before: Batches = []
        with pytest.raises(StreamingQueryException, match="on purpose"):
            run(load(), tmp_path / "checkpoint", before, fail_at=1)
        assert [number for number, _ in before] == [0]
        namespace.write(deletes=["end"])
        after = run(load(), tmp_path / "checkpoint")
        assert after[0][0] == 1
        assert len(after) > 1
        rows = [row for _, found in before + after for row in found]
        assert comparable(rows) == comparable(expected(namespace))


def test_a_query_between_two_versions(place: Place, source: SparkSession) -> None:
    with write_everything(place) as namespace:
        wanted = [row for row in expected(namespace) if 2 <= row["_commit_version"] <= 4]
        options = place.options(
            readChangeFeed="true", startingVersion=2, endingVersion=4, splitBytes=1
        )
        feed = source.read.format("reef").options(**options).load()
        assert comparable([row.asDict() for row in feed.collect()]) == comparable(wanted)


def test_a_query_meets_a_new_attribute(place: Place, source: SparkSession, tmp_path: Path) -> None:
    with place.open() as namespace:
        namespace.write(upserts=[{"id": "a", "n": 1}])
        load = source.readStream.format("reef").options(**place.options()).load
        documents = load()
        assert documents.columns == ["id", "n"]
        namespace.write(upserts=[{"id": "b", "extra": 1}])
        with pytest.raises(SchemaConflict, match="'extra' appeared"):
            run(documents, tmp_path / "checkpoint")
        rows = [row for _, found in run(load(), tmp_path / "checkpoint") for row in found]
        assert rows == [{"id": "a", "n": 1, "extra": None}, {"id": "b", "n": None, "extra": 1}]


def test_a_mirror_is_written_once(place: Place, source: SparkSession, tmp_path: Path) -> None:
    """A stream from one namespace into another, whose last batch Spark believes undone."""
    checkpoint = tmp_path / "checkpoint"

    def mirror() -> None:
        changes = (
            source.readStream.format("reef")
            .options(**place.options(readChangeFeed=True, maxRowsPerTrigger=4))
            .load()
        )
        query = (
            changes.filter("_change_type = 'upsert'")
            .select("id", "n", changes["_commit_version"].alias("version"))
            .writeStream.format("reef")
            .options(bucket=place.url, namespace="mirror", orderBy="version")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        with spark_errors():
            query.awaitTermination()

    with place.open() as namespace:
        for n in range(4):
            namespace.write(upserts=[{"id": f"{n % 3}", "n": n}, {"id": "same", "n": n}])
        mirror()
        with place.database.namespace("mirror", "r") as reader:
            before = reader.lsn
        last = max(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        checkpoint.joinpath("commits", f".{last.name}.crc").unlink(missing_ok=True)
        mirror()
        with place.database.namespace("mirror", "r") as reader:
            assert reader.lsn == before
            found = {row["id"]: row["n"] for row in reader.scan().documents()}
        assert found == {row["id"]: row["n"] for row in namespace.scan().documents()}

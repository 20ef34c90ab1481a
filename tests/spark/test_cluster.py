"""On a real cluster, with the bucket on a real S3 server: the same results, and what dies leaves
nothing behind but orphans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reef
from reef.documents.namespace import Namespace
from spark.driving import Driver, wait_until
from support.cluster import Cluster
from support.seaweed import SeaweedServer

ROWS = 3000


class Stage:
    """A bucket, and drivers that work on it through the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        seaweed: SeaweedServer,
        url: str,
        folder: Path,
        steady: Driver,
        python_path: str,
    ) -> None:
        self.cluster = cluster
        self.url = url
        self.folder = folder
        self._steady = steady
        self._python_path = python_path
        # Executors were started before the server was: they get its keys with their orders.
        self._storage = {
            name.removeprefix("AWS_").lower(): value for name, value in seaweed.credentials.items()
        }
        self.database = reef.connect(url)
        self._held = 0

    def start(self, name: str, driver: Driver | None = None, **given: Any) -> Driver:
        """Give the driver that lives through all tests, or another, something to do."""
        driver = driver or self._steady
        order = {"bucket": self.url, "namespace": "n", "storage": self._storage, **given}
        driver.start(name, order)
        return driver

    def run(self, name: str, **given: Any) -> Any:
        """Have it done."""
        return self.start(name, **given).result()

    def mortal(self) -> Driver:
        """A driver of its own, to be killed."""
        return Driver(self.folder / "driver.log", self._python_path, order_of(self.cluster))

    def hold(self) -> Path:
        """A folder in which tasks say that they are in the middle of it."""
        self._held += 1
        folder = self.folder / f"held-{self._held}"
        folder.mkdir()
        return folder

    def reader(self) -> Namespace:
        return self.database.namespace("n", "r")


def order_of(cluster: Cluster) -> dict[str, Any]:
    """What a driver on the cluster is told."""
    return {"master": cluster.master_url, "settings": cluster.settings}


@pytest.fixture(scope="module")
def steady(
    cluster: Cluster, python_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """One driver for all that do not kill theirs: starting one takes longer than most tests."""
    driver = Driver(
        tmp_path_factory.mktemp("steady") / "driver.log", python_path, order_of(cluster)
    )
    yield driver
    driver.kill()


@pytest.fixture
def stage(
    cluster: Cluster,
    seaweed: SeaweedServer,
    s3_url: str,
    python_path: str,
    tmp_path: Path,
    steady: Driver,
) -> Iterator[Stage]:
    while len(cluster.alive_workers()) < 2:
        cluster.start_worker()
    made = Stage(cluster, seaweed, s3_url, tmp_path, steady, python_path)
    yield made
    # A test that failed must not keep the driver waiting for ever.
    for folder in tmp_path.glob("held-*"):
        (folder / "go").touch()
    made.database.close()


def expected_rows(count: int = ROWS, version: int = 0) -> dict[str, dict[str, Any]]:
    """What `drivers.rows_of` makes."""
    found = {}
    for number in range(count):
        id = f"{number * 7919 % count:06d}"
        found[id] = {"id": id, "n": 2 * number, "version": version, "text": f"{number:06d}" * 20}
    return found


def contents(ns: Namespace) -> dict[str, dict[str, Any]]:
    assert ns.verify(deep=True).sound
    return {str(row["id"]): row for row in ns.scan().documents()}


def test_all_of_it(stage: Stage) -> None:
    assert stage.run("load", rows=ROWS, key="k")["rows"] == ROWS
    with stage.database.namespace("n", maintain=False) as writer:
        assert contents(writer) == expected_rows()
        writer.write(upserts=[{"id": "000005", "n": -5}], deletes=["000006"])
        writer.write(patches=[{"id": "000007", "n": -7}])
        expected = contents(writer)
        assert stage.run("fold") == {"passes": 1, "sound": True}
        assert stage.run("compact")["rows"] == ROWS - 1
        writer.write(patches=[{"id": "000008", "n": -8}])
        expected["000008"]["n"] = -8
        assert contents(writer) == expected
        files = stage.folder / "files"
        told = stage.run("read", to=str(files))
        assert told == {"count": ROWS - 1, "sum": sum(row["n"] for row in expected.values())}
        there = pa.concat_tables([pq.read_table(file) for file in files.glob("*.parquet")])
        here = writer.scan().to_table()
        assert there.sort_by("id").cast(here.schema).equals(here)


def test_a_worker_dies_in_the_middle_of_a_load(stage: Stage) -> None:
    held = stage.hold()
    driver = stage.start("load", rows=ROWS, hold=str(held), key="k")
    wait_until(lambda: len(list(held.glob("reached-*"))) >= 2, "tasks on both workers", driver)
    stage.cluster.kill_worker(stage.cluster.newest_worker)
    (held / "go").touch()
    assert driver.result()["rows"] == ROWS
    with stage.reader() as ns:
        assert contents(ns) == expected_rows()
        assert ns.lsn == 1


def test_a_worker_dies_in_the_middle_of_a_compaction(stage: Stage) -> None:
    stage.database.create("n")
    newer = {id: row for id, row in expected_rows(ROWS, 1).items() if id >= f"{ROWS // 2:06d}"}
    with stage.reader() as ns:
        for rows in (expected_rows(), newer):
            ns.load(list(rows.values()))
            ns.index()
    held = stage.hold()
    driver = stage.start("compact", hold=str(held))
    wait_until(lambda: len(list(held.glob("reached-*"))) >= 2, "tasks on both workers", driver)
    stage.cluster.kill_worker(stage.cluster.newest_worker)
    (held / "go").touch()
    assert driver.result()["rows"] == ROWS
    with stage.reader() as ns:
        assert contents(ns) == {**expected_rows(), **newer}
        assert [level.runs for level in ns.status().levels] == [1]


@pytest.mark.parametrize("point", ["before append", "after append"])
def test_a_driver_dies_at_its_commit(stage: Stage, point: str) -> None:
    stage.database.create("n")
    assert stage.start("load", stage.mortal(), rows=ROWS, key="k", die=point).was_killed()
    with stage.reader() as ns:
        assert ns.count() == (0 if point == "before append" else ROWS)
    again = stage.run("load", rows=ROWS, key="k")
    assert again["replayed"] == (point == "after append")
    with stage.reader() as ns:
        assert contents(ns) == expected_rows()
        assert ns.lsn == 1
        # What the dead driver's tasks uploaded and nobody named.
        assert bool(ns.verify().orphans) == (point == "before append")


def test_a_load_races_a_writer_a_fold_and_another_load(stage: Stage) -> None:
    held = stage.hold()
    with stage.database.namespace("n", maintain=False) as writer:
        writer.write(upserts=[{"id": "a", "n": 1}])
        first = stage.start("load", rows=ROWS, version=1, hold=str(held))
        wait_until(lambda: list(held.glob("reached-*")), "a task", first)
        writer.write(upserts=[{"id": "b", "n": 2}, {"id": "000001", "version": -1}])
        assert writer.index()
        with stage.reader() as other:
            other.load(list(expected_rows(ROWS, 2).values())[: ROWS // 2])
        writer.write(upserts=[{"id": "c", "n": 3}])
        (held / "go").touch()
        assert first.result()["rows"] == ROWS
        writer.write(upserts=[{"id": "000002", "version": -2, "n": 0}])
        with stage.reader() as ns:
            found = contents(ns)
    assert [found[id]["n"] for id in "abc"] == [1, 2, 3]
    # The load came last, but for what was written after it.
    assert found["000001"]["version"] == 1
    assert found["000002"]["version"] == -2
    rest = {id: row for id, row in found.items() if id not in ("a", "b", "c", "000002")}
    expected = expected_rows(ROWS, 1)
    del expected["000002"]
    assert rest == expected


def test_two_compactions_race(stage: Stage) -> None:
    for version in range(2):
        stage.database.namespace("n").close()
        with stage.reader() as ns:
            ns.load(list(expected_rows(500, version).values()))
            ns.index()
    held = stage.hold()
    loser = stage.start("compact", hold=str(held))
    wait_until(lambda: list(held.glob("reached-*")), "a task", loser)
    with stage.reader() as ns:
        assert ns.compact(full=True)
        (held / "go").touch()
        assert loser.result()["error"] == "ConcurrentPublication"
        ns.refresh()
        assert contents(ns) == expected_rows(500, 1)
        assert ns.verify().orphans > 0


def test_a_stream_is_killed_at_both_ends(stage: Stage) -> None:
    rows = list(expected_rows(400).values())
    with stage.database.namespace("n", maintain=False) as writer:
        for start in range(0, len(rows), 25):
            writer.write(upserts=rows[start : start + 25])
    stage.database.create("mirror")
    checkpoint = stage.folder / "checkpoint"
    order = {"to": "mirror", "checkpoint": str(checkpoint)}

    def mirrored() -> int:
        with stage.database.namespace("mirror", "r") as ns:
            return ns.count()

    # Between batches and in the middle of one, wherever it is by then.
    for amount in (100, 200):
        driver = stage.start("stream", stage.mortal(), **order)
        wait_until(lambda amount=amount: mirrored() >= amount, "rows", driver)  # type: ignore[misc]
        driver.kill()
    assert "error" not in stage.run("stream", **order)
    with stage.database.namespace("mirror", "r") as ns:
        assert contents(ns) == expected_rows(400)
        seen = [change.id for change in ns.changes()]
        assert len(seen) == len(set(seen)) == 400

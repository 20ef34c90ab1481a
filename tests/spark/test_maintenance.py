"""Upkeep by Spark tasks comes out as the local commands' does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import reef
import reef.spark
from reef.errors import ConcurrentPublication, InvalidInput, NamespaceNotFound
from reef.lsm.upkeep.compact import compact as compact_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = reef.Options(segment_bytes=256 * 1024)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.lsm.upkeep.rewrite._SMALLEST_PART", 1)


def filled(bucket: str | Path, rows: int = 4000) -> dict[str, dict[str, Any]]:
    with reef.connect(bucket, options=OPTIONS).namespace("n", maintain=False) as ns:
        for version in range(4):
            ns.write(
                upserts=[
                    {"id": f"{number:05d}", "n": number, "version": version, "text": "x" * 50}
                    for number in range(version, rows, version + 1)
                ],
                deletes=[f"{number:05d}" for number in range(0, rows, 97 + version)],
            )
            if version < 2:
                ns.index()
        ns.write(patches=[{"id": f"{number:05d}", "n": -1} for number in range(0, rows, 5)])
        return {row["id"]: row for row in ns.scan().documents()}


def contents(bucket: str | Path) -> dict[str, dict[str, Any]]:
    with reef.connect(bucket).namespace("n", "r") as ns:
        assert ns.verify(deep=True).sound
        return {row["id"]: row for row in ns.scan().documents()}


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_everything(
    spark: SparkSession,
    place: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    small_parts: None,
) -> None:
    bucket = str(tmp_path) if place == "folder" else request.getfixturevalue("s3_url")
    storage = None
    if place == "s3":
        # The Pythons that run tasks may have been started before the server was.
        credentials = request.getfixturevalue("seaweed").credentials
        storage = {name.removeprefix("AWS_").lower(): value for name, value in credentials.items()}
    expected = filled(bucket)
    told: list[tuple[str, int, int]] = []

    def progress(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    (folded,) = reef.spark.fold(
        bucket, "n", session=spark, storage=storage, options=OPTIONS, progress=progress
    )
    assert folded.segments >= 2
    assert contents(bucket) == expected
    assert reef.spark.fold(bucket, "n", session=spark, storage=storage) == []
    (done,) = reef.spark.compact(
        bucket, "n", full=True, session=spark, storage=storage, options=OPTIONS, progress=progress
    )
    assert done.rows == len(expected)
    assert done.outputs >= 2
    assert contents(bucket) == expected
    assert reef.spark.verify(bucket, "n", session=spark, storage=storage).sound
    rebuilt = reef.spark.rebuild(bucket, "n", session=spark, storage=storage, progress=progress)
    assert rebuilt.rows == len(expected)
    assert contents(bucket) == expected
    assert {("folding", 2, 2), ("compacting", 2, 2)} <= set(told)


def test_verify_finds_damage(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path)
    segment = max(tmp_path.rglob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with reef.connect(tmp_path).namespace("n", "r") as ns:
        assert reef.spark.verify(tmp_path, "n", session=spark) == ns.verify(deep=True)
        assert not ns.verify(deep=True).sound


def test_two_compactions_race(spark: SparkSession, tmp_path: Path, small_parts: None) -> None:
    expected = filled(tmp_path)
    reef.spark.fold(tmp_path, "n", session=spark)
    with reef.connect(tmp_path).namespace("n", "r") as ns:
        taken: list[object] = []

        def overtake(what: str, done: int, total: int) -> None:
            if not taken:
                taken.append(compact_here(ns._tree, full=True))

        with pytest.raises(ConcurrentPublication):
            reef.spark.compact(tmp_path, "n", full=True, session=spark, progress=overtake)
        assert taken[0]
        assert contents(tmp_path) == expected
        assert ns.verify(deep=True).orphans > 0


@pytest.mark.parametrize("work", ["fold", "compact", "rebuild", "verify"])
def test_a_namespace_that_is_not_there(spark: SparkSession, tmp_path: Path, work: str) -> None:
    with pytest.raises(NamespaceNotFound, match="'n'"):
        getattr(reef.spark, work)(tmp_path, "n", session=spark)
    with pytest.raises(NamespaceNotFound, match="'n'"):
        getattr(reef.spark, work)(tmp_path / "nowhere", "n", session=spark)
    assert not (tmp_path / "nowhere").exists()


def test_a_bucket_in_memory_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidInput, match="memory"):
        reef.spark.fold("memory://", "n", session=spark)

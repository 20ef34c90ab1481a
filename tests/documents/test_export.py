"""Exports to Parquet hold what a scan shows, of now and of the past."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reef
from reef.documents.reading import Reading
from reef.errors import InvalidFilter, InvalidInput


@pytest.fixture
def ns(tmp_path: Path) -> Any:
    database = reef.connect(tmp_path / "bucket")
    schema = {"v": reef.vector(2), "meta": "json", "at": "timestamp", "tags": "list<string>"}
    with database.namespace("n", schema=schema, maintain=False) as opened:
        opened.write(upserts=[document(n) for n in range(3000)])
        opened.index()
        opened.write(upserts=[document(n) for n in range(2000, 4000)], deletes=["00007"])
        yield opened


def document(n: int) -> dict[str, Any]:
    return {
        "id": f"{n:05d}",
        "n": n,
        "v": [n, n + 1],
        "meta": {"a": [n]},
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "tags": ["x"] * (n % 3),
    }


def exported(folder: Path) -> pa.Table:
    files = sorted(folder.glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files])


def check(reading: Reading, folder: Path, **choice: Any) -> None:
    done = reading.export(folder, **choice)
    choice.pop("file_bytes", None)
    expected = reading.scan(**choice).to_table()
    assert exported(folder).equals(expected)
    assert done.rows == expected.num_rows
    assert done.bytes == sum(file.stat().st_size for file in folder.glob("*.parquet"))
    assert (folder / "_SUCCESS").exists()


def test_everything(ns: reef.Namespace, tmp_path: Path) -> None:
    check(ns, tmp_path / "out")


def test_several_files(ns: reef.Namespace, tmp_path: Path) -> None:
    ns.index()
    check(ns, tmp_path / "out", file_bytes=20_000)
    assert len(list((tmp_path / "out").glob("*.parquet"))) > 1


def test_columns_and_filter(ns: reef.Namespace, tmp_path: Path) -> None:
    check(ns, tmp_path / "out", columns=["id", "n"], filter="n < 500")


def test_the_past(ns: reef.Namespace, tmp_path: Path) -> None:
    check(ns.at(generation=3), tmp_path / "generation")
    check(ns.at(lsn=2), tmp_path / "lsn")
    assert exported(tmp_path / "lsn").num_rows == 3000


def test_nothing(tmp_path: Path) -> None:
    with reef.connect(tmp_path / "bucket").namespace("empty", schema={"n": "int64"}) as ns:
        check(ns, tmp_path / "out")


def test_overwriting(ns: reef.Namespace, tmp_path: Path) -> None:
    check(ns, tmp_path / "out", file_bytes=20_000)
    with pytest.raises(InvalidInput, match="not empty"):
        ns.export(tmp_path / "out")
    ns.export(tmp_path / "out", overwrite=True)
    assert exported(tmp_path / "out").num_rows == 3999
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidInput, match="thesis"):
        ns.export(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_bad_input_writes_nothing(ns: reef.Namespace, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        ns.export(tmp_path / "out", columns=["nope"])
    with pytest.raises(InvalidFilter):
        ns.export(tmp_path / "out", filter="nope = 1")
    with pytest.raises(InvalidInput):
        ns.export(tmp_path / "out", file_bytes=0)
    assert not (tmp_path / "out").exists()

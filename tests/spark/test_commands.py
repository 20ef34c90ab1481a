"""The command line with `--master`: the same answers, by Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.running import Shell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = ("--master", "local[2]")


@pytest.fixture
def shell(tmp_path: Path, spark: SparkSession) -> Shell:
    return Shell(tmp_path)


def write_lines(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_namespace_from_files_to_parquet(shell: Shell) -> None:
    shell.ok(
        "create", "movies", "--attribute", "at=timestamp", "--attribute", "v=vector<float32, 2>"
    )
    rows: list[dict[str, object]] = [
        {"id": f"{n:04d}", "year": 1900 + n % 120, "at": "2024-01-02T03:04:05Z", "v": [n, 0.5]}
        for n in range(500)
    ]
    first = write_lines(shell.folder / "first.jsonl", rows[:250])
    second = write_lines(shell.folder / "second.jsonl", rows[200:])
    refused = shell.run("load", "movies", "--from", first, "--from", second, *MASTER)
    assert refused.code == 1
    assert "0200" in refused.err or "more than one" in refused.err
    assert shell.ok("count", "movies").text.strip() == "0"
    done = shell.ok(
        "load", "movies", "--from", first, "--from", second, "--order-by", "year", *MASTER,
        "--idempotency-key", "k", "--json",
    ).document  # fmt: skip
    assert done["rows"] == 500
    again = shell.ok("load", "movies", "--from", first, *MASTER, "--idempotency-key", "k")
    assert "loaded before" in again.text
    (document,) = shell.ok("get", "movies", "0007").lines
    assert document == {"id": "0007", "year": 1907, "at": "2024-01-02T03:04:05Z", "v": [7.0, 0.5]}
    shell.ok("write", "movies", "-", stdin='{"id": "0007", "year": 1}\n')
    assert shell.ok("index", "movies", *MASTER, "--json").document["passes"]
    assert shell.ok("compact", "movies", "--full", *MASTER, "--json").document["passes"]
    assert shell.ok("verify", "movies", "--deep", *MASTER, "--json").document["sound"]
    assert shell.ok("rebuild", "movies", *MASTER, "--json").document["rows"] == 500
    here, there = shell.folder / "here", shell.folder / "there"
    shell.ok("export", "movies", str(here))
    told = shell.ok("export", "movies", str(there), *MASTER).text
    assert told.startswith("500 documents")
    assert table(there).equals(table(here))
    assert shell.run("export", "movies", str(there), *MASTER).code == 1


def table(folder: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("*.parquet"))])


def test_csv_takes_the_types_of_the_schema(shell: Shell) -> None:
    shell.ok(
        "create", "n", "--attribute", "at=timestamp", "--attribute", "tags=list<string>",
        "--attribute", "raw=bytes", "--attribute", "score=float64",
    )  # fmt: skip
    (shell.folder / "rows.csv").write_text(
        'id,at,tags,raw,score,more\n1,2024-01-01T00:00:00Z,"[""a"",""b""]",AAE=,3,x\n2,,,,,\n'
    )
    shell.ok("load", "n", "--from", str(shell.folder / "rows.csv"), *MASTER)
    (shell.folder / "bad.csv").write_text("id,score\n1,many\n")
    refused = shell.run("load", "n", "--from", str(shell.folder / "bad.csv"), *MASTER)
    assert refused.code == 1
    assert "'many'" in refused.err
    assert refused.err.count("\n") == 1
    first, second = shell.ok("get", "n", "1", "2").lines
    assert first == {
        "id": "1", "at": "2024-01-01T00:00:00Z", "tags": ["a", "b"], "raw": "AAE=",
        "score": 3.0, "more": "x",
    }  # fmt: skip
    assert second["id"] == "2"


def test_tenants(shell: Shell) -> None:
    rows: list[dict[str, object]] = [
        {"id": str(n), "customer": f"c{n % 3}", "n": n} for n in range(30)
    ]
    path = write_lines(shell.folder / "rows.jsonl", rows)
    answer = shell.ok(
        "load", "-", "--from", path, "--tenant-column", "customer", "--create", *MASTER
    )
    assert "30 rows into 3 namespaces" in answer.text
    assert shell.ok("count", "c1").text.strip() == "10"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("load", "n", "--from", "x.orc", "--format", "orc"), "--master"),
        (("load", "n", "--from", "x.csv", "--order-by", "a"), "--master"),
        (("load", "n", "--from", "x.csv", "--mode", "delete"), "--master"),
        (("load", "-", "--from", "x.csv", *MASTER), "--tenant-column"),
        (("load", "n", "--from", "x.unknown", *MASTER, "--create"), "--format"),
        (("load", "n", "--from", "nowhere.csv", *MASTER, "--create"), "does not exist"),
        (("load", "n", "--from", "x.csv", *MASTER, "--reader-option", "sep", "--create"),
         "name=value"),
        (("index", "nothing", *MASTER), "nothing"),
    ],
)  # fmt: skip
def test_wrong_usage(shell: Shell, arguments: tuple[str, ...], told: str) -> None:
    shell.ok("create", "other")
    answer = shell.run(*arguments)
    assert answer.code in (1, 2)
    assert told in answer.err
    assert "Traceback" not in answer.err

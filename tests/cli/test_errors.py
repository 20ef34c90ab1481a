"""What goes wrong is told in one line, with the exit code that belongs to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Shell

WRONG = [
    # arguments, stdin, exit code, what the line must say
    (["frobnicate"], "", 2, "No such command 'frobnicate'"),
    (["scan"], "", 2, "Missing argument 'NAMESPACE'"),
    (["scan", "movies", "--limit", "many"], "", 2, "--limit"),
    (["create", "x", "--attribute", "year"], "", 2, "not name=type"),
    (["create", "x", "--attribute", "a=json,a=bool"], "", 2, "given twice"),
    (["create", "x", "--attribute", "id=string"], "", 2, "--ids"),
    (["create", "x", "--retention", "soon"], "", 2, "not a length of time"),
    (["create", "x", "--attribute", "year=int65"], "", 1, "'int65' is not an attribute type"),
    (["create", "bad name"], "", 1, "namespace name 'bad name'"),
    (["create", "movies"], "", 1, "already"),
    (["scan", "nope"], "", 1, "there is no namespace 'nope'"),
    (["get", "nope", "a"], "", 1, "there is no namespace 'nope'"),
    (["status", "nope"], "", 1, "there is no namespace 'nope'"),
    (["stats", "nope"], "", 1, "there is no namespace 'nope'"),
    (["verify", "nope"], "", 1, "there is no namespace 'nope'"),
    (["repair", "nope"], "", 1, "there is no namespace 'nope'"),
    (["write", "nope"], '{"id":"a"}', 1, "there is no namespace 'nope'"),
    (["drop", "nope", "--yes"], "", 1, "there is no namespace 'nope'"),
    (["--bucket", "ftp://x", "list"], "", 1, "is not the address of a bucket"),
    (["list", "--bucket", "./there/is/none"], "", 1, "there is no folder"),
    (["scan", "movies", "--filter", "year >"], "", 1, "position 7"),
    (["count", "movies", "--filter", "yeer = 1"], "", 1, "no attribute 'yeer'"),
    (["scan", "movies", "--columns", "yeer"], "", 1, "no attribute 'yeer'"),
    (["scan", "movies", "--prefix", "a", "--start", "b"], "", 1, "not both"),
    (["count", "movies", "--lsn", "1", "--generation", "1"], "", 2, "give one of"),
    (["count", "movies", "--generation", "99"], "", 1, "there is no generation 99"),
    (["scan", "movies", "--time", "99999999h"], "", 2, "more than a hundred years"),
    (["count", "movies", "--time", "9" * 400 + "d"], "", 2, "more than a hundred years"),
    (["count", "movies", "--time", "0001-01-01T00:00+10:00"], "", 2, "the years 1 to 9999"),
    (["count", "movies", "--time", "0001-01-01"], "", 1, "before anything"),
    (["count", "movies", "--lsn", "9" * 30], "", 1, "is not written yet"),
    (["count", "movies", "--generation=-9"], "", 1, "there is no generation -9"),
    (["create", "x", "--retention", "9" * 30], "", 2, "more than a hundred years"),
    (["create", "x", "--grace", "999999999999w"], "", 2, "more than a hundred years"),
    (["changes", "movies", "--follow", "--every", "99999999h"], "", 2, "a hundred years"),
    (["create", "x", "--attribute", f"v=vector<float32,{'9' * 30}>"], "", 1, "attribute type"),
    (["delete", "movies"], "", 2, "give ids or --where"),
    (["delete", "movies", "a", "--where", "year = 1"], "", 2, "give ids or --where"),
    (["get", "movies", ""], "", 1, "the id is empty"),
    (["load", "movies"], "", 2, "--from"),
    (["write", "movies", "/no/such.jsonl"], "", 1, "/no/such.jsonl: No such file or directory"),
    (["write", "movies", "rows.doc"], "", 1, "give --format"),
    (["write", "movies", "--format", "parquet"], "x", 1, "parquet cannot be read from stdin"),
    (["write", "movies", "--if-absent", "--if-exists"], "", 2, "give one of"),
    (["write", "movies", "--on-conflict", "skip"], "", 2, "needs --if-absent"),
    (["write", "movies"], '{"id":"q"}\n\n{"id": oops}\n', 1, "line 3 is not JSON"),
    (["write", "movies"], '{"id":"q"}\n[1]\n', 1, "line 2 is not a JSON object"),
    (["write", "movies"], '{"id":"q"}{"id":"r"}\n', 1, "line 1 is not JSON"),
    (["write", "movies"], '{"id":"q"}\n\n{"id":"r","year":"x"}', 1, "'year' of line 3 (id 'r')"),
    (["write", "movies"], '{"id":"q"}\n{"year":1}', 1, "the id of line 2 is missing"),
    (["write", "movies"], '{"id":7}\n', 1, "string ids"),
    (["write", "movies", "--id-column", "k"], '{"k":"q"}\n{}\n', 1, "line 2 has no 'k'"),
    (["write", "movies", "--id-column", "k"], '{"k":"q","id":1}\n', 1, 'line 1 has an "id"'),
    (["write", "movies", "--format", "csv"], "id,year\na,1\nb,two\n", 1, "Row #3"),
    (["write", "movies", "--format", "csv"], "year\n1\n", 1, "no column 'id'"),
    (["write", "movies", "--format", "csv"], "id,year,year\na,1,1\n", 1, "two columns"),
    (["write", "movies", "--format", "csv"], "id,year\na,1,1\n", 1, "Expected 2 columns"),
    (["write", "movies", "--format", "csv"], 'id,year\na,1\n"",1\n', 1, "id of row 3 is empty"),
    (["write", "movies", "--format", "arrow"], "nonsense", 1, "stdin is not good arrow"),
]


IDS = [f"{number}-{case[0][0]}" for number, case in enumerate(WRONG)]


@pytest.mark.parametrize(("arguments", "stdin", "code", "said"), WRONG, ids=IDS)
def test_one_line_and_the_code(
    steady: Shell, arguments: list[str], stdin: str, code: int, said: str
) -> None:
    answer = steady.run(*arguments, stdin=stdin)
    assert answer.code == code
    assert answer.out == b""
    assert answer.err.count("\n") == 1
    assert answer.err.startswith("reef: ")
    assert said in answer.err
    told = steady.run(*arguments, "--json", stdin=stdin)
    assert told.code == code
    assert set(json.loads(told.err)) == {"error", "type"}
    assert said in json.loads(told.err)["error"]
    assert steady.ok("count", "movies").text == "3\n"


def test_json_that_cannot_be(steady: Shell) -> None:
    for arguments, said in (
        (["scan", "movies", "--json", "--format", "csv"], "contradict"),
        (["drop", "movies", "--json"], "needs --yes"),
    ):
        answer = steady.run(*arguments)
        assert (answer.code, said in json.loads(answer.err)["error"]) == (2, True)


def test_json_errors_name_the_type(steady: Shell) -> None:
    for arguments, kind in (
        (["scan", "nope"], "NamespaceNotFound"),
        (["get", "movies", "zz"], "DocumentNotFound"),
        (["scan", "movies", "--filter", "year >"], "InvalidFilter"),
        (["scan"], "MissingParameter"),
    ):
        assert json.loads(steady.run(*arguments, "--json").err)["type"] == kind


def test_damaged_files_are_named(movies: Shell) -> None:
    for name in ("cut.parquet", "cut.arrow"):
        whole = movies.folder / name
        movies.ok("scan", "movies", "-o", str(whole))
        data = whole.read_bytes()
        for keep in (0, 5, len(data) // 2, len(data) - 3):
            whole.write_bytes(data[:keep])
            answer = movies.run("write", "movies", str(whole))
            assert (answer.code, answer.err.count("\n")) == (1, 1), (name, keep)
            assert answer.err.startswith(f"reef: {whole}"), answer.err


def test_a_later_fault_says_what_is_written(movies: Shell) -> None:
    rows = "".join(f'{{"id":"n{n}"}}\n' for n in range(4))
    for bad, said in (("{oops", "line 5 is not JSON"), ('{"id":"z","year":"x"}', "of line 5")):
        answer = movies.run("write", "movies", "--batch", "2", stdin=f"{rows}{bad}\n")
        assert answer.code == 1
        assert said in answer.err
        assert "4 rows before are written, through lsn" in answer.err
    assert movies.ok("count", "movies").text == "7\n"


def test_a_load_that_fails_loads_nothing(movies: Shell) -> None:
    good = movies.file("good.jsonl", '{"id":"x","year":1}\n')
    bad = movies.file("bad.jsonl", '{"id":"y"}\n{"id":"z","year":"x"}\n')
    answer = movies.run("load", "movies", "--from", good, "--from", bad)
    assert answer.code == 1
    assert f"{bad}: attribute 'year' of line 2 (id 'z')" in answer.err
    assert answer.err.endswith("nothing was loaded\n")
    assert movies.ok("count", "movies").text == "3\n"


def test_no_bucket(shell: Shell) -> None:
    shell.bucket = ""
    answer = shell.run("list")
    assert answer.code == 2
    assert "--bucket" in answer.err


def test_looking_does_not_make_a_folder(shell: Shell) -> None:
    missing = shell.folder / "typo"
    for arguments in (["list"], ["scan", "x"], ["verify", "x"], ["drop", "x", "--yes"]):
        assert shell.run("--bucket", str(missing), *arguments).code == 1
    assert not missing.exists()


def test_the_bucket_may_stand_before_or_after(steady: Shell) -> None:
    other = Shell(steady.folder)
    bucket, other.bucket = other.bucket, ""
    assert other.ok("--bucket", bucket, "count", "movies").text == "3\n"
    assert other.ok("count", "movies", "--bucket", bucket).text == "3\n"
    assert other.ok("--json", "count", "movies", "--bucket", bucket).document == {"count": 3}


def test_a_traceback_only_when_asked_for(steady: Shell) -> None:
    assert "Traceback" not in steady.run("-v", "scan", "nope").err
    told = steady.run("-vv", "scan", "nope").err
    assert "Traceback" in told
    assert told.endswith("reef: there is no namespace 'nope' in this bucket\n")


def test_what_nobody_expected_is_one_line_too(
    movies: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reef.documents.reading.Reading.count", lambda *_: 1 // 0)
    answer = movies.run("count", "movies")
    assert answer.code == 1
    assert answer.err.startswith("reef: unexpected ZeroDivisionError")


def test_an_export_that_fails_leaves_no_file(movies: Shell) -> None:
    target = movies.folder / "out.jsonl"
    target.write_text("before")
    for segment in Path(movies.bucket).rglob("*.seg"):
        segment.unlink()
    assert movies.run("scan", "movies", "-o", str(target)).code == 1
    assert target.read_text() == "before"
    assert not list(movies.folder.glob("*.partial"))

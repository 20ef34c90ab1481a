"""Every command does what it says, for people and with --json."""

from __future__ import annotations

from pathlib import Path

import pytest

import reef
from cli.running import Shell
from reef.cli.main import cli


def test_create_list_and_drop(shell: Shell) -> None:
    created = shell.ok(
        "create", "m", "--schema", "title=string, v=vector<float32, 2>", "--attribute",
        "year=int64", "--ids", "uint64", "--retention", "7d", "--grace", "1h30m", "--json",
    )  # fmt: skip
    assert created.document == {"namespace": "m", "created": True}
    shape = shell.ok("status", "m", "--json").document
    assert shape["attributes"] == {
        "title": "string", "v": "vector<float32, 2>", "year": "int64"
    }  # fmt: skip
    assert (shape["id_kind"], shape["retention"], shape["grace"]) == ("uint64", 604_800, 5_400)
    shell.ok("create", "another")
    assert shell.ok("list").text == "another\nm\n"
    assert shell.ok("list", "--json").document == {"namespaces": ["another", "m"]}
    assert shell.run("drop", "m", stdin="n\n").code == 1
    assert shell.ok("drop", "m", stdin="y\n").text.endswith("dropped m\n")
    assert shell.ok("drop", "another", "--yes", "--json").document["dropped"]
    assert shell.ok("list").text == ""


def test_get(movies: Shell) -> None:
    assert movies.ok("get", "movies", "c", "a").lines == [
        {"id": "c", "title": None},
        {"id": "a", "title": "Alien", "year": 1979},
    ]
    assert movies.ok("get", "movies", "a", "--columns", "year").lines == [{"id": "a", "year": 1979}]
    missing = movies.run("get", "movies", "a", "zz")
    assert missing.code == 1
    assert [line["id"] for line in missing.lines] == ["a"]
    assert missing.err == "reef: there is no document 'zz' in movies\n"


def test_ids_follow_the_namespace(shell: Shell) -> None:
    shell.ok("create", "numbers", "--ids", "uint64")
    shell.ok("write", "numbers", stdin='{"id":7}\n{"id":30}\n{"id":200}\n')
    assert shell.ok("get", "numbers", "7").lines == [{"id": 7}]
    assert [r["id"] for r in shell.ok("scan", "numbers", "--start", "30").lines] == [30, 200]
    assert "unsigned integers" in shell.run("get", "numbers", "seven").err
    shell.ok("delete", "numbers", "7", "200")
    assert shell.ok("count", "numbers").text == "1\n"
    # Digits are text where ids are text.
    shell.ok("write", "strings", "--create", stdin='{"id":"7"}\n')
    assert shell.ok("get", "strings", "7").lines == [{"id": "7"}]


def test_scan_takes_ranges_columns_filters_and_order(movies: Shell) -> None:
    def ids(*arguments: str) -> list[str]:
        return [row["id"] for row in movies.ok("scan", "movies", *arguments).lines]

    assert ids() == ["a", "b", "c"]
    assert ids("--start", "b") == ["b", "c"]
    assert ids("--stop", "b") == ["a"]
    assert ids("--prefix", "b") == ["b"]
    assert ids("--reverse", "--limit", "2") == ["c", "b"]
    assert ids("--filter", "year > 1980") == ["b"]
    assert movies.ok("scan", "movies", "--columns", "year,id", "--limit", "1", "--json").lines == [
        {"id": "a", "year": 1979}
    ]
    for kind, text in (("jsonl", '{"year":1979}\n'), ("csv", '"year"\n1979\n')):
        command = ("scan", "movies", "--columns", "year", "--limit", "1", "--format", kind)
        assert movies.ok(*command).text == text


def test_scan_as_a_table_is_plain_off_a_terminal(movies: Shell) -> None:
    assert movies.ok("scan", "movies", "--format", "table").text.splitlines() == [
        "id  year  title",
        "a   1979  Alien",
        "b   1985  Brazil",
        "c         null",
    ]


def test_count_and_delete(movies: Shell) -> None:
    assert movies.ok("count", "movies").text == "3\n"
    assert movies.ok("count", "movies", "--filter", "year < 1980", "--json").document == {
        "count": 1
    }
    assert movies.ok("delete", "movies", "a", "--json").document["deleted"] == 1
    assert movies.ok("delete", "movies", "--where", "year >= 1985").text.startswith("deleted 1 id")
    assert [row["id"] for row in movies.ok("scan", "movies").lines] == ["c"]


def test_time_travel(movies: Shell) -> None:
    lsn = movies.ok("status", "movies", "--json").document["lsn"]
    movies.ok("delete", "movies", "a", "b", "c")
    assert movies.ok("count", "movies").text == "0\n"
    assert movies.ok("count", "movies", "--lsn", str(lsn)).text == "3\n"
    assert movies.ok("get", "movies", "a", "--lsn", str(lsn)).lines[0]["year"] == 1979
    # The generation that the first fold published had two documents.
    assert len(movies.ok("scan", "movies", "--generation", "3").lines) == 2
    late = movies.ok("changes", "movies", "--json").lines[-1]["created_at"]
    assert movies.ok("count", "movies", "--time", late).text == "0\n"
    past = movies.run("count", "movies", "--time", "10h")
    assert (past.code, "before anything" in past.err) == (1, True)
    assert movies.run("count", "movies", "--time", "teatime").code == 2


def test_write_operations_and_conditions(movies: Shell) -> None:
    rows = '{"id":"a","year":1}\n{"id":"q","year":2}\n'
    patched = movies.ok("write", "movies", "--op", "patch", "--json", stdin=rows).document
    assert (patched["patched"], patched["missing"]) == (1, 1)
    assert movies.ok("get", "movies", "a").lines == [{"id": "a", "title": "Alien", "year": 1}]
    refused = movies.run("write", "movies", "--if-absent", stdin='{"id":"n"}\n{"id":"a"}\n')
    assert refused.code == 1
    assert "'a'" in refused.err
    assert "nothing was written" in refused.err
    skipped = movies.ok(
        "write", "movies", "--if-absent", "--on-conflict", "skip", "--json",
        stdin='{"id":"n"}\n{"id":"a"}\n',
    ).document  # fmt: skip
    assert (skipped["upserted"], skipped["rejected"]) == (1, 1)
    assert movies.ok("get", "movies", "a").lines[0]["title"] == "Alien"
    movies.ok("write", "movies", "--op", "delete", stdin='{"id":"a","year":9}\n{"id":"n"}\n')
    assert movies.ok("count", "movies").text == "2\n"
    assert movies.run("write", "movies", "--if-exists", stdin='{"id":"zz"}\n').code == 1


def test_the_same_key_writes_a_file_once(movies: Shell) -> None:
    path = movies.file("rows.jsonl", "".join(f'{{"id":"k{n}"}}\n' for n in range(5)))
    command = ("write", "movies", path, "--batch", "2", "--idempotency-key", "monday", "--json")
    first = movies.ok(*command).document
    movies.ok("delete", "movies", "k0", "k2", "k4")
    again = movies.ok(*command).document
    assert (again["lsn"], again["upserted"]) == (first["lsn"], 5)
    # Every batch has a key of its own: none of them came back.
    found = [row["id"] for row in movies.ok("scan", "movies", "--prefix", "k").lines]
    assert found == ["k1", "k3"]


def test_load_is_one_atomic_write_of_many_files(movies: Shell) -> None:
    one = movies.file("one.jsonl", '{"id":"x","year":1}\n{"id":"y","year":2}\n')
    two = movies.file("two.csv", "id,year\ny,3\nz,4\n")
    before = movies.ok("status", "movies", "--json").document
    loaded = movies.ok("load", "movies", "--from", one, two, "--json").document
    assert (loaded["rows"], loaded["upserted"], loaded["lsn"]) == (4, 3, before["lsn"] + 1)
    assert movies.ok("get", "movies", "y").lines == [{"id": "y", "year": 3}]
    # Loading takes no epoch: the live writer goes on.
    after = movies.ok("status", "movies", "--json").document
    assert after["writer_epoch"] == before["writer_epoch"]
    movies.ok("load", "movies", "--truncate", "--from", two, "--idempotency-key", "t")
    assert [row["id"] for row in movies.ok("scan", "movies").lines] == ["y", "z"]
    movies.ok("load", "movies", "--truncate", "--from", one, "--idempotency-key", "t")
    assert [row["id"] for row in movies.ok("scan", "movies").lines] == ["y", "z"]
    movies.ok("load", "movies", "--truncate", "--from", movies.file("none.jsonl", ""))
    assert movies.ok("count", "movies").text == "0\n"
    movies.ok("load", "fresh", "--create", "--from", one)
    assert movies.ok("count", "fresh").text == "2\n"


def test_status_and_stats(movies: Shell) -> None:
    shape = movies.ok("status", "movies", "--json").document
    assert shape["levels"] == [
        {"level": 0, "runs": 1, "segments": 1, "rows": 2, "tombstones": 0,
         "bytes": shape["levels"][0]["bytes"]}
    ]  # fmt: skip
    text = movies.ok("status", "movies").text
    assert f"generation {shape['generation']}" in text
    assert text.isascii()
    stats = movies.ok("stats", "movies", "--json").document
    assert (stats["rows"], stats["unfolded"]) == (2, 1)
    year = {about["name"]: about for about in stats["attributes"]}["year"]
    assert (year["values"], year["minimum"], year["maximum"]) == (2, 1979, 1985)
    row = next(line for line in movies.ok("stats", "movies").text.splitlines() if "year" in line)
    assert row.split()[-2:] == ["1979", "1985"]


def test_changes(movies: Shell) -> None:
    lines = movies.ok("changes", "movies", "--json").lines
    assert [(line["kind"], line["id"]) for line in lines] == [
        ("upsert", "a"), ("upsert", "b"), ("upsert", "c")
    ]  # fmt: skip
    assert lines[2]["document"] == {"id": "c", "title": None}
    last = lines[1]["lsn"]
    after = movies.ok("changes", "movies", "--after", str(last)).text
    lsn, _, kind, identity, document = after.strip().split("\t")
    assert (int(lsn) > last, kind, identity) == (True, "upsert", "c")
    assert document == '{"id":"c","title":null}'
    assert len(movies.ok("changes", "movies", "--limit", "1", "--json").lines) == 1
    assert len(movies.ok("changes", "movies", "--follow", "--limit", "2").text.splitlines()) == 2
    movies.ok("delete", "movies", "b")
    assert movies.ok("changes", "movies", "--json").lines[-1]["document"] is None


def test_upkeep_leaves_the_live_writer_alone(shell: Shell) -> None:
    shell.ok("create", "m", "--retention", "0s", "--grace", "0s")
    database = reef.connect(shell.bucket)
    with database.namespace("m", maintain=False) as writer:
        for number in range(3):
            writer.write(upserts=[{"id": "x", "n": number}, {"id": f"y{number}"}])
            assert len(shell.ok("index", "m", "--all", "--json").document["passes"]) == 1
        assert shell.ok("index", "m").text == "nothing to fold\n"
        merged = shell.ok("compact", "m", "--full", "--json").document["passes"]
        assert (merged[0]["inputs"], merged[0]["rows"]) == (3, 4)
        assert "head" not in merged[0]
        assert shell.ok("compact", "m", "--all").text == "nothing to compact\n"
        plan = shell.ok("gc", "m", "--json").document
        assert plan["due"]
        assert (plan["applied"], plan["deleted"]) == (False, 0)
        assert "superseded by generation" in shell.ok("gc", "m").text
        assert shell.ok("gc", "m", "--apply", "--json").document["deleted"] >= len(plan["due"])
        shell.ok("load", "m", "--from", shell.file("l.jsonl", '{"id":"z"}\n'))
        for command in ("verify", "status", "stats", "count", "scan", "repair", "rebuild"):
            shell.ok(command, "m")
        writer.write(upserts=[{"id": "still"}])
    assert shell.ok("count", "m").text == "6\n"
    database.close()


def test_write_takes_over_from_the_live_writer(shell: Shell) -> None:
    shell.ok("create", "m")
    with reef.connect(shell.bucket) as database, database.namespace("m", maintain=False) as writer:
        writer.write(upserts=[{"id": "x", "n": 1}])
        # What is refused at once fences nobody.
        for bad in ('{"id":"y","n":"one"}\n', "nonsense\n", '{"n":1}\n', '{"id":""}\n'):
            assert shell.run("write", "m", stdin=bad).code == 1
        assert shell.run("delete", "m", "--where", "nope = 1").code == 1
        writer.write(upserts=[{"id": "x", "n": 2}])
        shell.ok("write", "m", stdin='{"id":"y"}\n')
        with pytest.raises(reef.Fenced):
            writer.write(upserts=[{"id": "x", "n": 3}])


def test_verify_names_damage_and_exits_with_2(movies: Shell) -> None:
    assert movies.ok("verify", "movies", "--deep").text.startswith("movies: sound; checked")
    assert movies.ok("verify", "movies", "--json").document["sound"]
    (segment,) = Path(movies.bucket).rglob("*.seg")
    data = bytearray(segment.read_bytes())
    data[40] ^= 1
    segment.chmod(0o644)
    segment.write_bytes(data)
    found = movies.run("verify", "movies", "--deep")
    assert found.code == 2
    assert found.text.startswith(f"segments/{segment.name} at byte ")
    report = movies.run("verify", "movies", "--deep", "--json")
    assert report.code == 2
    for problem in report.document["problems"]:
        assert problem["key"] == f"segments/{segment.name}"
        assert problem["meaning"]
        assert isinstance(problem["offset"], int)
    assert not report.document["sound"]


def test_repair_works_on_a_namespace_that_does_not_open(movies: Shell) -> None:
    slots = sorted(Path(movies.bucket).rglob("*.wal"))
    # The one before the last: followed by a good one, it is damage and no crash.
    slots[-2].chmod(0o644)
    slots[-2].write_bytes(b"nonsense")
    assert movies.run("count", "movies").code == 1
    assert movies.run("verify", "movies").code == 2
    dry = movies.ok("repair", "movies", "--json").document
    assert dry["namespace"] == "movies"
    assert slots[-2].read_bytes() == b"nonsense"
    assert movies.ok("repair", "movies", "--apply").text
    assert movies.ok("count", "movies").code == 0


def test_rebuild_prints_every_field(movies: Shell) -> None:
    told = movies.ok("rebuild", "movies", "--json").document
    assert told.pop("namespace") == "movies"
    text = movies.ok("rebuild", "movies").text
    for name in told:
        assert name.replace("_", " ") in text
    assert movies.ok("count", "movies").text == "3\n"


def test_every_command_takes_the_common_options() -> None:
    for name, command in cli.commands.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--bucket", "--json", "--verbose"} <= options, name
        assert command.help, name


def test_what_was_dropped_is_collected(shell: Shell) -> None:
    shell.ok("create", "m", "--retention", "0s", "--grace", "0s")
    shell.ok("create", "n")
    for name in "mn":
        shell.ok("write", name, stdin='{"id": "a"}\n')
        shell.ok("drop", name, "--yes")
    assert shell.ok("list").text == ""
    for command in (["get", "n", "a"], ["gc", "n"], ["verify", "n"], ["repair", "n"]):
        run = shell.run(*command)
        assert (run.code, "there is no namespace 'n': it was dropped" in run.err) == (1, True)
    assert "must wait" in shell.ok("gc", "--dropped").text
    answers = shell.ok("gc", "--dropped", "--apply", "--json").document["dropped"]
    assert [answer["namespace"] for answer in answers] == ["m", "n"]
    assert answers[1]["deleted"] == 0
    assert shell.run("gc").code == shell.run("gc", "n", "--dropped").code == 2
    shell.ok("create", "n")
    assert shell.ok("list").text == "n\n"
    assert shell.ok("scan", "n").text == ""

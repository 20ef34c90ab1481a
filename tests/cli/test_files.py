"""Rows go through files of every format unharmed, and files of any size in bounded memory."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.running import Shell
from reef.cli.json_source import json_blocks
from reef.cli.sinks import json_lines
from reef.cli.sources import Source
from reef.data.schema import Schema
from reef.errors import InvalidInput

SCHEMA = (
    "flag=bool,n=int64,x=float64,s=string,raw=bytes,at=timestamp,tags=list<string>,"
    "xs=list<float64>,when=list<timestamp>,meta=json,v=vector<float32, 2>"
)
NAMES = ["flag", "n", "x", "s", "raw", "at", "tags", "xs", "when", "meta", "v"]
ROWS: list[dict[str, Any]] = [
    {
        "id": "full",
        "flag": True,
        "n": -(2**63),
        "x": 0.1,
        "s": 'quotes ", commas, and\nnewlines ✓',
        "raw": "AP+A",
        "at": "1979-05-25T12:30:00.000001Z",
        "tags": ["a", "", 'b"'],
        "xs": [1.5, 2.0],
        "when": ["2020-01-01T00:00:00Z"],
        "meta": {"a": [1, None, {"b": "c"}]},
        "v": [1.0, 2.5],
    },
    {"id": "odd", "x": "NaN", "xs": ["Infinity", -1.0], "s": "", "tags": [], "meta": "text"},
    {"id": "nothing"},
    {"id": "nulls", **dict.fromkeys(NAMES)},
]


def sent(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A namespace with a row of everything."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "bucket").mkdir()
    shell = Shell(folder)
    shell.ok("create", "full", "--schema", SCHEMA)
    shell.ok("write", "full", stdin=sent(ROWS))
    return shell


def test_json_lines_keep_null_and_absent_apart(full: Shell) -> None:
    assert sorted(full.ok("scan", "full").lines, key=lambda row: row["id"]) == sorted(
        ROWS, key=lambda row: row["id"]
    )


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow", "arrow-stream"])
def test_round_trip(full: Shell, suffix: str) -> None:
    path = str(full.folder / f"rows.{suffix}")
    if suffix == "arrow-stream":
        data = full.ok("scan", "full", "--format", "arrow").out
        assert pa.ipc.open_stream(data).read_all().num_rows == len(ROWS)
        path = full.file("rows.arrows", data)
    else:
        told = full.ok("scan", "full", "-o", path, "--json").document
        assert told == {"rows": len(ROWS), "file": path}
    full.ok("create", suffix, "--schema", SCHEMA)
    full.ok("write", suffix, path)
    full.ok("create", f"{suffix}-loaded", "--schema", SCHEMA)
    full.ok("load", f"{suffix}-loaded", "--from", path)
    # In columns there is only null, so absent attributes come back as explicit nulls.
    every = ROWS[0].keys()
    expected = ROWS if suffix == "jsonl" else [{name: r.get(name) for name in every} for r in ROWS]
    for name in (suffix, f"{suffix}-loaded"):
        found = {row["id"]: row for row in full.ok("scan", name).lines}
        assert found == {row["id"]: row for row in expected}


def test_columnar_formats_carry_their_types_to_a_new_namespace(full: Shell) -> None:
    for suffix in ("parquet", "arrow"):
        path = str(full.folder / f"typed.{suffix}")
        full.ok("scan", "full", "-o", path)
        full.ok("write", f"typed-{suffix}", path, "--create")
        want = full.ok("status", "full", "--json").document["attributes"]
        assert full.ok("status", f"typed-{suffix}", "--json").document["attributes"] == want


def test_csv_takes_types_from_its_cells(shell: Shell) -> None:
    text = (
        "id,n,x,flag,day,at,zoned,s,o\n"
        '007,1,1.5,true,2020-01-02,2020-01-02 03:04:05,2020-01-02T03:04:05+01:00,"",\n'
        "8,,,,,,,text,\n"
    )
    shell.ok("write", "m", "--format", "csv", "--create", stdin=text)
    attributes = shell.ok("status", "m", "--json").document["attributes"]
    assert attributes == {
        "n": "int64", "x": "float64", "flag": "bool", "day": "timestamp", "at": "timestamp",
        "zoned": "timestamp", "s": "string", "o": "null",
    }  # fmt: skip
    row = shell.ok("get", "m", "007").lines[0]
    assert row == {
        "id": "007", "n": 1, "x": 1.5, "flag": True, "day": "2020-01-02T00:00:00Z",
        "at": "2020-01-02T03:04:05Z", "zoned": "2020-01-02T02:04:05Z", "s": "", "o": None,
    }  # fmt: skip
    assert shell.ok("get", "m", "8").lines[0]["n"] is None


WIDE = "99999999999999999999"


@pytest.mark.parametrize("ending", ["\n", "", "\r\n"])
def test_csv_numbers_of_more_than_64_bits_are_text(shell: Shell, ending: str) -> None:
    """As in pandas. A float would be another number."""
    rows = [
        "id,wide,unsigned,mixed,small,spaced,words",
        f'a,1,18446744073709551615,1.5,1,"{WIDE} ","one\ntwo"',
        f'b,-{WIDE},,{WIDE},2,1,""',
    ]
    shell.ok("write", "m", "--format", "csv", "--create", stdin="\n".join(rows) + ending)
    assert shell.ok("status", "m", "--json").document["attributes"] == {
        "wide": "string", "unsigned": "string", "mixed": "float64", "small": "int64",
        "spaced": "string", "words": "string",
    }  # fmt: skip
    assert shell.ok("get", "m", "a").lines[0]["unsigned"] == "18446744073709551615"
    assert shell.ok("get", "m", "b").lines[0] == {
        "id": "b", "wide": f"-{WIDE}", "unsigned": None, "mixed": 1e20, "small": 2, "spaced": "1",
        "words": "",
    }  # fmt: skip


def test_csv_numbers_that_are_declared_stay_what_they_are(shell: Shell) -> None:
    shell.ok("create", "m", "--attribute", "f=float64,n=int64,s=string")
    shell.ok("write", "m", "--format", "csv", stdin=f"id,f,s\na,{WIDE},{WIDE}\n")
    assert shell.ok("get", "m", "a").lines[0] == {"id": "a", "f": 1e20, "s": WIDE}
    answer = shell.run("write", "m", "--format", "csv", stdin=f"id,n\na,1\nb,{WIDE}\n")
    assert answer.code == 1
    assert "Row #3" in answer.err


def test_csv_numbers_that_are_wide_later_are_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reef.cli.csv_source._BLOCK", 64)
    rows = "".join(f"r{number},{number}\n" for number in range(20))
    answer = shell.run("load", "m", "--format", "csv", "--create", "--from",
                       shell.file("n.csv", f"id,n\n{rows}z,{WIDE}\n"))  # fmt: skip
    assert answer.code == 1
    assert WIDE in answer.err
    shell.ok("load", "m", "--create", "--from", shell.file("n.csv", f"id,n\n{rows}"))
    assert shell.ok("count", "m", "--json").document == {"count": 20}


@pytest.mark.parametrize(
    ("cell", "moment"),
    [
        ("2020-01-02", "2020-01-02T00:00:00Z"),
        ("2020-01-02 03:04", "2020-01-02T03:04:00Z"),
        ("2020-01-02T03:04:05.25", "2020-01-02T03:04:05.250000Z"),
        ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
        ("2020-01-02T03:04:05-02:00", "2020-01-02T05:04:05Z"),
        ("2020-01-02T03:04:05+0200", "2020-01-02T01:04:05Z"),
    ],
)
def test_timestamps_without_a_zone_are_utc(shell: Shell, cell: str, moment: str) -> None:
    shell.ok("create", "m", "--attribute", "at=timestamp")
    shell.ok("write", "m", "--format", "csv", stdin=f"id,at\na,{cell}\n")
    shell.ok("write", "m", stdin=f'{{"id":"b","at":"{cell}"}}\n')
    assert [row["at"] for row in shell.ok("get", "m", "a", "b").lines] == [moment, moment]


@pytest.mark.parametrize(
    ("attribute", "cell", "said"),
    [
        ("at=timestamp", "teatime", "must be an ISO 8601 timestamp, not 'teatime'"),
        ("raw=bytes", "!!", "must be base64, not '!!'"),
        ("tags=list<int64>", '"[1,""x""]"', "must be list<int64> as JSON"),
        ('tags=list<int64>', '"1],[2"', "must be list<int64> as JSON"),
        ('v=vector<float32, 2>', '"[1]"', "must be vector<float32, 2> as JSON"),
    ],
)  # fmt: skip
def test_bad_cells_are_named(shell: Shell, attribute: str, cell: str, said: str) -> None:
    shell.ok("create", "m", "--schema", attribute)
    name = attribute.partition("=")[0]
    answer = shell.run("write", "m", "--format", "csv", stdin=f"id,{name}\na,\nb,{cell}\n")
    assert answer.code == 1
    assert f"attribute {name!r} of row 3 {said}" in answer.err


def test_another_id_column(shell: Shell) -> None:
    shell.ok("create", "m", "--ids", "uint64")
    shell.ok("write", "m", "--format", "csv", "--id-column", "key", stdin="n,key\n1,5\n")
    shell.ok("write", "m", "--id-column", "key", stdin='{"key":6,"n":2}\n')
    path = str(shell.folder / "t.parquet")
    pq.write_table(pa.table({"key": [7], "n": [3]}), path)
    shell.ok("write", "m", path, "--id-column", "key")
    assert shell.ok("scan", "m").lines == [{"id": i + 4, "n": i} for i in (1, 2, 3)]
    assert "no column 'other'" in shell.run("write", "m", path, "--id-column", "other").err


def test_a_large_file_is_read_in_blocks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 30_000
    path = shell.folder / "large.jsonl"
    path.write_text("".join(f'{{"id":"{n:06}","text":"{"x" * 60}"}}\n' for n in range(rows)))
    largest = 0
    read = io.BufferedReader.read1

    class Watched(io.BufferedReader):
        def read(self, size: int | None = -1) -> bytes:
            raise AssertionError("the file may be read whole")

        def read1(self, size: int = -1) -> bytes:
            nonlocal largest
            assert size > 0
            largest = max(largest, size)
            return read(self, size)

    monkeypatch.setattr("reef.cli.sources.io.BufferedReader", Watched)
    told = shell.ok("write", "m", str(path), "--create", "--batch", "7000", "--json").document
    assert (told["rows"], told["batches"]) == (rows, 5)
    assert largest < path.stat().st_size
    assert told["rows_per_second"] > 0
    assert shell.ok("count", "m").text == f"{rows}\n"


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_columnar_files_come_in_blocks(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"id": [f"{n:06}" for n in range(5000)], "n": list(range(5000))})
    path = str(tmp_path / f"t.{suffix}")
    if suffix == "csv":
        pa.csv.write_csv(table, path)
    elif suffix == "parquet":
        pq.write_table(table, path, row_group_size=1000)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    source = Source(path, None, Schema(), None)
    blocks = list(source.blocks(1500))
    source.close()
    assert max(map(len, blocks)) <= 1500
    assert pa.Table.from_batches([block.rows for block in blocks])["n"].to_pylist() == list(
        range(5000)
    )
    first = 2 if suffix == "csv" else 1
    for block in blocks:
        assert block.first == first
        first += len(block)


def test_wide_rows_make_small_blocks(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": list("abcdef"), "s": ["x" * (8 << 20)] * 6}), path)
    source = Source(path, None, Schema(), None)
    assert [len(block) for block in source.blocks(10_000)] == [1] * 6 or max(
        block.rows.nbytes for block in source.blocks(10_000)
    ) <= 16 << 20
    source.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.just(""),
            st.just("  "),
            st.dictionaries(st.sampled_from("abc"), st.none() | st.text(max_size=5)),
        ),
        max_size=30,
    ),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_blocks_are_the_lines(lines: list[Any], most: int, ended: bool, end: str) -> None:
    text = end.join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    text += end if ended else ""
    numbered = []
    for rows, first, numbers in json_blocks(
        io.BytesIO(text.encode()), "x", Schema(), most, 1 << 20
    ):
        assert 0 < len(rows) <= most
        assert not numbers or len(numbers) == len(rows)
        numbered += zip(numbers or range(first, first + len(rows)), rows, strict=True)
    assert numbered == [(n, row) for n, row in enumerate(lines, 1) if isinstance(row, dict)]


@given(st.integers(1, 60), st.integers(0, 59))
def test_the_wrong_line_is_named(lines: int, wrong: int) -> None:
    texts = ['{"id":"a"}'] * lines + ["{"] + ['{"id":"b"}'] * wrong
    with pytest.raises(InvalidInput, match=f"line {lines + 1} is not JSON"):
        for _ in json_blocks(io.BytesIO("\n".join(texts).encode()), "x", Schema(), 7, 1 << 20):
            pass


def test_a_byte_order_mark_is_no_fault(shell: Shell) -> None:
    shell.ok("write", "m", "--create", stdin=b'\xef\xbb\xbf{"id":"a"}\n')
    shell.ok("write", "m", "--format", "csv", stdin=b"\xef\xbb\xbfid\nb\n")
    assert shell.ok("count", "m").text == "2\n"


def test_numbers_that_json_lacks_are_spelled() -> None:
    rows = [{"x": float("nan")}, {"x": float("-inf")}, {"x": [1.0, float("inf")]}, {"x": None}, {}]
    assert json_lines(rows, ["x"]).splitlines() == [
        b'{"x":"NaN"}', b'{"x":"-Infinity"}', b'{"x":[1.0,"Infinity"]}', b'{"x":null}', b"{}"
    ]  # fmt: skip

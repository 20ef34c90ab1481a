"""What people type and read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from reef.cli.output import plain, print_table
from reef.cli.values import (
    AGE,
    MOMENT,
    age_text,
    bytes_text,
    counted,
    just_after,
    moment_text,
    parse_attributes,
    split_names,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("1h30m", 5400),
     ("0.5h", 1800), ("2W", 1_209_600), ("0", 0)],
)  # fmt: skip
def test_ages(text: str, seconds: float) -> None:
    assert AGE.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5m", "5 m", "m", "5y", "1e3", "36501d", "9" * 400])
def test_no_ages(text: str) -> None:
    with pytest.raises(click.BadParameter):
        AGE.convert(text, None, None)


def test_moments() -> None:
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for text in ("2024-05-01T12:00:00Z", "2024-05-01 12:00", "2024-05-01T14:00+02:00"):
        assert MOMENT.convert(text, None, None) == noon
    ago = datetime.now(UTC) - MOMENT.convert("2h", None, None)
    assert abs(ago - timedelta(hours=2)) < timedelta(minutes=5)
    last = MOMENT.convert("9999-12-31T23:59:59.999999Z", None, None)
    assert just_after(noon) - noon == timedelta(microseconds=1)
    assert just_after(last) == last


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (102_400, "100 KiB"),
     (64 << 20, "64.0 MiB"), (5 << 40, "5.0 TiB"), (5000 << 40, "5,000 TiB")],
)  # fmt: skip
def test_bytes(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_small_texts() -> None:
    assert [age_text(s) for s in (0, 59, 900, 9000, 604_800)] == [
        "0s",
        "59s",
        "15m",
        "2h 30m",
        "7d",
    ]
    assert [counted(n, "row") for n in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert counted(2, "entry") == "2 entries"
    assert moment_text(0) == "1970-01-01T00:00:00Z"


def test_attributes() -> None:
    assert parse_attributes(["a=int64, v=vector<float32, 3>", "t=list<string>"]) == {
        "a": "int64",
        "v": "vector<float32, 3>",
        "t": "list<string>",
    }
    assert split_names("a, b,,c ") == ["a", "b", "c"]


def test_a_table_off_a_terminal_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "size"], [["x", "1"], ["long", "200"]], "size")
    assert capsys.readouterr().out == "name  size\nx        1\nlong   200\n"


def test_a_table_on_a_terminal_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reef.cli.output.is_terminal", lambda: True)
    print_table(["name"], [["[bold]x"]])
    out = capsys.readouterr().out
    assert "───" in out
    assert "[bold]x" in out


def test_plain_values() -> None:
    assert plain({1: (1, b"a", datetime(2020, 1, 1, tzinfo=UTC), None)}) == {
        "1": [1, "YQ==", "2020-01-01T00:00:00Z", None]
    }

"""Filters written as text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reef.data.filter import (
    And,
    Expression,
    Not,
    Or,
    attribute,
    columns,
    parse_filter,
)
from reef.errors import InvalidFilter

a, b, c = attribute("a"), attribute("b"), attribute("c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", a == 1),
        ("a==1", a == 1),
        ("a != 1", a != 1),
        ("a<>1", a != 1),
        ("a<-1.5e3", a < -1500.0),
        ("a <= .5", a <= 0.5),
        ("a > +2", a > 2),
        ("a>=2.", a >= 2.0),
        ("1980 <= a", a >= 1980),
        ("'x' = a", a == "x"),
        ("a = 9223372036854775808", a == 2**63),
        ("a = 'it''s'", a == "it's"),
        (r"a = 'it\'s'", a == "it's"),
        (r'a = "say ""hi"" \"you\" it\'s"', a == 'say "hi" "you" it\'s'),
        (r"a = 'c:\new\\'", a == "c:\\new\\"),
        ("a = ''", a == ""),
        ("a = 'and or ( not'", a == "and or ( not"),
        ("a = true AND b = False", (a == True) & (b == False)),  # noqa: E712
        ("a = x'00FF'", a == b"\x00\xff"),
        ("a = X''", a == b""),
        ("a > timestamp '2024-01-01T00:00:00Z'", a > datetime(2024, 1, 1, tzinfo=UTC)),
        (
            "a > TIMESTAMP '2024-01-01 02:00:00.000001+02:00'",
            a > datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
        ("timestamp = 3", attribute("timestamp") == 3),
        ("x = 3", attribute("x") == 3),
        ("`od``d na-me` = 1", attribute("od`d na-me") == 1),
        ("`and` = 1", attribute("and") == 1),
        ("größe = 1", attribute("größe") == 1),
        ("a in (1, 2.5, 'x')", a.is_in([1, 2.5, "x"])),
        ("a in ()", a.is_in([])),
        ("a not in (1)", ~a.is_in([1])),
        ("a is null", a.is_null()),
        ("a IS NOT NULL", ~a.is_null()),
        ("exists a", a.exists()),
        ("not exists a", ~a.exists()),
        ("a contains 'x'", a.contains("x")),
        ("a not contains 3", ~a.contains(3)),
        ("a like 'Ali%'", a.starts_with("Ali")),
        ("a not like 'Ali%'", ~a.starts_with("Ali")),
        ("a like '%lie%'", a.contains("lie")),
        ("a like 'Alien'", a == "Alien"),
        ("a like '%'", a.starts_with("")),
        ("a like ''", a == ""),
        (r"a like '10\% \_\\\\%'", a.starts_with("10% _\\")),
        ("not a = 1 and b = 2", ~(a == 1) & (b == 2)),
        ("not (a = 1 and b = 2)", ~((a == 1) & (b == 2))),
        ("a = 1 or b = 2 and c = 3", (a == 1) | ((b == 2) & (c == 3))),
        ("a = 1 and b = 2 or c = 3", ((a == 1) & (b == 2)) | (c == 3)),
        ("(a = 1 or b = 2) and c = 3", ((a == 1) | (b == 2)) & (c == 3)),
        ("a=1 and b=2 and c=3", And((a == 1, b == 2, c == 3))),
        ("a=1 or b=2 or c=3 or not a=1", Or((a == 1, b == 2, c == 3, Not(a == 1)))),
        ("((a = 1))", a == 1),
        ("not not a = 1", ~~(a == 1)),
    ],
)
def test_text(text: str, expected: Expression) -> None:
    found = parse_filter(text)
    assert found == expected
    # One equals True and 1.0, but is not written like them.
    assert repr(found) == repr(expected) or "TIMESTAMP" in text


def test_the_example() -> None:
    text = """year >= 1980 and (genre = 'SciFi' or genre in ('Drama', "Noir"))
              and not title like 'Ali%'"""
    assert columns(parse_filter(text)) == {"year", "genre", "title"}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("   ", 4),
        ("a", 2),
        ("a =", 4),
        ("a = 1 b = 2", 7),
        ("a = 1 and", 10),
        ("(a = 1", 1),
        ("a = 1)", 6),
        ("()", 2),
        ("and = 1", 1),
        ("a = null", 5),
        ("a = b", 5),
        ("a = 'x", 5),
        ("a = 12abc", 5),
        ("a ? 1", 3),
        ("a in 1", 6),
        ("a in (1", 8),
        ("a in (1,)", 9),
        ("a is 1", 6),
        ("a is not", 9),
        ("a not = 1", 7),
        ("exists 3", 8),
        ("a like 3", 8),
        ("a like '%x'", 8),
        ("a like 'a%b'", 8),
        ("a like 'a_'", 8),
        ("a = x'0'", 5),
        ("a > timestamp '2024-01-01T00:00:00'", 15),
        ("a > timestamp '2024-13-01T00:00:00Z'", 15),
        ("a > timestamp '2024-01-01T00:00:00.1234567Z'", 15),
        ("1 1", 3),
        ("a = " + "9" * 5000, 5),
        ("`` = 1", 1),
        ("a = '\ud800'", 5),
        ("b = 1 and `\x01` = 1", 11),
    ],
)
def test_errors_name_the_position(text: str, position: int) -> None:
    with pytest.raises(InvalidFilter, match=f"position {position}:"):
        parse_filter(text)


def test_nesting_never_exhausts_the_stack() -> None:
    assert parse_filter("(" * 50_000 + "a = 1" + ")" * 50_000) == (a == 1)
    assert len(parse_filter(" or ".join(["a = 1"] * 20_000)).operands) == 20_000  # type: ignore[attr-defined]
    with pytest.raises(InvalidFilter, match="deeper"):
        parse_filter("not " * 50_000 + "a = 1")
    with pytest.raises(InvalidFilter, match="deeper"):
        parse_filter("(a = 1 or (b = 1 and " * 500 + "a = 1" + "))" * 500)
    with pytest.raises(InvalidFilter, match="characters"):
        parse_filter(" " * (2 << 20))

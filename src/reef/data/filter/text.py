"""Filters written as text.

    year >= 1980 and (genre = 'SciFi' or genre in ('Drama', "Noir")) and not title like 'Ali%'

    name = value    also == != <> < <= > >=, and with the value first
    name in (value, …)    name not in (…)
    name is null    name is not null    exists name
    name contains value    name like 'prefix%' or '%inside%' or 'whole'    (and with not)
    not …    … and …    … or …    ( … )

Values: 12  -3.5  1e6  'text'  "text"  true  false  x'00ff'  timestamp '2024-01-01T00:00:00Z'.
In text a quote is doubled or follows a backslash, and a backslash is doubled before a quote or
another one; elsewhere it stands for itself. In a pattern, a backslash before % or _ takes its
meaning away. A name that is not a plain word, or is a keyword, goes in backquotes. Keywords may
be in any case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from reef.data.filter.tree import (
    And,
    Attribute,
    Compare,
    Contains,
    Exists,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    StartsWith,
)
from reef.errors import InvalidFilter

LONGEST_TEXT = 1 << 20

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<bytes>[xX]'(?:[^']*)')
  | (?P<string>'(?:[^'\\]|''|\\.)*' | "(?:[^"\\]|""|\\.)*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
  | (?P<word>[^\W\d]\w*)
  | (?P<symbol><>|<=|>=|==|!=|[=<>(),])
  | (?P<end>\Z)
)""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = {"and", "or", "not", "in", "is", "null", "like", "contains", "exists", "true", "false"}
_COMPARISONS = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PRECEDENCE = {"or": 1, "and": 2, "not": 3}
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?\s?(Z|[+-]\d\d(:?\d\d)?)")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_filter(text: str) -> Expression:
    """The filter that the text says, or `InvalidFilter` naming the position, from 1."""
    if len(text) > LONGEST_TEXT:
        raise InvalidFilter(f"a filter may have {LONGEST_TEXT} characters, not {len(text)}")
    return _Parser(text).parse()


def _tokens(text: str) -> list[_Token]:
    tokens = []
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise _wrong(f"{text[start : start + 20]!r} is not understood", start)
        kind = match.lastgroup or ""
        word = match[kind]
        start = match.start(kind)
        if kind == "word" and word.lower() in _KEYWORDS:
            kind, word = "keyword", word.lower()
        tokens.append(_Token(kind, word, start))
        if kind == "end":
            return tokens
        position = match.end()


def _wrong(reason: str, position: int) -> InvalidFilter:
    return InvalidFilter(f"the filter is wrong at position {position + 1}: {reason}")


class _Parser:
    """Operators wait on a stack of their own, so that no nesting can exhaust Python's."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._operators: list[_Token] = []
        self._operands: list[Expression] = []

    def parse(self) -> Expression:
        while True:
            self._prefixes()
            self._operands.append(self._test())
            if self._suffixes():
                return self._operands[0]

    def _prefixes(self) -> None:
        while self._is("not") or self._is("("):
            self._operators.append(self._take())

    def _suffixes(self) -> bool:
        """Closing parentheses, and then `and`, `or` or the end; whether it was the end."""
        while True:
            token = self._take()
            if token.text == ")" and token.kind == "symbol":
                self._reduce(0)
                if not self._operators:
                    raise _wrong("this parenthesis was never opened", token.position)
                self._operators.pop()
            elif token.kind == "keyword" and token.text in ("and", "or"):
                self._reduce(_PRECEDENCE[token.text] + 1)
                self._operators.append(token)
                return False
            elif token.kind == "end":
                self._reduce(0)
                if self._operators:
                    raise _wrong("this parenthesis is never closed", self._operators[-1].position)
                return True
            else:
                raise _wrong(f"expected and, or, or the end, not {token.text}", token.position)

    def _reduce(self, least: int) -> None:
        """Apply waiting operators that bind at least that tightly, up to a parenthesis.

        Operators of one kind wait for each other, so that a long chain becomes one flat node.
        """
        while self._operators and _PRECEDENCE.get(self._operators[-1].text, -1) >= least:
            operator = self._operators.pop()
            operand = self._operands.pop()
            try:
                if operator.text == "not":
                    self._operands.append(Not(operand))
                    continue
                chain = [operand, self._operands.pop()]
                while self._operators and self._operators[-1].text == operator.text:
                    self._operators.pop()
                    chain.append(self._operands.pop())
                kind = And if operator.text == "and" else Or
                self._operands.append(kind(tuple(reversed(chain))))
            except InvalidFilter as error:
                raise _wrong(str(error), operator.position) from None

    def _test(self) -> Expression:
        token = self._tokens[self._next]
        try:
            if self._accept("exists"):
                return Exists(self._name())
            if self._begins_literal():
                return self._literal_first()
            name = self._name()
            negated = self._accept("not")
            expression = self._named(name, negated)
            return Not(expression) if negated else expression
        except InvalidFilter as error:
            if str(error).startswith("the filter is wrong"):
                raise
            raise _wrong(str(error), token.position) from None

    def _literal_first(self) -> Expression:
        value = self._literal()
        token = self._take()
        op = _COMPARISONS.get(token.text) if token.kind == "symbol" else None
        if op is None:
            raise _wrong(f"expected a comparison, not {_shown(token)}", token.position)
        return Compare(self._name(), _MIRRORED[op], value)

    def _named(self, name: str, negated: bool) -> Expression:
        token = self._take()
        if token.kind == "symbol" and token.text in _COMPARISONS and not negated:
            return Compare(name, _COMPARISONS[token.text], self._literal())
        if token.kind == "keyword":
            if token.text == "is" and not negated:
                opposite = self._accept("not")
                self._expect("null")
                return Not(IsNull(name)) if opposite else IsNull(name)
            if token.text == "in":
                return In(name, self._values())
            if token.text == "contains":
                return Contains(name, self._literal())
            if token.text == "like":
                return self._like(name)
        wanted = "in, like or contains" if negated else "a comparison"
        raise _wrong(f"expected {wanted}, not {_shown(token)}", token.position)

    def _values(self) -> tuple[Literal, ...]:
        self._expect("(")
        values: list[Literal] = []
        if self._accept(")"):
            return ()
        while True:
            values.append(self._literal())
            if self._accept(")"):
                return tuple(values)
            self._expect(",")

    def _like(self, name: str) -> Expression:
        token = self._take()
        if token.kind != "string":
            raise _wrong(f"expected a pattern, not {_shown(token)}", token.position)
        parts = re.findall(r"\\[%_\\]|.", _unquoted(token), re.DOTALL)
        last = len(parts) - 1 if parts[-1:] == ["%"] else len(parts)
        first = 1 if last > 0 and parts[0] == "%" else 0
        middle = parts[first:last]
        if "%" in middle or "_" in middle or (first and last == len(parts)):
            raise _wrong(
                "like takes 'whole', 'prefix%' or '%inside%'; write \\% and \\_ for themselves",
                token.position,
            )
        text = "".join(part[-1] for part in middle)
        if first:
            return Contains(name, text)
        return Compare(name, "=", text) if last == len(parts) else StartsWith(name, text)

    def _begins_literal(self) -> bool:
        token, after = (
            self._tokens[self._next],
            self._tokens[min(self._next + 1, len(self._tokens) - 1)],
        )
        if token.kind in ("number", "string", "bytes"):
            return True
        if token.kind == "keyword":
            return token.text in ("true", "false")
        return token.kind == "word" and token.text.lower() == "timestamp" and after.kind == "string"

    def _literal(self) -> Literal:
        if not self._begins_literal():
            token = self._tokens[self._next]
            if token.kind == "keyword" and token.text == "null":
                raise _wrong("nothing compares with null: use is null", token.position)
            raise _wrong(f"expected a value, not {_shown(token)}", token.position)
        token = self._take()
        if token.kind == "keyword":
            return token.text == "true"
        if token.kind == "number":
            return _number(token)
        if token.kind == "string":
            return _unquoted(token)
        if token.kind == "bytes":
            try:
                return bytes.fromhex(token.text[2:-1])
            except ValueError:
                raise _wrong("bytes are pairs of hex digits", token.position) from None
        return _timestamp(self._take())

    def _name(self) -> str:
        token = self._take()
        if token.kind == "quoted":
            return Attribute(token.text[1:-1].replace("``", "`")).name
        if token.kind != "word":
            hint = ", which goes in backquotes as a name" if token.kind == "keyword" else ""
            raise _wrong(f"expected a name, not {_shown(token)}{hint}", token.position)
        return Attribute(token.text).name

    def _is(self, text: str) -> bool:
        token = self._tokens[self._next]
        return token.kind in ("keyword", "symbol") and token.text == text

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        if token.kind != "end":
            self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._is(text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            token = self._tokens[self._next]
            raise _wrong(f"expected {text}, not {_shown(token)}", token.position)


def _shown(token: _Token) -> str:
    return "the end" if token.kind == "end" else token.text


def _unquoted(token: _Token) -> str:
    quote = token.text[0]
    text = re.sub(rf"{quote}{quote}|\\(['\"\\])", lambda m: m[1] or quote, token.text[1:-1])
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _wrong("the text is not valid Unicode", token.position) from None
    return text


def _number(token: _Token) -> int | float:
    try:
        return int(token.text) if token.text.lstrip("+-").isdigit() else float(token.text)
    except ValueError:
        raise _wrong("the number has too many digits", token.position) from None


def _timestamp(token: _Token) -> datetime:
    text = _unquoted(token)
    if not _TIMESTAMP.fullmatch(text):
        raise _wrong(
            "a timestamp is written like '2024-01-01T00:00:00Z', with a time zone and at most"
            " microseconds",
            token.position,
        )
    try:
        return datetime.fromisoformat(text.replace(" ", "T", 1).replace(" ", ""))
    except ValueError as error:
        raise _wrong(str(error), token.position) from None

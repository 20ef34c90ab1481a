"""What people type: ages, moments, ids, schemas, lists; and numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reef.data.schema import Schema

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


LONGEST_AGE = 100 * 365 * 86_400
"""In seconds: a hundred years. Clocks and sleeps cannot count much further."""


class Age(click.ParamType[float]):
    """A length of time such as 90s, 15m, 24h, 7d or 1h30m; a bare number is seconds."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        if not _AGE.fullmatch(text):
            self.fail(f"{value!r} is not a length of time such as 15m, 24h or 7d", param, ctx)
        age = sum(float(number) * _UNITS[unit or "s"] for number, unit in _PART.findall(text))
        if age > LONGEST_AGE:
            self.fail(f"{str(value)[:40]!r} is more than a hundred years", param, ctx)
        return age


class Moment(click.ParamType[datetime]):
    """A moment: ISO 8601 (UTC unless it says otherwise), or an age, which counts back from now."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """An aware datetime."""
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        if _AGE.fullmatch(text.lower()) and not text.isdigit():
            from reef.environment import SYSTEM

            now = datetime.fromtimestamp(SYSTEM.now(), UTC)
            return now - timedelta(seconds=AGE.convert(text, param, ctx))
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                return moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC)
        except ValueError:
            self.fail(f"{value!r} is not a moment such as 2024-05-01T12:00:00Z or 2h", param, ctx)
        except OverflowError:
            self.fail(f"{value!r} is not in the years 1 to 9999 of UTC", param, ctx)


def just_after(moment: datetime) -> datetime:
    """The moment that bounds what is shown as this one: clocks count finer than it is written."""
    return min(moment, _LAST) + timedelta(microseconds=1)


_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(microseconds=1)
AGE = Age()
MOMENT = Moment()


def parse_id(text: str, schema: Schema) -> str | int:
    """What was typed as an id of the namespace's kind, or `InvalidId`."""
    from reef.data.schema import INTEGER_IDS
    from reef.errors import InvalidId

    if schema.id_kind != INTEGER_IDS:
        return text
    if not (text.isascii() and text.isdigit()):
        raise InvalidId(f"{text!r} is not an id of this namespace, whose ids are unsigned integers")
    return int(text)


def parse_bound(text: str, schema: Schema) -> str | int:
    """What was typed as a bound of ids, which need not be an id, or `InvalidId`."""
    from reef.data.schema import INTEGER_IDS

    if schema.id_kind == INTEGER_IDS and text.removeprefix("-").isdigit() and text.isascii():
        return int(text)
    return parse_id(text, schema)


def parse_attributes(texts: Iterable[str]) -> dict[str, str]:
    """Attributes of "name=type" texts, each perhaps a list with commas between."""
    attributes: dict[str, str] = {}
    for text in texts:
        for part in split_names(text):
            name, mark, kind = part.partition("=")
            name = name.strip()
            if not mark or not name or not kind.strip():
                raise click.UsageError(f"{part!r} is not name=type, as in year=int64")
            if name in attributes:
                raise click.UsageError(f"attribute {name!r} is given twice")
            attributes[name] = kind.strip()
    return attributes


def split_names(text: str) -> list[str]:
    """The parts between commas, those inside of <> left alone."""
    return [part.strip() for part in re.split(r",(?![^<]*>)", text) if part.strip()]


def bytes_text(size: float) -> str:
    """A number of bytes, such as 626 B, 1.2 KiB or 64 MiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def age_text(seconds: float) -> str:
    """A length of time, such as 45s, 15m, 2h 30m or 7d."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size}{unit}")
            left %= size
    return " ".join(parts[:2]) or "0s"


def moment_text(seconds: float) -> str:
    """A moment given in seconds since 1970, in UTC."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 2,000 rows."""
    plural = noun if number == 1 else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {plural}"

"""Options of the data source: those that exist, read as what they are; others are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from reef.errors import InvalidInput
from reef.spark.bucket import Bucket, bucket_at

_STORAGE = "storage."
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
# What Spark itself puts among the options of a source.
_SPARK = {"path", "paths", "__paths__", "checkpointlocation", "querytype"}


class SourceOptions:
    """The options that a user gave, in any case, checked against the names that are known."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        names = {name.lower(): name for name in ("bucket", "namespace", *known)}
        self._values: dict[str, str] = {}
        storage: dict[str, str] = {}
        for name, value in given.items():
            folded = name.lower()
            if folded.startswith(_STORAGE):
                storage[folded.removeprefix(_STORAGE)] = value
            elif folded in names:
                self._values[names[folded]] = value
            elif folded not in _SPARK:
                raise InvalidInput(_unknown(name, names))
            elif folded == "path" and value:
                raise InvalidInput(
                    "reef has no path: give the options bucket and namespace, and call"
                    " load() or save() without one"
                )
        self._storage = storage

    @property
    def bucket(self) -> Bucket:
        """Where the data is."""
        return bucket_at(self.text("bucket") or "", self._storage)

    @property
    def namespace(self) -> str:
        """Which namespace; there must be one."""
        name = self.text("namespace")
        if not name:
            raise InvalidInput("no namespace was given: set the option namespace")
        return name

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """The option as it was given, None if it was not."""
        return self._values.get(name)

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        """One of a few words."""
        words = list(choices)
        value = self._values.get(name, default).lower()
        if value not in words:
            allowed = ", ".join(words)
            raise InvalidInput(f"the option {name} is one of {allowed}, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in _TRUTH:
            raise InvalidInput(f"the option {name} is true or false, not {value!r}")
        return _TRUTH[value.lower()]

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number from `least` on, None if it was not given."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise InvalidInput(
                f"the option {name} is a whole number from {least} on, not {value!r}"
            )
        return number


def _unknown(name: str, names: Mapping[str, str]) -> str:
    close = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    if close:
        return f"there is no option {name!r}; did you mean {names[close[0]]!r}?"
    known = ", ".join(sorted(names.values(), key=str.lower))
    return f"there is no option {name!r}; there are {known}, and storage.* for the bucket"

"""The schema of a namespace: the kind of its ids and the type of each attribute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from reef.data.settling import settled
from reef.data.types import EMPTY_LIST, NULL, AttributeType, parse_type
from reef.errors import InvalidInput, InvalidName, SchemaConflict

STRING_IDS = "string"
INTEGER_IDS = "uint64"
ID_TYPES: dict[str, pa.DataType] = {STRING_IDS: pa.string(), INTEGER_IDS: pa.uint64()}
LONGEST_ATTRIBUTE_NAME = 128
_OPEN = frozenset(map(str, (NULL, EMPTY_LIST)))


@dataclass(frozen=True)
class Schema:
    """Immutable. `id_kind` is "string", "uint64", or None until the first write decides."""

    id_kind: str | None = None
    attributes: Mapping[str, AttributeType] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal schemas, in whatever order their attributes were added."""
        return xxhash.xxh3_64_hexdigest(
            msgspec.json.encode(
                [self.id_kind, sorted((name, str(kind)) for name, kind in self.attributes.items())]
            )
        )

    @cached_property
    def format(self) -> int:
        """The lowest version of Reef's formats that can say it."""
        return format_of(self.to_dict())

    @property
    def id_type(self) -> pa.DataType:
        """The Arrow type of ids; strings while undecided."""
        return ID_TYPES[self.id_kind or STRING_IDS]

    def extended(
        self, attributes: Mapping[str, AttributeType], id_kind: str | None = None
    ) -> Schema:
        """This schema with those attributes added, and settled where their types were not known
        yet; or `SchemaConflict` if one disagrees."""
        if id_kind and self.id_kind and id_kind != self.id_kind:
            raise SchemaConflict(f"ids of this namespace are {self.id_kind}, not {id_kind}")
        added: dict[str, AttributeType] = {}
        for name, kind in attributes.items():
            known = self.attributes.get(name)
            if known is None:
                added[check_attribute_name(name)] = kind
            elif known != kind:
                both = settled(known, kind)
                if both is None:
                    raise SchemaConflict(f"attribute {name!r} is {known}, not {kind}")
                if both != known:
                    added[name] = both
        if not added and (id_kind is None or id_kind == self.id_kind):
            return self
        return Schema(id_kind or self.id_kind, {**self.attributes, **added})

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {
            "id": self.id_kind,
            "attributes": {name: str(kind) for name, kind in self.attributes.items()},
        }

    @staticmethod
    def from_dict(value: Mapping[str, object]) -> Schema:
        """The inverse of `to_dict`; `InvalidInput` if this is no schema."""
        attributes = value.get("attributes") or {}
        kind = value.get("id")
        if not isinstance(attributes, Mapping) or kind not in (None, *ID_TYPES):
            raise InvalidInput("this is not a schema")
        return Schema(
            None if kind is None else str(kind),
            {str(name): parse_type(str(text)) for name, text in attributes.items()},
        )


def format_of(value: Mapping[str, Any]) -> int:
    """The lowest version of Reef's formats that can say a schema, given as `to_dict` gives it:
    types that are not known yet came with the second."""
    attributes = value.get("attributes")
    if not isinstance(attributes, Mapping):
        return 1
    return 2 if any(text in _OPEN for text in attributes.values()) else 1


def check_attribute_name(name: object) -> str:
    """The name, or `InvalidName`. Any printable text of 1 to 128 bytes that is not "id"."""
    if not isinstance(name, str):
        raise InvalidName(f"an attribute name must be a string, not {type(name).__name__}")
    if name == "id":
        raise InvalidName('"id" names the document id and cannot be an attribute')
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"attribute name {name!r} is not valid Unicode") from None
    if not 0 < length <= LONGEST_ATTRIBUTE_NAME or not name.isprintable():
        raise InvalidName(
            f"attribute name {name!r} must be 1 to {LONGEST_ATTRIBUTE_NAME} bytes of printable text"
        )
    return str.__str__(name)

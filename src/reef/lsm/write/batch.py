"""A batch on its way into the log: operations, the condition they stand under, the receipt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from reef.data.filter import Expression
from reef.data.plain import PlainRows, Rows
from reef.data.schema import Schema
from reef.segment import SegmentInfo

ABSENT, EXISTS, EQUAL = "absent", "exists", "equal"
_LARGE = 1024 * 1024


@dataclass(frozen=True)
class Condition:
    """What must hold for the document of each operation, as it stood before the batch."""

    kind: str
    values: Mapping[str, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        """The attributes that must be read to decide."""
        return tuple(self.values)

    def holds(self, document: Mapping[str, Any] | None) -> bool:
        """Whether it does for this document (None: there is none)."""
        if self.kind == ABSENT:
            return document is None
        if document is None:
            return False
        return all(
            name in document and _same(document[name], value) for name, value in self.values.items()
        )

    def describe(self) -> str:
        """For people."""
        if self.kind == EQUAL:
            return "if " + " and ".join(f"{name} = {v!r}" for name, v in self.values.items())
        return f"if {self.kind}"


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


@dataclass(frozen=True)
class Receipt:
    """What became of a batch.

    `lsn` is the slot that holds it, or, if nothing had to be written, the newest slot that it
    was decided against. `upserted` and `deleted` count distinct ids (a deleted id need not have
    existed), `patched` documents changed, `missing` patches that found no document, `rejected`
    lists the ids whose condition did not hold when the batch asked to go on without them.
    """

    lsn: int
    upserted: int = 0
    patched: int = 0
    deleted: int = 0
    missing: int = 0
    rejected: tuple[str | int, ...] = ()

    def in_slot(self, lsn: int) -> Receipt:
        """The same receipt with that LSN."""
        return Receipt(lsn, self.upserted, self.patched, self.deleted, self.missing, self.rejected)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the LSN and what is zero."""
        values = {
            "upserted": self.upserted,
            "patched": self.patched,
            "deleted": self.deleted,
            "missing": self.missing,
            "rejected": list(self.rejected),
        }
        return {name: value for name, value in values.items() if value}

    @staticmethod
    def from_dict(lsn: int, value: Mapping[str, Any]) -> Receipt:
        """The inverse of `to_dict`."""
        return Receipt(lsn, **{**value, "rejected": tuple(value.get("rejected", ()))})


@dataclass(frozen=True)
class WriteBatch:
    """Checked operations. They apply in this order: upserts, patches, deletes, deletes by filter.

    Each of `upserts`, `patches` and `deletes` holds every id at most once; `schema` is what the
    writer's schema becomes. With `skip_rejected`, operations whose condition fails are
    left out instead of refusing the batch. A batch whose rows were uploaded already has `segments`
    and the `counts` of its receipt instead of upserts and deletes.
    """

    schema: Schema
    upserts: Rows | None = None
    patches: Rows | None = None
    deletes: pa.Array | None = None
    delete_where: Expression | None = None
    condition: Condition | None = None
    skip_rejected: bool = False
    key: str | None = None
    segments: tuple[SegmentInfo, ...] = ()
    counts: Receipt | None = None

    @cached_property
    def nbytes(self) -> int:
        """About how many bytes of log it takes."""
        size = 0
        for part in (self.upserts, self.patches, self.deletes):
            if isinstance(part, PlainRows):
                size += part.nbytes
            elif part is not None:
                # Exact counting is slow; only slices of something larger are worth it.
                whole = part.get_total_buffer_size()
                size += part.nbytes if whole > _LARGE else whole
        return size

    @property
    def only_deletes_where(self) -> bool:
        """Whether it deletes by a filter, without conditions, and does nothing else."""
        parts = (self.upserts, self.patches, self.deletes, self.condition)
        return self.delete_where is not None and all(part is None for part in parts)

    @property
    def reads(self) -> bool:
        """Whether what it does depends on what is there."""
        return (
            self.patches is not None or self.condition is not None or self.delete_where is not None
        )

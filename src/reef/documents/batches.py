"""From what users pass to `write`, to a checked batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.convert import convert_deletes, convert_rows
from reef.data.convert.few import convert_few_rows
from reef.data.filter import Expression, check, parse_filter
from reef.data.plain import Rows
from reef.data.rows import ID, PATCH, UPSERT
from reef.data.schema import Schema
from reef.documents.conditions import check_condition
from reef.errors import BatchTooLarge, InvalidFilter, InvalidInput
from reef.lsm.options import Options
from reef.lsm.order import is_increasing
from reef.lsm.write.batch import WriteBatch

LONGEST_KEY = 256


def make_batch(
    schema: Schema,
    options: Options,
    *,
    upserts: Any = None,
    patches: Any = None,
    deletes: Any = None,
    delete_where: Expression | str | None = None,
    condition: Any = None,
    on_conflict: str = "refuse",
    idempotency_key: str | None = None,
) -> WriteBatch:
    """Check everything that can be checked without the bucket, or raise a kind of `InvalidInput`.

    Of several operations on one id within upserts, patches or deletes, the last one counts.
    """
    if on_conflict not in ("refuse", "skip"):
        raise InvalidInput(f'on_conflict must be "refuse" or "skip", not {on_conflict!r}')
    key = None if idempotency_key is None else check_idempotency_key(idempotency_key)
    upsert_rows: Rows | None = None
    patch_rows: Rows | None = None
    delete_ids: pa.Array | None = None
    if upserts is not None:
        upsert_rows, schema = _converted(upserts, schema, UPSERT)
    if patches is not None:
        patch_rows, schema = _converted(patches, schema, PATCH)
    if deletes is not None:
        tombstones, schema = convert_deletes(deletes, schema)
        delete_ids = tombstones.column(ID).unique()
    where = parsed_filter(delete_where, schema)
    if condition is not None:
        condition = check_condition(condition, schema)
    rows = sum(len(part) for part in (upsert_rows, patch_rows, delete_ids) if part is not None)
    if not rows and where is None:
        raise InvalidInput("the batch is empty: it has no upserts, patches or deletes")
    batch = WriteBatch(
        schema,
        upsert_rows if upsert_rows is not None and upsert_rows.num_rows else None,
        patch_rows if patch_rows is not None and patch_rows.num_rows else None,
        delete_ids if delete_ids is not None and len(delete_ids) else None,
        where,
        condition,
        on_conflict == "skip",
        key,
    )
    if batch.nbytes > options.batch_bytes:
        raise BatchTooLarge(
            f"the batch has {batch.nbytes} bytes; a batch may have at most {options.batch_bytes}"
        )
    return batch


def _converted(data: Any, schema: Schema, kind: int) -> tuple[Rows, Schema]:
    plain = convert_few_rows(data, schema, kind)
    if plain is not None:
        return plain, schema
    rows, schema = convert_rows(data, schema, kind=kind)
    return last_of_each(rows), schema


def parsed_filter(filter: Expression | str | None, schema: Schema) -> Expression | None:
    """The filter as an expression that fits the schema, or `InvalidFilter`."""
    if filter is None:
        return None
    if isinstance(filter, str):
        filter = parse_filter(filter)
    if not isinstance(filter, Expression):
        raise InvalidFilter(f"a filter is text or an expression, not a {type(filter).__name__}")
    check(filter, schema)
    return filter


def check_idempotency_key(key: object) -> str:
    """The key, or `InvalidInput`."""
    if not isinstance(key, str) or not key.isprintable():
        raise InvalidInput("an idempotency key must be printable text")
    if not 0 < len(key.encode()) <= LONGEST_KEY:
        raise InvalidInput(f"an idempotency key must have 1 to {LONGEST_KEY} bytes")
    return str.__str__(key)


def last_of_each(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without those that a later row of the same id replaces."""
    if rows.num_rows < 2:
        return rows
    ids = rows.column(ID)
    if is_increasing(ids) or pc.count_distinct(ids).as_py() == len(ids):
        return rows
    codes = np.asarray(ids.dictionary_encode().indices)
    _, last = np.unique(codes[::-1], return_index=True)
    return rows.take(pa.array(np.sort(len(codes) - 1 - last)))

"""Types that are not known yet, and what becomes of them.

An attribute of which only nulls were seen has the type null, one of which only empty lists (or
lists of nulls) were seen list<null>. The first value that says more settles it; of two writes that
settle it differently, the one that is later in the log conflicts. Rows that were written before
keep the columns they have, of Arrow's types null and list<null>. Wherever they meet a schema that
knows more they are lifted to its type.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reef.data.types import EMPTY_LIST, NULL, AttributeType


def settled(known: AttributeType, given: AttributeType) -> AttributeType | None:
    """The type of an attribute that is known as one and given as the other; None if no type can be
    both."""
    if known == given or given == NULL:
        return known
    if known == NULL:
        return given
    for empty, other in ((known, given), (given, known)):
        if empty == EMPTY_LIST and other.family in ("list", "json"):
            return other
    return None


def lifts(arrow: pa.DataType, known: pa.DataType) -> bool:
    """Whether a column of a type that was not known yet becomes one of the type known now."""
    if pa.types.is_null(arrow):
        return not pa.types.is_null(known)
    if not pa.types.is_list(arrow) or not pa.types.is_null(arrow.value_type):
        return False
    if pa.types.is_list(known):
        return not pa.types.is_null(known.value_type)
    return pa.types.is_string(known)


def lifted(values: pa.Array, known: pa.DataType) -> pa.Array:
    """A column as one of the type known now; the same if its type was known all along."""
    if not lifts(values.type, known):
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), known)
    lengths = pc.list_value_length(values)
    if pa.types.is_string(known):
        distinct = lengths.unique().drop_null()
        texts = ["[" + ",".join(["null"] * length) + "]" for length in distinct.to_pylist()]
        return pa.array(texts, known).take(pc.index_in(lengths, value_set=distinct))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths.fill_null(0).to_numpy(), out=offsets[1:])
    elements = pa.nulls(int(offsets[-1]), known.value_type)
    missing = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=known, mask=missing)


def lifted_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with every column that the schema knows more of lifted to its type."""
    for place, field in enumerate(batch.schema):
        position = schema.get_field_index(field.name)
        if position >= 0 and lifts(field.type, schema.field(position).type):
            column = lifted(batch.column(place), schema.field(position).type)
            batch = batch.set_column(place, schema.field(position), column)
    return batch

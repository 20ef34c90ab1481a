"""What users pass, as batches of rows: see `reef.data.rows` for what comes out.

Data comes as a list of dicts; a dict of columns (lists, NumPy arrays, Arrow arrays, Series); an
Arrow table or batch; a pandas or polars DataFrame; or anything else that speaks Arrow's C
interface. In dicts, a key that is not there leaves the attribute absent and None sets it to
null. In columns, a null is an explicit null, and only a column that is not there is absent; in
pandas, NaN, NaT and NA are nulls, and the index is not looked at.

A new attribute takes the type that its values ask for: see `reef.data.infer` and
`reef.data.convert.arrow`. One whose values leave it open (only nulls, or only empty lists) has a
type that is not known yet, and the first values that say more settle it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reef.data.convert import slices
from reef.data.convert.arrow import column_of_arrow, infer_arrow, plain_array, plain_type
from reef.data.convert.slices import (
    TooLarge,
    cuts,
    halves,
    is_too_large,
    narrow,
    plain_bytes,
    whole,
)
from reef.data.convert.sources import ArrowColumn, Source, ValueColumn, sliced, sources_of
from reef.data.convert.values import column_of_values
from reef.data.ids import check_ids, ids_of_values, kind_of_ids
from reef.data.infer import infer_type
from reef.data.place import Place
from reef.data.rows import DELETE, ID, KIND_FIELD, field_of, null_flag
from reef.data.schema import ID_TYPES, Schema, check_attribute_name
from reef.data.settling import settled
from reef.data.types import AttributeType, parse_type
from reef.errors import BatchTooLarge, InvalidId, InvalidInput, SchemaConflict

_JSON = parse_type("json")


def convert_rows(
    data: object, schema: Schema, *, kind: int, infer: bool = True
) -> tuple[pa.RecordBatch, Schema]:
    """The rows without LSNs, in their order, and the schema with what they add to it.

    Columns are id, kind, the attributes that some row sets, and a null flag for each attribute
    that some row sets to null. With `infer` off an attribute that the schema lacks is a
    `SchemaConflict`. Errors are `InvalidInput` or one of its children, `BatchTooLarge` where the
    rows are more than one batch can hold; nothing is half done.
    """
    sources, rows = sources_of(data)
    with _of_one_batch(sources, rows):
        return _converted(sources, rows, schema, kind, infer)


def convert_slices(
    data: object, schema: Schema, *, kind: int
) -> Iterator[tuple[pa.RecordBatch, Schema]]:
    """As `convert_rows`, in as many batches as it takes: there may be any amount of rows.

    Every attribute has one type in all of them.
    """
    sources, rows = sources_of(data)
    waiting = deque(cuts(_arrays(sources), rows, slices.SLICE_BYTES))
    if len(waiting) > 1:
        schema = _inferred(sources, schema)
    while waiting:
        some = waiting.popleft()
        part = {name: sliced(source, some) for name, source in sources.items()}
        try:
            batch, schema = _converted(part, len(some), schema, kind, True)
        except (TooLarge, pa.ArrowException) as error:
            if not is_too_large(error):
                raise
            if len(some) < 2:
                raise _too_large(1) from None
            schema = _inferred(sources, schema)
            waiting.extendleft(reversed(halves(some)))
            continue
        except InvalidInput as error:
            raise _placed(error, some.start) from None
        yield batch, schema


_ROW = re.compile(r"\brow (\d+)")


def _placed(error: InvalidInput, start: int) -> InvalidInput:
    """An error about a slice, with the number that the row has in the whole."""
    if not start:
        return error
    return type(error)(_ROW.sub(lambda found: f"row {int(found[1]) + start}", str(error)))


@contextmanager
def _of_one_batch(sources: Mapping[str, Source], rows: int) -> Iterator[None]:
    arrays = _arrays(sources)
    if any(plain_bytes(array) > slices.LARGEST_ARRAY for array in arrays):
        raise _too_large(rows)
    try:
        yield
    except (TooLarge, pa.ArrowException) as error:
        if not is_too_large(error):
            raise
        raise _too_large(rows) from None


def _arrays(sources: Mapping[str, Source]) -> list[pa.Array | pa.ChunkedArray]:
    return [source.array for source in sources.values() if isinstance(source, ArrowColumn)]


def _too_large(rows: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"a column of these {rows} rows has more than the {slices.LARGEST_ARRAY} bytes that one"
        " batch can hold of it; write fewer at once, or load() them"
    )


def _inferred(sources: Mapping[str, Source], schema: Schema) -> Schema:
    """The schema with the types that whole columns ask for, so that their parts agree."""
    ids = sources.get(ID)
    shown = [] if ids is None else ids.values if isinstance(ids, ValueColumn) else ids.array
    added: dict[str, AttributeType] = {}
    for name, source in sources.items():
        known = schema.attributes.get(name)
        if name != ID and (known is None or known.is_open):
            added[check_attribute_name(name)] = _type(Place(name, shown), source, known)
    return schema.extended(added)


def _converted(
    sources: dict[str, Source], rows: int, schema: Schema, kind: int, infer: bool
) -> tuple[pa.RecordBatch, Schema]:
    ids = _ids(sources.get(ID), rows, schema.id_kind)
    sources = {name: source for name, source in sources.items() if name != ID}
    arrays = [ids, _kinds(kind, rows)]
    types: list[AttributeType] = []
    flags: dict[str, pa.Array] = {}
    added: dict[str, AttributeType] = {}
    for name, source in sources.items():
        known = schema.attributes.get(name)
        if known is None:
            check_attribute_name(name)
            if not infer:
                raise SchemaConflict(f"the schema has no attribute {name!r}")
        array, attribute = _column(Place(name, ids), source, known)
        if attribute != known:
            added[name] = attribute
        types.append(attribute)
        arrays.append(array)
        if array.null_count:
            nulls = _explicit_nulls(array, source)
            if nulls is not None:
                flags[name] = nulls
    arrays.extend(flags.values())
    id_kind = kind_of_ids(ids)
    fields = _arrow_schema(id_kind, tuple(sources), tuple(types), tuple(flags))
    extended = schema.extended(added, id_kind if rows else None)
    return pa.RecordBatch.from_arrays(arrays, schema=fields), extended


def convert_deletes(ids: object, schema: Schema) -> tuple[pa.RecordBatch, Schema]:
    """Tombstones for a list, NumPy array, Series or Arrow array of ids."""
    sources, rows = sources_of({ID: ids})
    with _of_one_batch(sources, rows):
        array = _ids(sources[ID], rows, schema.id_kind)
    fields = _arrow_schema(kind_of_ids(array), (), (), ())
    batch = pa.RecordBatch.from_arrays([array, _kinds(DELETE, rows)], schema=fields)
    return batch, schema.extended({}, kind_of_ids(array) if rows else None)


def _kinds(kind: int, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(bytes((kind,)) * rows)])


@lru_cache(maxsize=1024)
def _arrow_schema(
    id_kind: str,
    names: tuple[str, ...],
    types: tuple[AttributeType, ...],
    flags: tuple[str, ...],
) -> pa.Schema:
    return pa.schema(
        [
            pa.field(ID, ID_TYPES[id_kind], nullable=False),
            KIND_FIELD,
            *map(field_of, names, types),
            *(pa.field(null_flag(name), pa.bool_()) for name in flags),
        ]
    )


def _ids(source: Source | None, rows: int, id_kind: str | None) -> pa.Array:
    if source is None:
        if rows:
            raise InvalidId("the id of row 0 is missing: there is no id in the rows")
        source = ValueColumn([])
    if isinstance(source, ValueColumn):
        return ids_of_values(source.values, id_kind)
    return check_ids(narrow(plain_array(source.array)), id_kind)


def _type(place: Place, source: Source, known: AttributeType | None) -> AttributeType:
    """The type of a column: the one that is known, or what its values ask for."""
    if known is not None and not known.is_open:
        return known
    if isinstance(source, ValueColumn):
        given = infer_type(place, source.values)
    else:
        given = _JSON if source.json else infer_arrow(place, plain_type(source.array.type))
    both = given if known is None else settled(known, given)
    if both is None:
        raise place.conflict(0, f"a {known} as before", f"a {given}")
    return both


def _column(
    place: Place, source: Source, known: AttributeType | None
) -> tuple[pa.Array, AttributeType]:
    attribute = _type(place, source, known)
    if isinstance(source, ValueColumn):
        return column_of_values(place, source.values, attribute), attribute
    array = column_of_arrow(place, plain_array(source.array), attribute, json=source.json)
    return whole(array), attribute


def _explicit_nulls(array: pa.Array, source: ArrowColumn | ValueColumn) -> Any | None:
    nulls = array.is_null()
    if isinstance(source, ValueColumn) and source.absent is not None:
        nulls = pc.and_not(nulls, pa.array(source.absent))
        if nulls.true_count == 0:
            return None
    return nulls

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

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reef.data.convert.arrow import column_of_arrow, infer_arrow, plain_array
from reef.data.convert.sources import ArrowColumn, Source, ValueColumn, sources_of
from reef.data.convert.values import column_of_values
from reef.data.ids import check_ids, ids_of_values, kind_of_ids
from reef.data.infer import infer_type
from reef.data.place import Place
from reef.data.rows import DELETE, ID, KIND_FIELD, field_of, null_flag
from reef.data.schema import ID_TYPES, Schema, check_attribute_name
from reef.data.settling import settled
from reef.data.types import AttributeType, parse_type
from reef.errors import InvalidId, SchemaConflict

_JSON = parse_type("json")


def convert_rows(
    data: object, schema: Schema, *, kind: int, infer: bool = True
) -> tuple[pa.RecordBatch, Schema]:
    """The rows without LSNs, in their order, and the schema with what they add to it.

    Columns are id, kind, the attributes that some row sets, and a null flag for each attribute
    that some row sets to null. With `infer` off an attribute that the schema lacks is a
    `SchemaConflict`. Errors are `InvalidInput` or one of its children; nothing is half done.
    """
    sources, rows = sources_of(data)
    ids = _ids(sources.pop(ID, None), rows, schema.id_kind)
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
    return check_ids(plain_array(source.array), id_kind)


def _column(
    place: Place, source: Source, known: AttributeType | None
) -> tuple[pa.Array, AttributeType]:
    if isinstance(source, ValueColumn):
        if known is None or known.is_open:
            known = _settled(place, known, infer_type(place, source.values))
        return column_of_values(place, source.values, known), known
    array = plain_array(source.array)
    if known is None or known.is_open:
        given = _JSON if source.json else infer_arrow(place, array.type)
        known = _settled(place, known, given)
    return column_of_arrow(place, array, known, json=source.json), known


def _settled(place: Place, known: AttributeType | None, given: AttributeType) -> AttributeType:
    both = given if known is None else settled(known, given)
    if both is None:
        raise place.conflict(0, f"a {known} as before", f"a {given}")
    return both


def _explicit_nulls(array: pa.Array, source: ArrowColumn | ValueColumn) -> Any | None:
    nulls = array.is_null()
    if isinstance(source, ValueColumn) and source.absent is not None:
        nulls = pc.and_not(nulls, pa.array(source.absent))
        if nulls.true_count == 0:
            return None
    return nulls

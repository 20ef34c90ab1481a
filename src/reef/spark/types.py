"""What a namespace looks like to Spark, and rows as the Arrow batches that Spark takes.

id               string; of integers bigint (or decimal(20,0), where that is asked for)
bool, string     boolean, string
int64, float64   bigint, double
bytes            binary
timestamp        timestamp
json             string: its JSON text
list<T>          array<T>
vector<T, N>     array<float>
null             void: only nulls were seen so far; list<null> is array<void>

Spark has one null: an attribute that is null and one that is absent look the same to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from reef.data.documents import vectors_of
from reef.data.rows import ID
from reef.data.schema import INTEGER_IDS, Schema
from reef.data.settling import lifted
from reef.data.types import EMPTY_LIST, NULL, AttributeType, type_of_arrow
from reef.errors import InvalidInput, SchemaConflict

_SCALARS: dict[str, type[DataType]] = {
    "bool": BooleanType,
    "int64": LongType,
    "float64": DoubleType,
    "string": StringType,
    "bytes": BinaryType,
    "timestamp": TimestampType,
    "null": NullType,
}
_UNSIGNED = DecimalType(20, 0)


def spark_type(kind: AttributeType) -> DataType:
    """The Spark type of an attribute."""
    if kind.family == "json":
        return StringType()
    if kind.family == "vector":
        return ArrayType(FloatType())
    element = _SCALARS[kind.element]()
    return ArrayType(element) if kind.family == "list" else element


def spark_schema(
    schema: Schema, columns: Sequence[str] | None = None, *, unsigned_ids: bool = False
) -> StructType:
    """The id and every attribute, or exactly those columns in their order.

    Integer ids are bigint, or with `unsigned_ids` decimal(20,0), which holds all of them.
    """
    names = [ID, *schema.attributes] if columns is None else columns
    return StructType([_field(name, schema, unsigned_ids) for name in names])


def _field(name: str, schema: Schema, unsigned_ids: bool) -> StructField:
    if name == ID:
        integers = _UNSIGNED if unsigned_ids else LongType()
        return StructField(ID, integers if schema.id_kind == INTEGER_IDS else StringType())
    kind = schema.attributes.get(name)
    if kind is None:
        raise InvalidInput(_no_column(name, schema))
    return StructField(name, spark_type(kind))


def _no_column(name: str, schema: Schema) -> str:
    known = [ID, *schema.attributes]
    folded = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    if close:
        return f"there is no column {name!r}; did you mean {folded[close[0]]!r}?"
    some = ", ".join(map(repr, known[:20]))
    return f"there is no column {name!r}; there are {some}{', …' if len(known) > 20 else ''}"


def check_columns(struct: StructType, schema: Schema) -> None:
    """`InvalidInput` unless every column of a Spark schema is one of the namespace's, of the type
    that it has there."""
    for field in struct.fields:
        expected = _field(field.name, schema, field.dataType == _UNSIGNED).dataType
        if not _same(field.dataType, expected):
            raise InvalidInput(
                f"column {field.name!r} is {expected.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def _same(given: DataType, expected: DataType) -> bool:
    """Whether they are one type, apart from what may be null."""
    if isinstance(given, ArrayType) and isinstance(expected, ArrayType):
        return given.elementType == expected.elementType
    return given == expected


def arrow_schema(struct: StructType) -> pa.Schema:
    """The schema that Spark expects of the batches that a reader of `struct` yields."""
    return to_arrow_schema(struct, timezone="UTC")


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows, or a batch of a scan, as a batch of exactly that schema; columns that the batch lacks
    are null. What Arrow holds as Spark does is not copied.

    `InvalidInput` where a value has no place in its column: an id from 2**63 on in a bigint, or
    a null in a column that has none.
    """
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            column = pa.nulls(batch.num_rows, field.type)
        else:
            column = _column(batch.column(position), field)
        if not field.nullable and column.null_count:
            raise InvalidInput(f"column {field.name!r} has nulls, and was asked for without")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: pa.Array, field: pa.Field) -> pa.Array:
    values = lifted(values, field.type)
    given, wanted = values.type, field.type
    if given.equals(wanted):
        return values
    if type_of_arrow(wanted) in (NULL, EMPTY_LIST):
        raise SchemaConflict(
            f"the type of column {field.name!r} was decided after this query began; start it again"
        )
    if pa.types.is_fixed_size_list(given):
        return _lists(values, wanted)
    if pa.types.is_uint64(given) and pa.types.is_int64(wanted):
        return _signed(values, field.name)
    return values.cast(wanted)


def _lists(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Vectors as lists that share their numbers."""
    numbers = vectors_of(values).reshape(-1)
    if numbers.dtype != np.float32:
        numbers = numbers.astype(np.float32)
    size = values.type.list_size
    offsets = np.arange(0, (len(values) + 1) * size, size, dtype=np.int32)
    valid = None
    if values.null_count:
        flags = values.is_valid().to_numpy(zero_copy_only=False)
        valid = pa.py_buffer(np.packbits(flags, bitorder="little"))
    elements = pa.Array.from_buffers(wanted.value_type, len(numbers), [None, pa.py_buffer(numbers)])
    return pa.Array.from_buffers(
        wanted, len(values), [valid, pa.py_buffer(offsets)], children=[elements]
    )


def _signed(values: pa.Array, name: str) -> pa.Array:
    signed = values.view(pa.int64())
    if len(signed):
        numbers = signed.to_numpy(zero_copy_only=not signed.null_count)
        if numbers.min() < 0:
            value = values[int(numbers.argmin())].as_py()
            raise InvalidInput(
                f"{name} {value} does not fit into bigint; set the option unsignedIds to decimal"
            )
    return signed

"""DataFrames on their way in: which Spark type becomes which attribute type.

    boolean                          bool        timestamp         timestamp
    byte, short, int, long           int64       date              timestamp, at midnight UTC
    float, double                    float64     array<T>          list<T>
    string, char, varchar            string      array<float>      vector, unless declared a list
    binary                           bytes       struct, map, nested arrays     json

A string column of a json attribute holds JSON text, as it does when it is read. Ids are strings
or integers that are not negative; decimal(20, 0) holds all of those that long cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from reef.data.convert import convert_deletes, convert_rows
from reef.data.rows import DELETE, ID, UPSERT
from reef.data.schema import INTEGER_IDS, STRING_IDS, Schema, check_attribute_name
from reef.data.settling import settled
from reef.data.types import EMPTY_LIST, NULL, AttributeType, parse_type, vector
from reef.errors import InvalidId, InvalidInput, SchemaConflict

JSON = parse_type("json")
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_SCALARS: dict[type[DataType], str] = {
    BooleanType: "bool",
    **dict.fromkeys(_INTEGERS, "int64"),
    FloatType: "float64",
    DoubleType: "float64",
    BinaryType: "bytes",
    TimestampType: "timestamp",
    DateType: "timestamp",
}
_ID_DIGITS = 20
# What is converted at a time: as much again is needed for the result.
_SLICE_BYTES = 8 * 1024 * 1024
_JSON_TEXT = {b"reef": b"json"}


@dataclass(frozen=True)
class Incoming:
    """How the columns of a DataFrame become rows of a namespace. A small value, sent to tasks.

    `names` are what its columns are called in the namespace, in their order, `id` among them;
    `texts` those that hold JSON text. `schema` is what the namespace's becomes.
    """

    schema: Schema
    names: tuple[str, ...]
    texts: frozenset[str]
    kind: int = UPSERT

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Checked rows without LSNs, in their order, a bounded stretch at a time."""
        for batch in batches:
            step = max(1, batch.num_rows * _SLICE_BYTES // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, step):
                yield self.convert(batch.slice(start, step))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of Spark's as rows, or a kind of `InvalidInput` that names the id."""
        columns = list(batch.columns)
        place = self.names.index(ID)
        if pa.types.is_decimal(columns[place].type):
            columns[place] = _whole(columns[place])
        if self.kind == DELETE:
            return convert_deletes(columns[place], self.schema)[0]
        fields = [
            pa.field(name, column.type, metadata=_JSON_TEXT if name in self.texts else None)
            for name, column in zip(self.names, columns, strict=True)
        ]
        named = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return convert_rows(named, self.schema, kind=self.kind, infer=False)[0]


def _whole(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.uint64())
    except pa.ArrowInvalid:
        for value in column.to_pylist():
            if value is not None and not 0 <= value < 2**64:
                raise InvalidId(f"the id {value} is not from 0 to 2**64 - 1") from None
        raise


def plan_incoming(
    struct: StructType,
    schema: Schema,
    *,
    id_column: str = ID,
    declared: Schema | None = None,
    dimensions: Mapping[str, int | None] | None = None,
    kind: int = UPSERT,
) -> Incoming:
    """Check a DataFrame's columns against a namespace's schema, before any row is looked at.

    `dimensions` are those of the vectors that `open_vectors` names. Raises `InvalidInput` or one
    of its children, naming the column and what to do about it.
    """
    if declared is not None:
        schema = schema.extended(declared.attributes, declared.id_kind)
    names = struct.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInput(f"the DataFrame has two columns {twice!r}")
    if id_column not in names:
        raise InvalidId(_no_column("id", id_column, names))
    id_kind = _id_kind(id_column, struct[id_column].dataType)
    if schema.id_kind and schema.id_kind != id_kind:
        raise InvalidId(
            f"ids of this namespace are {schema.id_kind}, and column {id_column!r} is"
            f" {struct[id_column].dataType.simpleString()}"
        )
    if kind == DELETE:
        # Whatever else there is, in columns of any type, is not looked at.
        called = [ID if name == id_column else f"\0{name}" for name in names]
        return Incoming(Schema(id_kind, schema.attributes), tuple(called), frozenset(), kind)
    attributes: dict[str, AttributeType] = {}
    texts: set[str] = set()
    called = []
    for field in struct.fields:
        if field.name == id_column:
            called.append(ID)
            continue
        name = check_attribute_name(field.name)
        called.append(name)
        known = schema.attributes.get(name)
        if known is None or known.is_open:
            asked = _asked_for(name, field.dataType, (dimensions or {}).get(name))
            both = asked if known is None else settled(known, asked)
            if both is None:
                raise SchemaConflict(f"attribute {name!r} is {known}, and the column is {asked}")
            attributes[name] = known = both
        else:
            _check_fit(name, field.dataType, known)
        if known.family == "json" and isinstance(field.dataType, StringType):
            texts.add(name)
    return Incoming(schema.extended(attributes, id_kind), tuple(called), frozenset(texts), kind)


def open_vectors(struct: StructType, schema: Schema, declared: Schema | None = None) -> list[str]:
    """The columns of float arrays whose dimension no schema says."""
    types = {**schema.attributes, **(declared.attributes if declared is not None else {})}
    known = {name for name, kind in types.items() if not kind.is_open}
    return [
        field.name
        for field in struct.fields
        if field.name not in known and _is_vector(field.dataType)
    ]


def column_named(what: str, name: str, names: list[str]) -> str:
    """The name, or `InvalidInput` if no column has it."""
    if name not in names:
        raise InvalidInput(_no_column(what, name, names))
    return name


def _no_column(what: str, name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(map(repr, names))}"
    return f"the DataFrame has no {what} column {name!r}; {hint}"


def _id_kind(name: str, given: DataType) -> str:
    if isinstance(given, StringType):
        return STRING_IDS
    if isinstance(given, _INTEGERS):
        return INTEGER_IDS
    if isinstance(given, DecimalType) and given.scale == 0 and given.precision <= _ID_DIGITS:
        return INTEGER_IDS
    raise InvalidId(
        f"column {name!r} is {given.simpleString()}; ids are strings or integers, so cast it"
    )


def _is_vector(given: DataType) -> bool:
    return isinstance(given, ArrayType) and isinstance(given.elementType, FloatType)


def _scalar(given: DataType) -> str | None:
    return "string" if isinstance(given, StringType) else _SCALARS.get(type(given))


def _asked_for(name: str, given: DataType, dimension: int | None) -> AttributeType:
    """The attribute type that a Spark type asks for."""
    if isinstance(given, NullType):
        return NULL
    scalar = _scalar(given)
    if scalar is not None:
        return parse_type(scalar)
    if isinstance(given, ArrayType):
        if _is_vector(given):
            if dimension is None:
                raise SchemaConflict(
                    f"column {name!r} is array<float>, and its dimension is not known: declare it"
                    f' in the schema, as in "{name} vector<float32, 128>" or "{name} list<float64>"'
                )
            return vector(dimension)
        element = _scalar(given.elementType)
        if element is not None:
            return parse_type(f"list<{element}>")
        if isinstance(given.elementType, NullType):
            return EMPTY_LIST
    if isinstance(given, ArrayType | StructType | MapType):
        _check_json(name, given, "")
        return JSON
    raise _unsupported(name, given)


def _check_fit(name: str, given: DataType, known: AttributeType) -> None:
    """Refuse a Spark type whose values a known attribute cannot take."""
    if isinstance(given, NullType):
        return
    if known.family == "json":
        _check_json(name, given, "")
        return
    fits = False
    if known.family == "scalar":
        fits = _scalar_fits(_scalar(given), known.element)
    elif isinstance(given, ArrayType):
        element = _scalar(given.elementType)
        if known.family == "vector":
            fits = element in ("int64", "float64")
        else:
            fits = isinstance(given.elementType, NullType) or _scalar_fits(element, known.element)
    if not fits:
        if _scalar(given) is None and not isinstance(given, ArrayType | StructType | MapType):
            raise _unsupported(name, given)
        raise SchemaConflict(
            f"attribute {name!r} is {known}, and the column is {given.simpleString()}"
        )


def _scalar_fits(given: str | None, known: str) -> bool:
    return given == known or (given == "int64" and known == "float64")


def _check_json(name: str, given: DataType, inside: str) -> None:
    """Refuse what JSON cannot hold, however deep it lies."""
    if isinstance(given, StructType):
        for field in given.fields:
            _check_json(name, field.dataType, f" (in {field.name!r})")
    elif isinstance(given, ArrayType):
        _check_json(name, given.elementType, inside or " (in an array)")
    elif isinstance(given, MapType):
        if not isinstance(given.keyType, StringType):
            raise SchemaConflict(
                f"column {name!r} has a map with {given.keyType.simpleString()} keys{inside}, and"
                " keys of JSON are strings"
            )
        _check_json(name, given.valueType, inside or " (in a map)")
    elif not isinstance(given, NullType) and _scalar(given) in (None, "bytes", "timestamp"):
        raise SchemaConflict(
            f"column {name!r} has a {given.simpleString()}{inside}, which JSON cannot hold: cast"
            " it to a string, or pass the column through to_json()"
        )


def _unsupported(name: str, given: DataType) -> SchemaConflict:
    hint = "cast it to a string or a number"
    if isinstance(given, TimestampNTZType):
        hint = "it has no time zone, so cast it to timestamp"
    elif isinstance(given, DecimalType):
        hint = "cast it to double, bigint or string"
    elif isinstance(given, VariantType):
        hint = "pass it through to_json(), and declare the attribute as json"
    return SchemaConflict(
        f"column {name!r} is {given.simpleString()}, which no attribute can hold: {hint}"
    )

"""DataFrames made ready: which columns go in, under which names, and how many tasks take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reef.data.rows import DELETE
from reef.data.schema import Schema
from reef.errors import SchemaConflict
from reef.spark.executor import parallelism
from reef.spark.failures import spark_errors
from reef.spark.incoming import column_named, open_vectors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PARTITION_BYTES = 256 * 1024 * 1024
_SMALL_PARTITION_BYTES = 8 * 1024 * 1024
_MOST_PARTITIONS = 10_000


def settled_columns(
    df: DataFrame,
    known: Schema,
    declared: Schema,
    id_column: str,
    kind: int,
    keep: Sequence[str] = (),
) -> tuple[DataFrame, dict[str, int | None]]:
    """The columns that go in, and the dimensions of their vectors as far as no schema says them.

    Of a deletion that is the id alone; vectors that are null in all rows are left out. What is
    in `keep` stays.
    """
    column_named("id", id_column, df.columns)
    if kind == DELETE:
        kept = {id_column, *keep}
        return drop(df, [name for name in df.columns if name not in kept]), {}
    found = vector_dimensions(df, open_vectors(df.schema, known, declared))
    return drop(df, [name for name, dimension in found.items() if dimension is None]), found


def vector_dimensions(df: DataFrame, names: Sequence[str]) -> dict[str, int | None]:
    """The length of the first array found in each of those columns; None if all are null."""
    from pyspark.sql import functions as f

    found: dict[str, int | None] = {}
    frame, column = positions(df)
    for name in names:
        array = column[name]
        with spark_errors():
            rows = frame.where(array.isNotNull()).select(f.size(array)).limit(1).collect()
        found[name] = int(rows[0][0]) if rows else None
        if found[name] == 0:
            raise SchemaConflict(
                f"column {name!r} has an empty array, and a vector has at least one number:"
                f' declare it in the schema, as in {{"{name}": "list<float64>"}}'
            )
    return found


def drop(df: DataFrame, names: Sequence[str]) -> DataFrame:
    """The DataFrame without those columns."""
    if not names:
        return df
    frame, column = positions(df)
    return frame.select(*(column[name].alias(name) for name in df.columns if name not in names))


def positions(df: DataFrame) -> tuple[DataFrame, dict[str, Column]]:
    """The DataFrame with its columns renamed by position, and each by its old name: names that
    differ only in case, or that have dots, mean something else to Spark."""
    from pyspark.sql import functions as f

    numbered = df.toDF(*(f"c{place}" for place in range(len(df.columns))))
    return numbered, {name: f.col(f"c{place}") for place, name in enumerate(df.columns)}


def by_bytes(df: DataFrame, column: Mapping[str, Column], name: str) -> Column:
    """A column to sort by; text by its bytes, whatever collation it has."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    kind = df.schema[name].dataType
    if isinstance(kind, StringType) and kind.collation != "UTF8_BINARY":
        return f.collate(column[name], "UTF8_BINARY")
    return column[name]


def partition_count(df: DataFrame) -> int:
    """How many tasks a load has: enough for its size, and for all cores unless it is small."""
    cores = parallelism(df.sparkSession)
    size = _estimated_bytes(df)
    if size is None:
        return cores
    few = max(1, min(cores, -(-size // _SMALL_PARTITION_BYTES)))
    many = -(-size // _PARTITION_BYTES)
    if many > few:
        many = -(-many // cores) * cores
    return max(few, min(many, _MOST_PARTITIONS))


def _estimated_bytes(df: DataFrame) -> int | None:
    """What Spark's optimizer expects; None where it has no idea, or does not tell."""
    try:
        plan = df._jdf.queryExecution().optimizedPlan()  # type: ignore[operator]
        size = int(str(plan.stats().sizeInBytes()))
    except Exception:
        return None
    return size if size < 1 << 50 else None

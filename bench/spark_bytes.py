"""How many bytes a filtered read through Spark fetches, counted where its tasks fetch them."""

from __future__ import annotations

from reef.spark import reading
from reef.spark.bucket import bucket_at
from reef.spark.reading import Asked, PushingReader
from reef.store import CountingStore

Between = tuple[str, str | int, str | int]
"""A column, and the values from and up to which it is wanted."""


def bytes_read(bucket: str, namespace: str, wanted: Between) -> tuple[int, int, int]:
    """The bytes that tasks fetch, those of the row groups that can match with the tails of their
    segments, and those of all segments. The plan and the reading are what Spark calls, in this
    process."""
    from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

    database = bucket_at(bucket).database(create=False)
    inner = database.store
    counting = CountingStore(inner)
    database.store = counting
    column, low, high = wanted
    # What was read before must not be in memory.
    reading._state.cache_clear()
    try:
        options = {"bucket": bucket, "namespace": namespace, "pushdown": "true", "splits": "4"}
        asked = Asked(options)
        _, view = asked.open()
        needed = 0
        for run in view.runs:
            for reader in run.readers:
                groups = 0
                for group in reader.groups():
                    if column == "id":
                        first, last = reader.group_bounds(group)
                    else:
                        about = reader.statistics(group)[column]
                        first, last = about.minimum, about.maximum  # type: ignore[assignment]
                    if first < high and last >= low:  # type: ignore[operator]
                        groups += reader.group_bytes(group)
                # Ids are bounded by the manifest; of other columns only the tails tell.
                needed += groups + reader.info.tail * (groups > 0 or column != "id")
        reader_of_spark = PushingReader(options, asked.spark_schema(view.schema))
        filters = [GreaterThanOrEqual((column,), low), LessThan((column,), high)]
        list(reader_of_spark.pushFilters(filters))
        partitions = reader_of_spark.partitions()
        before = counting.counts()
        for partition in partitions:
            for _ in reader_of_spark.read(partition):
                pass
        fetched = (counting.counts() - before).bytes_read
    finally:
        database.store = inner
    return fetched, needed, sum(info.size for info in view.segments)

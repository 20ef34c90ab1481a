"""The data source that Spark knows as "reef"."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

_TRUE = ("true", "1", "yes")


class ReefDataSource(DataSource):
    """A namespace of a bucket, read and written with the options `bucket` and `namespace`.

    What each way of reading and writing does, and its other options, are in `reef.spark.reading`,
    `reef.spark.feed.stream` and `reef.spark.writing`.
    """

    # Whether Spark asked for the columns; if not, somebody chose them.
    _is_whole = False

    @classmethod
    def name(cls) -> str:
        """What comes after `format`."""
        return "reef"

    @property
    def _reads_feed(self) -> bool:
        return str(self.options.get("readChangeFeed", "")).strip().lower() in _TRUE

    def schema(self) -> StructType:
        """The columns of the namespace in the state asked for, or those of its change feed."""
        from reef.spark.feed.stream import KNOWN as KNOWN_OF_FEED
        from reef.spark.feed.stream import feed_schema
        from reef.spark.reading import KNOWN, Asked

        # Whether this is for a stream is not said here; what reads it knows its own options.
        asked = Asked(self.options, (*KNOWN, *KNOWN_OF_FEED))
        _, view = asked.open()
        self._is_whole = True
        if self._reads_feed:
            return feed_schema(view.schema, unsigned_ids=asked.unsigned_ids)
        return asked.spark_schema(view.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads one state of the namespace, or its change feed."""
        if self._reads_feed:
            from reef.spark.feed.stream import FeedReader

            return FeedReader(self.options, schema)
        from reef.spark.reading import reader_of

        return reader_of(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Follows the change feed."""
        from reef.spark.feed.stream import ReefStreamReader

        return ReefStreamReader(self.options, schema, is_whole=self._is_whole)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes rows as one commit."""
        from reef.spark.writing import ReefWriter

        return ReefWriter(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Writes each batch of a stream as one commit, once."""
        from reef.spark.writing import ReefStreamWriter

        return ReefStreamWriter(self.options, schema, overwrite)

"""Exporting on a cluster: each task writes one Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from reef.data.filter import Expression
from reef.documents.batches import parsed_filter
from reef.documents.export import FILE_BYTES, Exported, destination_at, export_part
from reef.documents.export import export as export_view
from reef.documents.reading import check_columns
from reef.lsm.options import Options
from reef.lsm.read.history import view_at
from reef.spark.executor import Progress
from reef.spark.maintenance import Address, Storage, at_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def export(
    bucket: Address,
    namespace: str,
    destination: Address,
    *,
    columns: Sequence[str] | None = None,
    filter: Expression | str | None = None,
    generation: int | None = None,
    lsn: int | None = None,
    time: datetime | None = None,
    overwrite: bool = False,
    file_bytes: int = FILE_BYTES,
    session: SparkSession | None = None,
    storage: Storage | None = None,
    destination_storage: Mapping[str, str] | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the documents, of now or of the past, as Parquet files to a folder or bucket, which
    must be empty unless `overwrite`. It is complete when `_SUCCESS` is there."""
    with at_work(bucket, namespace, session, storage, options, progress) as (tree, executor):
        view = view_at(tree, generation=generation, lsn=lsn, time=time)
        return export_view(
            view,
            destination_at(destination, destination_storage),
            lambda parts: executor(export_part, parts, "exporting"),
            columns=None if columns is None else tuple(check_columns(columns, view.schema)),
            filter=parsed_filter(filter, view.schema),
            overwrite=overwrite,
            parts=executor.size,
            file_bytes=file_bytes,
        )

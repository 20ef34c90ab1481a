"""A bucket that stays in this process, for what tasks and commits do without Spark."""

from __future__ import annotations

from reef.documents.database import Database
from reef.spark.bucket import Bucket


class HeldBucket(Bucket):
    """Opens the database that it was given."""

    def __init__(self, database: Database) -> None:
        super().__init__("memory://")
        object.__setattr__(self, "held", database)

    def database(self, *, create: bool = True) -> Database:
        held: Database = self.__dict__["held"]
        return held

"""Spark looks for packages named so, and registers their `DefaultSource`: the format "reef"."""

from __future__ import annotations

from reef.spark.source import ReefDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""Rows of the log as a run: each id once, patches applied to what lies below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from reef.lsm.gathered import Gathered
from reef.lsm.read.combine import Combiner, apply_patches
from reef.lsm.read.lookup import versions
from reef.lsm.read.merge import RowFilter, Source, merge
from reef.lsm.read.view import Run


def resolved(
    gathered: Gathered,
    below: Sequence[Run],
    *,
    combine: Combiner = apply_patches,
    filters: Sequence[RowFilter] = (),
) -> Iterator[pa.RecordBatch]:
    """The gathered rows in id order, tombstones too, less what the filters leave out.

    What the runs below hold of patched ids is a source of the merge like the log itself, so of
    documents that are patched no more are in memory than of any others.
    """
    sources: list[Source] = [gathered.slices()]
    if len(gathered.patched):
        sources += [versions(run, gathered.patched) for run in below]
    return merge(sources, keep_tombstones=True, combine=combine, filters=filters)

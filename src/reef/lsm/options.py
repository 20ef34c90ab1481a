"""What one process may choose for itself, without the others having to agree."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """How a process works on a tree. Bytes are bytes, times are seconds.

    Folding starts when the unfolded log passes `fold_bytes`, `fold_objects` or, of segments that
    it names, `fold_segments`; it takes at most `fold_bytes` of log at a time. A batch of
    `large_batch_bytes` or more is uploaded as segments, one over `batch_bytes` is refused, and
    small ones are committed together up to `group_bytes`. A commit that finds more than
    `backlog_bytes` or `backlog_objects` unfolded waits up to `backlog_wait` for folding to catch up
    when there is a worker, and is refused with `Backpressure` otherwise. A compaction merges
    `fan_in` runs of a level at least, `most_inputs` at most, into segments of about
    `segment_bytes`. A writer collects garbage every `collect_seconds` when there is any. Readers
    look at the bucket again when what they know is older than `staleness`.
    """

    fold_bytes: int = 64 * MEBIBYTE
    fold_objects: int = 1_000
    fold_segments: int = 8
    backlog_bytes: int = 256 * MEBIBYTE
    backlog_objects: int = 10_000
    backlog_wait: float = 30.0
    segment_bytes: int = 64 * MEBIBYTE
    fan_in: int = 4
    most_inputs: int = 12
    cache_bytes: int = 256 * MEBIBYTE
    batch_bytes: int = 256 * MEBIBYTE
    large_batch_bytes: int = 4 * MEBIBYTE
    group_bytes: int = 16 * MEBIBYTE
    staleness: float = 1.0
    collect_seconds: float = 600.0

"""What is known of one column of a block without reading it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds and counts of one column over the rows of one block.

    `minimum` and `maximum` bound every valid value that is not NaN, and may be looser than the
    data (truncated strings); None means not known. They are of the attribute's Python type: a
    float64 column has float bounds, which is how a reader knows that NaN may hide behind them;
    timestamps are aware datetimes or integer microseconds since 1970. Every row of the block is
    counted once, in `valid` (NaN included), `nulls` (explicit nulls) or `absent`. A column that
    a block's mapping does not name is absent in every row.
    """

    minimum: object | None
    maximum: object | None
    valid: int
    nulls: int
    absent: int

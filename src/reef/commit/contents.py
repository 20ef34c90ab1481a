"""What is to go into a log object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reef.log import BatchHeader
from reef.store.contract import Buffer


@dataclass(slots=True)
class Contents:
    """The batches that the header names and the records, each in parts. `applied` is what the
    state takes in for them, if whoever encoded them has it at hand; None: they are decoded."""

    batches: Sequence[BatchHeader] = ()
    records: Sequence[Sequence[Buffer]] = ()
    applied: Any = None

"""The log: one immutable object a commit, ordered by put-if-absent.

Owns the RFWAL1 codec, the naming of slots, and the append that knows a lost answer from a
lost race. Relies on the store alone; what the records mean is the business of those above.
The invariant: a slot is won once, by one writer, and an append that returns has won it.
"""

from reef.log.codec import BatchHeader, LogEntry, LogHeader, decode, encode
from reef.log.log import Lineage, Log
from reef.log.naming import WAL, Bucketed, Flat, Naming
from reef.log.tail import LogTail

__all__ = [
    "WAL",
    "BatchHeader",
    "Bucketed",
    "Flat",
    "Lineage",
    "Log",
    "LogEntry",
    "LogHeader",
    "LogTail",
    "Naming",
    "decode",
    "encode",
]

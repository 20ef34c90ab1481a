"""The log: one immutable object a commit, ordered by put-if-absent.

Owns the RFWAL1 codec, the naming of slots, and the append that knows a lost answer from a
lost race. Relies on the store alone; what the records mean is the business of those above.
The invariant: a slot is won once, by one writer, and an append that returns has won it.
"""

from reef.log.codec import BatchHeader, LogEntry, LogHeader, decode, encode
from reef.log.log import Log
from reef.log.tail import LogTail

__all__ = ["BatchHeader", "Log", "LogEntry", "LogHeader", "LogTail", "decode", "encode"]

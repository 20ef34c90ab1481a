"""Commits: a state that follows a root and a log, and everybody who adds to it.

Owns the follower, which recovers and refreshes a state of any kind; winning a slot, for writers,
guests and repairs alike; and the group commit, over requests and answers of any kind. Relies on the
log and the register; what a root says and what records mean is the business of the faces above,
which derive their follower and their writer from the ones here. The invariant: what is told as
committed is in a slot that everybody reads, once, and what is told as refused is in none.
"""

from reef.commit.contents import Contents
from reef.commit.follower import Follower, State
from reef.commit.group import Ticket
from reef.commit.guest import append_as_guest
from reef.commit.slot import give_up, plug, win
from reef.commit.writer import Writer

__all__ = [
    "Contents",
    "Follower",
    "State",
    "Ticket",
    "Writer",
    "append_as_guest",
    "give_up",
    "plug",
    "win",
]

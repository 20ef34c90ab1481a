"""A channel between a process and the witness: one JSON value a line, in both directions.

What was sent is in the hands of the kernel, and survives its sender. A line that a dying process
did not finish is dropped.
"""

from __future__ import annotations

import socket
from threading import Lock
from typing import Any

import msgspec

_PIECE = 1 << 16


class Channel:
    """One end. Sending is safe from many threads, receiving from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._lock = Lock()
        self._rest = b""
        self._lines: list[bytes] = []

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Hand a message over; it arrives even if this process dies right afterwards."""
        line = msgspec.json.encode(message) + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def receive(self) -> Any:
        """The next message; `EOFError` when the other end is gone."""
        while not self._lines:
            self._read()
        return msgspec.json.decode(self._lines.pop(0))

    def received(self) -> list[Any]:
        """What has arrived, at least one message or a part of one; `EOFError` as above."""
        if not self._lines:
            self._read()
        lines, self._lines = self._lines, []
        return [msgspec.json.decode(line) for line in lines]

    def _read(self) -> None:
        try:
            piece = self._socket.recv(_PIECE)
        except ConnectionError:
            piece = b""
        if not piece:
            raise EOFError
        *whole, self._rest = (self._rest + piece).split(b"\n")
        self._lines += whole

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()


def channel_pair() -> tuple[Channel, socket.socket]:
    """This process's end, and the other's to give away."""
    mine, theirs = socket.socketpair()
    return Channel(mine), theirs

"""The nursery: a process that has imported everything and gives birth by fork.

Starting Python and importing Arrow takes longer than most victims live. The nursery opens no store
and starts no thread, so that its children may fork off it safely; it dies with the process that
started it, and its children die with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from torture.murder.channel import Channel, channel_pair
from torture.murder.life import Life


class Nursery:
    """The other end of it: spawns victims and says how they ended."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._socket, theirs = socket.socketpair()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "OPENBLAS_NUM_THREADS": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        with theirs, open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torture.murder.nursery", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment,
                pass_fds=[theirs.fileno()],
            )

    def spawn(self, life: Life) -> tuple[int, Channel]:
        """Start a victim; its process id, and the channel to it."""
        mine, theirs = channel_pair()
        with theirs:
            order = b"S" + life.encode()
            socket.send_fds(self._socket, [f"{len(order):08d}".encode()], [theirs.fileno()])
            self._socket.sendall(order)
        return int(self._answer()), mine

    def reap(self, process: int) -> int:
        """Wait until a victim is gone: its exit code, negative if a signal ended it."""
        order = f"R{process}".encode()
        self._socket.sendall(f"{len(order):08d}".encode() + order)
        return int(self._answer())

    def _answer(self) -> bytes:
        answer = b""
        with suppress(ConnectionError):
            answer = self._socket.recv(16, socket.MSG_WAITALL)
        if len(answer) < 16:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the nursery is gone:\n{tail}")
        return answer

    def close(self) -> None:
        """End it, and whoever is still alive in it."""
        self._socket.close()
        self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _die_with_parent() -> None:
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _serve(control: socket.socket) -> None:
    children: set[int] = set()
    while True:
        head, files, _, _ = socket.recv_fds(control, 8, 1)
        while 0 < len(head) < 8:
            head += control.recv(8 - len(head))
        order = control.recv(int(head), socket.MSG_WAITALL) if head else b""
        if not order:
            break
        if order[:1] == b"S":
            answer = os.fork()
            if not answer:
                control.close()
                _live(order[1:], socket.socket(fileno=files[0]))
            os.close(files[0])
            children.add(answer)
        else:
            process = int(order[1:])
            _, status = os.waitpid(process, 0)
            children.discard(process)
            answer = os.waitstatus_to_exitcode(status)
        control.sendall(f"{answer:16d}".encode())
    for process in children:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _live(order: bytes, end: socket.socket) -> None:
    from torture.murder.victim import live

    code = 1
    try:
        _die_with_parent()
        channel = Channel(end)
        try:
            live(Life.decode(order), channel)
            code = 0
        except (BrokenPipeError, EOFError):
            code = 0
        except BaseException:
            traceback.print_exc()
            with suppress(OSError):
                channel.send({"told": "broken", "what": traceback.format_exc()})
    finally:
        os._exit(code)


def _warm_up() -> None:
    """Do a little of everything, in memory: libraries load parts of themselves when first used."""
    import reef
    from reef.store import MemoryStore
    from torture.murder.victim import read

    with reef.connect(MemoryStore()) as database, database.namespace("n", maintain=False) as ns:
        row = {"id": "a/00", "lane": "a", "batch": 1, "value": 1, "origin": 1}
        for number in range(3):
            ns.write(upserts=[{**row, "batch": number}], idempotency_key=f"{number}")
            ns.write(patches=[{"id": "a/00", "value": number}], delete_where="value < 0")
            ns.load([row])
            ns.index()
        read(ns, "scan", None)
        read(ns, "get", "a")
        ns.compact(full=True)
        ns.gc(apply=True)
        ns.verify(deep=True)


if __name__ == "__main__":
    _warm_up()
    _die_with_parent()
    _serve(socket.socket(fileno=int(sys.argv[1])))

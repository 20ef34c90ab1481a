"""More S3 servers for tests: moto's, and some that do not keep conditions, all in one process.

Run as a program, it serves each of the kinds named on its command line (`kind=port`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from support.seaweed import die_with_parent, free_ports

BUCKET = "reef-tests"
KINDS = ("whole", "overwriting", "unable", "refusing")
"""What each does with a conditional write:

whole          keeps it. Requests are served one after the other, since moto looks and writes in
               two steps, and its own server lets other threads come in between
overwriting    ignores the condition, as `rclone serve s3` and s3rver do
unable         answers 501 NotImplemented
refusing       answers 400 InvalidArgument
"""

Environ = dict[str, Any]
Application = Callable[[Environ, Any], Iterable[bytes]]

_START_SECONDS = 60.0


class MotoServers:
    """The servers of all kinds. They end with the process that started them."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._log = Path(folder) / "moto.log"
        self._ports = dict(zip(KINDS, free_ports(len(KINDS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    credentials = {  # noqa: RUF012
        "access_key_id": "reef",
        "secret_access_key": "reef-secret",
        "region": "us-east-1",
    }

    def endpoint(self, kind: str) -> str:
        """The address that S3 clients speak to."""
        return f"http://127.0.0.1:{self._ports[kind]}"

    def url(self, kind: str, prefix: str) -> str:
        """What `reef.connect` takes, for that prefix of the bucket."""
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint(kind)}"

    def requests(self, kind: str) -> list[str]:
        """The requests that a server has answered so far: method, path and status."""
        with urlopen(f"{self.endpoint(kind)}/requests-served", timeout=60) as answer:
            return answer.read().decode().splitlines()

    def __enter__(self) -> MotoServers:
        arguments = [f"{kind}={port}" for kind, port in self._ports.items()]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
                preexec_fn=die_with_parent,
            )
        deadline = time.monotonic() + _START_SECONDS
        for kind in KINDS:
            self._wait_for(kind, deadline)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _wait_for(self, kind: str, deadline: float) -> None:
        while True:
            try:
                with urlopen(Request(f"{self.endpoint(kind)}/{BUCKET}", method="PUT"), timeout=10):
                    return
            except HTTPError:  # another kind's bucket of that name: they are one to moto
                return
            except (URLError, OSError):
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    tail = self._log.read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"moto did not start:\n{tail}") from None
                time.sleep(0.05)


def wrapped(kind: str, moto: Application) -> Application:
    """The application of a kind, which also tells what it was asked."""
    served: list[str] = []
    lock = Lock()

    def application(environ: Environ, start: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/requests-served":
            body = "\n".join(served).encode()
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]

        def note(status: str, headers: Any, *rest: Any) -> Any:
            served.append(f"{environ['REQUEST_METHOD']} {path} {status[:3]}")
            return start(status, headers, *rest)

        conditions = [name for name in ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH") if name in environ]
        if environ["REQUEST_METHOD"] == "PUT" and conditions:
            if kind == "unable":
                return _error(note, environ, "501 Not Implemented", "NotImplemented")
            if kind == "refusing":
                return _error(note, environ, "400 Bad Request", "InvalidArgument")
            if kind == "overwriting":
                for name in conditions:
                    del environ[name]
        with lock:
            return list(moto(environ, note))

    return application


def _error(start: Any, environ: Environ, status: str, code: str) -> list[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = f"<Error><Code>{code}</Code></Error>".encode()
    start(status, [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
    return [body]


def serve(kinds: dict[str, int]) -> None:
    """Serve each kind on its port, for ever."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            pass

    moto = DomainDispatcherApplication(create_backend_app)
    threads = [
        Thread(
            target=make_server(
                "127.0.0.1", port, wrapped(kind, moto), threaded=True, request_handler=Handler
            ).serve_forever
        )
        for kind, port in kinds.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    pairs = (argument.split("=") for argument in sys.argv[1:])
    serve({kind: int(port) for kind, port in pairs})

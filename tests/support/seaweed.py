"""A real S3 server for tests and benchmarks: SeaweedFS, in a folder, on ports of its own."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

BUCKET = "reef-tests"
ACCESS_KEY = "reef"
SECRET_KEY = "reef-secret"

# Each option names one port that the server opens; a grpc port left out would be taken at a
# fixed distance from its http port, and could collide.
_PORT_OPTIONS = (
    "s3.port",
    "s3.port.grpc",
    "master.port",
    "master.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "admin.port",
    "admin.port.grpc",
)
_START_SECONDS = 60.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def die_with_parent() -> None:
    """In a child before it becomes another program: end when the parent ends (Linux)."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


class SeaweedServer:
    """One server. It ends with the process that started it, even if that one is killed (Linux)."""

    def __init__(self, folder: str | os.PathLike[str], *, bucket: str = BUCKET) -> None:
        self.folder = Path(folder)
        self.bucket = bucket
        self.ports = dict(zip(_PORT_OPTIONS, free_ports(len(_PORT_OPTIONS)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """The address that S3 clients speak to."""
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    @property
    def credentials(self) -> dict[str, str]:
        """The environment variables that S3 clients read."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str = "") -> str:
        """What `reef.connect` takes, for that prefix of the bucket."""
        path = f"{self.bucket}/{prefix}" if prefix else self.bucket
        return f"s3://{path}?endpoint={self.endpoint}"

    def start(self) -> SeaweedServer:
        """Start it, and wait until it answers S3 requests."""
        command = shutil.which("weed") or str(Path(sys.executable).with_name("weed"))
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [
            command,
            "-logtostderr=true",
            "mini",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-admin.ui=false",
            "-webdav=false",
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            *(f"-{option}={port}" for option, port in self.ports.items()),
        ]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.credentials, "S3_BUCKET": self.bucket},
                preexec_fn=die_with_parent,
            )
        self._wait_until_ready()
        return self

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> SeaweedServer:
        """Start it again on the same folder and ports."""
        self.stop()
        return self.start()

    def __enter__(self) -> SeaweedServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_ready(self) -> None:
        import obstore
        from obstore.store import S3Store

        store = S3Store(
            self.bucket,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True, "timeout": "2s"},
            retry_config={"max_retries": 0},
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with urlopen(self.endpoint, timeout=1):
                    pass
            except HTTPError:
                pass
            except (URLError, OSError):
                self._pause(deadline)
                continue
            try:
                obstore.put(store, "readiness-probe", b"ready")
                obstore.delete(store, "readiness-probe")
                return
            except Exception:
                self._pause(deadline)

    def _pause(self, deadline: float) -> None:
        process = self._process
        if process is None or process.poll() is not None or time.monotonic() > deadline:
            tail = (self.folder / "server.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"SeaweedFS did not start:\n{tail}")
        time.sleep(0.05)

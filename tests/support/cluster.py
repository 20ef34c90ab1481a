"""A real Spark cluster for tests: a master and workers, each a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from reef.spark.java import find_java
from support.seaweed import free_ports

_START_SECONDS = 90.0
_END_SECONDS = 20.0


def _die_with_parent() -> None:
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)


def _session_members(leader: int) -> list[int]:
    """The processes of a session that run."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,sess=,stat="], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return [int(pid) for pid, sess, stat in rows if sess == str(leader) and stat[0] != "Z"]


class Cluster:
    """One master and some workers, of one core each. They end with the process that started
    them, even if that one is killed (Linux); logs stay in `folder`."""

    def __init__(
        self, folder: str | os.PathLike[str], *, workers: int = 2, memory: str = "1g"
    ) -> None:
        self.folder = Path(folder)
        self.memory = memory
        self._wanted = workers
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._port, self._web_port = free_ports(2)

    @property
    def master_url(self) -> str:
        """What a session takes as its master."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def settings(self) -> dict[str, str]:
        """What a session on this cluster needs set: executors that fit the workers."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.cores": "1",
            "spark.executor.memory": "600m",
            # There is a second driver at times, and one that waits holds what it was given.
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.executorIdleTimeout": "1s",
            "spark.dynamicAllocation.maxExecutors": "2",
        }

    def start(self) -> Cluster:
        """Start the master and the workers, and wait until all have registered."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._master = self._launch(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(self._port)),
                *("--webui-port", str(self._web_port)),
            )
            # A worker that finds no master asks again, so there is no need to wait in between.
            for _ in range(self._wanted):
                self._launch_worker()
            self._wait_for(len(self._workers))
        except BaseException:
            self.stop()
            raise
        return self

    def start_worker(self) -> int:
        """Start one more worker, wait until it has registered, and return its number."""
        alive = len(self.alive_workers())
        number = self._launch_worker()
        self._wait_for(alive + 1)
        return number

    def kill_worker(self, number: int) -> None:
        """End a worker, its executors and their Pythons as a power cut would."""
        self._kill(self._workers[number])

    @property
    def newest_worker(self) -> int:
        """The number of the worker that was started last."""
        return len(self._workers) - 1

    def alive_workers(self) -> list[dict[str, Any]]:
        """The workers that the master takes for alive, as it describes them."""
        workers = self.status()["workers"]
        return [worker for worker in workers if worker["state"] == "ALIVE"]

    def status(self) -> dict[str, Any]:
        """What the master says of itself: workers, applications, cores."""
        with urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def stop(self) -> None:
        """End every process of the cluster."""
        processes = [*self._workers, *([self._master] if self._master else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            self._kill(process)
        self._workers, self._master = [], None

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch_worker(self) -> int:
        number = len(self._workers)
        worker = self._launch(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *("--cores", "1", "--memory", self.memory),
            *("--work-dir", str(self.folder / f"work-{number}")),
            self.master_url,
        )
        self._workers.append(worker)
        return number

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self.folder / f"{name}.log", "ab") as log:
            # Executors and their Pythons stay in the session, though in groups of their own.
            return subprocess.Popen(
                [str(home / "bin" / "spark-class"), main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def _wait_for(self, count: int) -> None:
        self._wait(lambda: len(self.alive_workers()) >= count, f"{count} workers to register")

    def _wait(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with suppress(URLError, ConnectionError, TimeoutError):
                if happened():
                    return
            time.sleep(0.1)
        raise RuntimeError(f"waited {_START_SECONDS:.0f} s for {what}; logs are in {self.folder}")

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        while members := _session_members(process.pid):
            for member in members:
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            process.wait()

"""Running driver programs in processes of their own, on a cluster or in local mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_PATIENCE = 150.0


class Driver:
    """A driver that takes one order after the other; it starts while others do their work."""

    def __init__(self, log: Path, python_path: str, given: dict[str, Any]) -> None:
        self._log = log
        path = os.pathsep.join([str(HERE), python_path])
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "drivers.py"), json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
                text=True,
            )
        self._ready = False

    def start(self, name: str, order: dict[str, Any]) -> None:
        """Give an order."""
        if not self._ready:
            assert self._line() == "ready"
            self._ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, order]) + "\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """What came of the order given last."""
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            # Anything else that a library has to say.
            if line.startswith(("{", "ready")):
                return line.strip()
        raise AssertionError(self._log.read_text()[-4000:])

    def was_killed(self) -> bool:
        """Whether it ended by a signal, once it has ended."""
        self._process.communicate(timeout=_PATIENCE)
        return self._process.returncode < 0

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.communicate()

    def check(self) -> None:
        """Fail if it has ended."""
        assert self._process.poll() is None, self._log.read_text()[-4000:]


def wait_until(happened: Callable[[], object], what: str, driver: Driver) -> None:
    """Look again and again, for a while."""
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        driver.check()
        time.sleep(0.05)

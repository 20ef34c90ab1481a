"""Running the command line in tests: in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from reef.cli.main import cli

SOURCE = str(Path(__file__).parents[2] / "src")


@dataclass(frozen=True)
class Answer:
    """What a command said, and its exit code."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """`reef` on one bucket, in a folder for files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bucket = str(folder / "bucket")

    def run(self, *arguments: str, stdin: str | bytes | None = None) -> Answer:
        """Run in this process, with the bucket in the environment."""
        # NO_COLOR and the terminal of whoever runs the tests must not matter.
        environment = {"REEF_BUCKET": self.bucket, "NO_COLOR": "1"}
        result = CliRunner().invoke(cli, list(arguments), input=stdin, env=environment)
        return Answer(result.exit_code, result.stdout_bytes, result.stderr)

    def ok(self, *arguments: str, stdin: str | bytes | None = None) -> Answer:
        """Run, and insist that it went well."""
        answer = self.run(*arguments, stdin=stdin)
        assert answer.code == 0, answer.err
        return answer

    def spawn(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Run as a process of its own."""
        environment = {**os.environ, "PYTHONPATH": SOURCE, "REEF_BUCKET": self.bucket}
        return subprocess.Popen(
            [sys.executable, "-m", "reef.cli.main", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            **options,
        )

    def file(self, name: str, content: str | bytes = b"") -> str:
        """A file in the folder."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

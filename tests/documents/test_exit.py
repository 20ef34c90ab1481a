"""Programs that end without closing anything, in whatever way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import reef

PROGRAM = """
import os, sys, threading, time
import reef
from reef.store import FolderStore

under_way = threading.Event()

class SlowStore(FolderStore):
    "Takes its time before it hands a request over to its threads."

    def _submit(self, call):
        under_way.set()
        time.sleep(0.2)
        return super()._submit(call)

options = reef.Options(fold_objects=4, fan_in=2, most_inputs=2, collect_seconds=0.01)
database = reef.connect(SlowStore(sys.argv[1]), options=options)
ns = database.namespace("n")

def write(count):
    for number in range(count):
        ns.write(upserts=[{"id": f"{number}", "n": number}])

write(int(sys.argv[2]))
assert under_way.wait(60)
"""

ENDINGS = {
    "the end": ("", 0, ""),
    "an exception": ("raise SystemError('on purpose')", 1, "SystemError: on purpose"),
    "sys.exit": ("sys.exit(3)", 3, ""),
    "a snapshot": ("ns.snapshot(seconds=0.3)", 0, ""),
    "a fork": (
        "child = os.fork()\nif child: assert os.waitpid(child, 0)[1] == 0\nelse: ns.get('0')",
        0,
        "",
    ),
    "a thread that goes on": ("threading.Thread(target=write, args=(30,)).start()", 0, ""),
    "a closed database": ("database.close()", 0, ""),
}


@pytest.mark.parametrize(
    ("ending", "writes"), [*((ending, 5) for ending in ENDINGS), ("the end", 4), ("the end", 12)]
)
def test_a_program_that_ends_without_close_says_nothing(
    tmp_path: Path, ending: str, writes: int
) -> None:
    if "fork" in ending and not hasattr(os, "fork"):
        pytest.skip("there are no forks here")
    code, expected, said = ENDINGS[ending]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code, tmp_path / "bucket", str(writes)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    assert (said in done.stderr) if said else not done.stderr
    assert done.stderr.count("Traceback") == (1 if said else 0)
    with reef.connect(tmp_path / "bucket") as database, database.namespace("n", "r") as ns:
        assert ns.count() == (30 if "thread" in ending else writes)
        assert ns.status().wal_floor > 1, "the fold under way was given up"
        assert ns.verify(deep=True).sound

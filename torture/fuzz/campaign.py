"""Fuzzing as a campaign, and the command that repeats an input.

python -m torture.fuzz.campaign --target log --seed 7 --input 12345     one input
python -m torture.fuzz.campaign --target log --file saved.bin           one that was saved
python -m torture.fuzz.campaign --inputs 100000 [--target log]          many
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, perf_counter

import msgspec

from torture.fuzz.targets import TARGETS, input_of
from torture.fuzz.worker import PLACE, Told, Work, order
from torture.share import Failure, Share

_ROOT = Path(__file__).parents[2]
WORKER = ["-P", "-m", "torture.fuzz.worker"]
SAVED = _ROOT / "build" / "torture"
STUCK = 60.0
_MOST_FAILURES = 20


def run(share: Share) -> None:
    """Draw inputs until the share is finished; counts them under "inputs" and by target."""
    Watch(share, list(TARGETS)).run()


class Watch:
    """Keeps a worker going, and notices how it ends."""

    def __init__(self, share: Share, names: Sequence[str], most: int | None = None) -> None:
        self.share = share
        self.names = list(names)
        self.most = most
        self.seconds: Counter[str] = Counter()
        self.inputs: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self._failures = 0
        self._begun = 0

    def run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="reef-fuzz-") as folder:
            place = Path(folder) / "place"
            place.write_bytes(bytes(PLACE.size))
            while not self.share.finished() and self._failures < _MOST_FAILURES:
                if self._life(place):
                    return

    def _life(self, place: Path) -> bool:
        """One worker from start to end; whether all is done that was asked for."""
        share = self.share
        work = Work(
            self.names, share.seed, share.index, share.parts, self._begun, self.most, str(place)
        )
        worker = subprocess.Popen(
            [sys.executable, *WORKER, msgspec.json.encode(work).decode()],
            stdout=subprocess.PIPE,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "src")]),
                # Its memory is what it asks for: no pool that sets aside more.
                "ARROW_DEFAULT_MEMORY_POOL": "system",
            },
        )
        assert worker.stdout is not None
        try:
            stuck = self._listen(worker, place)
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            worker.stdout.close()
        begun, number = PLACE.unpack(place.read_bytes())
        finished = self.share.finished() and stuck is None and worker.returncode == -signal.SIGKILL
        if worker.returncode == 0 or finished:
            return True
        self._begun = begun
        if not begun:
            raise RuntimeError(f"the fuzzing process ended with {worker.returncode} at its start")
        how = stuck or f"the interpreter died of {_name(worker.returncode)}"
        self._fail(how, self._target_at(begun), number)
        return False

    def _listen(self, worker: subprocess.Popen[bytes], place: Path) -> str | None:
        """Take in what it tells until its end or the share's; what was wrong if it hangs."""
        assert worker.stdout is not None
        rest = b""
        heard = monotonic()
        begun = place.read_bytes()
        # Before its first input it has much to import.
        patience = 10 * STUCK
        while not self.share.finished():
            ready, _, _ = select.select([worker.stdout], [], [], 0.1)
            if ready:
                data = os.read(worker.stdout.fileno(), 1 << 16)
                if not data:
                    worker.wait()
                    return None
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(msgspec.json.decode(line, type=Told))
            now = place.read_bytes()
            if now != begun:
                begun, heard, patience = now, monotonic(), STUCK
            elif monotonic() - heard > patience:
                return f"it was still being read after {patience:.0f} s"
        return None

    def _take(self, told: Told) -> None:
        if told.failed:
            self._fail(told.failed, told.target, told.number)
        for name, count in told.inputs.items():
            self.share.count("inputs", count)
            self.share.count(f"{name} inputs", count)
        self.inputs.update(told.inputs)
        self.endings.update(told.endings)
        for name, seconds in told.seconds.items():
            self.seconds[name] += seconds  # type: ignore[assignment]

    def _target_at(self, begun: int) -> str:
        weights = [TARGETS[name].weight for name in self.names]
        places = order(self.names, weights, self.share.index, self.share.parts)
        for _ in range(begun - 1):
            next(places)
        return next(places)[0]

    def _fail(self, what: str, name: str, number: int) -> None:
        self._failures += 1
        saved = SAVED / f"fuzz-{name}-{self.share.seed}-{number}.bin"
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_bytes(input_of(TARGETS[name], self.share.seed, number))
        repeat = (
            f"python -m torture.fuzz.campaign --target {name}"
            f" --seed {self.share.seed} --input {number}"
        )
        self.share.fail(Failure(f"{name}: {what} (saved as {saved})", repeat))


def _name(returncode: int) -> str:
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"exit code {returncode}"


def fuzz(seed: int, inputs: int, names: Sequence[str] = (), index: int = 0) -> Figures:
    """So many inputs, in a process of their own."""
    failures: list[Failure] = []
    share = Share(index, 1, seed, lambda: False, lambda name, count: None, failures.append)
    watch = Watch(share, names or list(TARGETS), inputs)
    watch.run()
    return Figures(watch.inputs, watch.seconds, watch.endings, failures)


class Figures(msgspec.Struct):
    """What came of it."""

    inputs: Counter[str]
    seconds: Counter[str]
    endings: Counter[str]
    failures: list[Failure]


def _one(name: str, data: bytes) -> int:
    from torture.fuzz.judge import judge, limit_memory

    limit_memory()
    print(f"{len(data)} bytes: {data[:200].hex()}{'…' if len(data) > 200 else ''}", flush=True)
    try:
        TARGETS[name].read(data)
    except Exception:
        import traceback

        traceback.print_exc()
    ending, wrong = judge(TARGETS[name], data)
    print(f"{ending}: {wrong or 'as it must be'}")
    return 1 if wrong else 0


def main() -> int:
    """The command. Exits with 1 if an input broke the promise."""
    parser = argparse.ArgumentParser(prog="torture.fuzz.campaign", description=__doc__)
    parser.add_argument("--target", choices=list(TARGETS), help="only this one")
    parser.add_argument("--seed", type=int, default=0, help="which inputs")
    parser.add_argument("--input", type=int, help="read only this one, and show what happens")
    parser.add_argument("--file", type=Path, help="read this file")
    parser.add_argument("--inputs", type=int, default=100_000, help="how many")
    given = parser.parse_args()
    if given.file is not None or given.input is not None:
        if given.target is None:
            parser.error("one input needs its --target")
        if given.file is not None:
            return _one(given.target, given.file.read_bytes())
        return _one(given.target, input_of(TARGETS[given.target], given.seed, given.input))
    began = perf_counter()
    figures = fuzz(given.seed, given.inputs, [given.target] if given.target else [])
    for name, count in figures.inputs.items():
        print(f"{name:9} {count:9} inputs {count / max(figures.seconds[name], 1e-9):8.0f} a second")
    total = sum(figures.inputs.values())
    print(
        f"{total} inputs, {total / (perf_counter() - began):.0f} a second; {dict(figures.endings)}"
    )
    for failure in figures.failures:
        print(f"FAILED {failure.what}\n       {failure.repeat}")
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main())

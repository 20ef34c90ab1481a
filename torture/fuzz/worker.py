"""The process that reads the inputs: when one of them kills it, another one takes over behind it.

It is told what to do on its command line (see `Work`), writes the input it is at into a small
shared file before it reads it, and tells on its output, a JSON line now and then, what it did.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import perf_counter

import msgspec

ROUND = 8
"""An input of every unit of weight is drawn that many times before another target's turn."""

PLACE = struct.Struct("<QQ")
"""In the shared file: how many inputs were begun, and which one of the target it is."""


class Work(msgspec.Struct, frozen=True):
    """What a worker is to do: inputs of these targets, every `step`th from a number on.

    `begun` is how many inputs of the whole order were done before.
    """

    targets: list[str]
    seed: int
    first: int
    step: int
    begun: int
    most: int | None
    place: str


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened since the last time: inputs and seconds by target, endings, or a failure."""

    inputs: dict[str, int] = {}
    seconds: dict[str, float] = {}
    endings: dict[str, int] = {}
    failed: str = ""
    target: str = ""
    number: int = 0


def order(names: list[str], weights: list[int], first: int, step: int) -> Iterator[tuple[str, int]]:
    """Which input of which target comes when: for ever, in rounds."""
    counts = dict.fromkeys(names, 0)
    while True:
        for name, weight in zip(names, weights, strict=True):
            for _ in range(weight * ROUND):
                yield name, first + step * counts[name]
                counts[name] += 1


def main() -> None:
    """Do the work until killed, or until the most that was asked for."""
    from torture.fuzz.judge import judge, limit_memory
    from torture.fuzz.targets import TARGETS, input_of

    work = msgspec.json.decode(sys.argv[1], type=Work)
    out = sys.stdout.buffer
    with Path(work.place).open("r+b") as file:
        place = mmap.mmap(file.fileno(), PLACE.size)
    limit_memory()
    weights = [TARGETS[name].weight for name in work.targets]
    random = Random()
    inputs: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    endings: Counter[str] = Counter()
    told = last = perf_counter()
    for begun, (name, number) in enumerate(order(work.targets, weights, work.first, work.step)):
        if begun < work.begun:
            continue
        if work.most is not None and begun >= work.most:
            break
        PLACE.pack_into(place, 0, begun + 1, number)
        target = TARGETS[name]
        ending, wrong = judge(target, input_of(target, work.seed, number, random))
        now = perf_counter()
        inputs[name] += 1
        seconds[name] = seconds.get(name, 0.0) + now - last
        endings[ending] += 1
        last = now
        if wrong is not None:
            out.write(msgspec.json.encode(Told(failed=wrong, target=name, number=number)) + b"\n")
        if wrong is not None or now - told > 0.2:
            told = now
            out.write(msgspec.json.encode(Told(inputs, seconds, endings)) + b"\n")
            out.flush()
            inputs.clear()
            seconds.clear()
            endings.clear()
    out.write(msgspec.json.encode(Told(inputs, seconds, endings)) + b"\n")
    out.flush()


if __name__ == "__main__":
    main()

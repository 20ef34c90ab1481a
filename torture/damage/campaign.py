"""The damage campaign: every injury of every specimen, judged. Alone:

python -m torture.damage.campaign                       everything once
python -m torture.damage.campaign --part 0/4            a quarter of it
python -m torture.damage.campaign --turns 9             every bit of every byte
python -m torture.damage.campaign --case NAME           one case, as a failure names it
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count

from torture.damage.examine import Bench, Verdict
from torture.damage.injuries import Injury, flips, others, parse
from torture.damage.specimen import specimens
from torture.share import Failure, Share

TURNS = 9
"""After so many turns every bit of every byte was flipped."""

_NAMES = {
    "flip": "bytes flipped",
    "cut": "truncations",
    "empty": "objects emptied",
    "junk": "objects extended",
    "swap": "swaps",
    "remove": "removals",
    "older": "older versions",
}
_CRASH_EVERY = 16
_TELL_EVERY = 5000


@lru_cache(maxsize=1)
def benches() -> dict[str, Bench]:
    """A bench for each specimen, made once."""
    return {name: Bench(specimen) for name, specimen in specimens().items()}


def cases(turn: int) -> Iterator[Injury]:
    """The injuries of one turn: all of them on the first, only flips on later ones."""
    for specimen in specimens().values():
        if turn == 0:
            yield from others(specimen)
        yield from flips(specimen, turn)


def run(share: Share) -> None:
    """Judge this share's cases, turn after turn, until the time is up."""
    with quiet():
        for turn in count():
            for number, injury in enumerate(cases(turn % TURNS)):
                if number % share.parts != share.index:
                    continue
                if share.finished():
                    return
                judge(share, injury)
            share.count("turns", 1)


def judge(share: Share, injury: Injury) -> Verdict:
    """Judge one case and tell the share."""
    # Which cases are tried with a crash as well depends on nothing but their name.
    crash = injury.kind != "flip" and sum(str(injury).encode()) % _CRASH_EVERY == 0
    verdict = benches()[injury.specimen].judge(injury, crash=crash)
    share.count(_NAMES[injury.kind], 1)
    share.count("harmless" if verdict.harmless else "detected", 1)
    if verdict.repaired:
        share.count("repairs", 1)
    if verdict.lost_rows:
        share.count("repairs that lost rows", 1)
    if verdict.crashes:
        share.count("repairs that died and were repeated", verdict.crashes)
    if verdict.broken:
        what = f"{injury}: {'; '.join(verdict.broken[:3])}"
        share.fail(Failure(what, f"python -m torture.damage.campaign --case '{injury}'"))
    return verdict


@contextmanager
def quiet() -> Iterator[None]:
    """Damage is logged as an error, and there is much of it."""
    logger = logging.getLogger("reef")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def main() -> int:
    """The command. Exits with 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="torture.damage.campaign", description=__doc__)
    parser.add_argument("--part", default="0/1", help="which part of how many, as i/n")
    parser.add_argument("--turns", type=int, default=1, help=f"how often; {TURNS} flip every bit")
    parser.add_argument("--case", help="only this one, with a crash at every request of the repair")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    index, _, parts = given.part.partition("/")

    def counted(name: str, number: int) -> None:
        counts[name] += number
        judged = counts["harmless"] + counts["detected"]
        if name in ("harmless", "detected") and judged % _TELL_EVERY == 0:
            print(f"{judged:,} cases, {time.perf_counter() - began:.0f} s", flush=True)

    def failed(failure: Failure) -> None:
        failures.append(failure)
        print(f"FAILED {failure.what}", flush=True)

    began = time.perf_counter()
    share = Share(
        int(index), int(parts), 0, lambda: counts["turns"] >= given.turns, counted, failed
    )
    if given.case:
        with quiet():
            injury = parse(given.case)
            verdict = benches()[injury.specimen].judge(injury, crash=True)
        print("\n".join(verdict.broken) or "as it must be", verdict, sep="\n")
        return 1 if verdict.broken else 0
    run(share)
    for name, number in sorted(counts.items()):
        print(f"{number:9,} {name}")
    print(f"{len(failures)} failures in {time.perf_counter() - began:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

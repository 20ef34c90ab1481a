"""The campaign: rounds of murder until the time is up.

python -m torture.murder.campaign --seconds 60 --place folder
python -m torture.murder.campaign --seconds 60 --place s3 --seed 7
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from torture.murder.agenda import Agenda
from torture.murder.crash_points import CRASH_POINTS
from torture.murder.life import MEBIBYTE, Habits
from torture.murder.nursery import Nursery
from torture.murder.place import PLACES, Place
from torture.murder.round import Plan, Round
from torture.murder.witness import Violation
from torture.share import Failure, Share

ROUND_SECONDS = 25.0
_LONGEST_FIRST = 150.0


def run(share: Share) -> None:
    """A share of murder: every crash point of its own on a folder and on the S3 server, then
    rounds of random kills on both in turn, with stores that are slow, fail or are killed."""
    campaigns = [Campaign(share, name) for name in ("folder", "s3")]
    try:
        while not share.finished():
            for campaign in campaigns:
                if not share.finished():
                    campaign.next_round()
    finally:
        for campaign in campaigns:
            campaign.close()


class Campaign:
    """Rounds at one place."""

    def __init__(self, share: Share, name: str, place: Place | None = None) -> None:
        self.share = share
        self.name = name
        points = [p for n, p in enumerate(CRASH_POINTS) if n % share.parts == share.index]
        self.agenda = Agenda(points)
        self.rounds = 0
        self.totals: Counter[str] = Counter()
        self._given = place
        self._place: Place | None = None
        self._nursery: Nursery | None = None

    def next_round(self) -> None:
        """One round, of whatever is next."""
        seed = self.share.seed * 10_007 + self.share.index * 101 + self.rounds
        plan = self._plan(Random(f"{self.name}/{seed}"))
        self.rounds += 1
        began = time.monotonic()

        def finished() -> bool:
            if self.share.finished():
                return True
            lasted = time.monotonic() - began
            # The first round goes on until every crash point was met.
            if self.rounds == 1:
                return not self.agenda.left or lasted > _LONGEST_FIRST
            return lasted > ROUND_SECONDS

        self.play(plan, seed, finished)
        for point in self.agenda.hopeless:
            self._fail(f"crash point {point.name!r} was never met on {self.name}")

    def play(self, plan: Plan, seed: int, finished: Callable[[], bool]) -> bool:
        """One round by a plan; whether every promise was kept. Its counts are told."""
        place, nursery = self._open()
        one = Round(nursery, place, plan, self.agenda, seed)
        kept = True
        try:
            one.run(finished)
        except Violation as violation:
            kept = False
            place.keep = True
            journal = place.root / f"journal-{seed}.txt"
            journal.write_text("\n".join(one.hearing.journal) + f"\n{violation}\n")
            self._fail(f"{self.name}: {violation} (journal: {journal})")
        one.counts["acknowledged writes lost"] = one.hearing.lost
        for name, many in one.counts.items():
            self.totals[name] += many
            self.share.count(f"{self.name}: {name}", many)
        return kept

    def _plan(self, random: Random) -> Plan:
        if self.rounds == 0:
            return Plan(Habits(retention=0.4, grace=0.8, fold_objects=4))
        habits = Habits(
            retention=random.choice((0.0, 0.5, 1.0, 2.0)),
            grace=random.choice((0.6, 1.0, 1.5, 3.0)),
            large_batch_bytes=random.choice((1, 2, 4)) * MEBIBYTE,
            segment_bytes=random.choice((64 * 1024, MEBIBYTE, 64 * MEBIBYTE)),
            fold_objects=random.choice((4, 12, 40)),
            pace=random.choice((0.002, 0.01, 0.03)),
            large=random.choice((0.02, 0.1)),
        )
        mean_life = random.choice((0.2, 0.5, 1.0))
        # On the server its own death comes first, in a folder a store that is slow.
        kind = (self.rounds + (2 if self.name == "s3" else 0)) % 4
        if kind == 1:
            return Plan(habits, mean_life, slow=random.choice((0.02, 0.1)))
        if kind == 2:
            outages = tuple(
                (start, start + 1 + 3 * random.random(), random.choice((0.5, 1.0)))
                for start in (4.0, 14.0)
            )
            return Plan(habits, mean_life, takeovers=0.0, outages=outages)
        if kind == 3 and self.name == "s3":
            return Plan(habits, mean_life, takeovers=0.0, server_kills=(3.0, 10.0, 17.0))
        return Plan(habits, mean_life)

    def _open(self) -> tuple[Place, Nursery]:
        if self._place is None:
            self._place = (self._given or PLACES[self.name]()).__enter__()
        if self._nursery is None:
            self._nursery = Nursery(self._place.root / "victims.log")
        return self._place, self._nursery

    def _fail(self, what: str) -> None:
        repeat = (
            f"python -m torture.murder.campaign --place {self.name} --seed {self.share.seed}"
            f" --part {self.share.index} --parts {self.share.parts} --seconds 300"
        )
        self.share.fail(Failure(what, repeat))

    def close(self) -> None:
        """End everything that was started."""
        if self._nursery is not None:
            self._nursery.close()
        if self._place is not None:
            left = len(self.agenda.left)
            self.share.count(f"{self.name}: crash points met", len(self.agenda.points) - left)
            self.share.count(f"{self.name}: crash points not met yet", left)
            self._place.__exit__(None, None, None)


def main(arguments: list[str] | None = None) -> int:
    """Run rounds at one place for some seconds and print what was done; 1 if a promise broke."""
    parser = argparse.ArgumentParser(prog="torture.murder.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--place", choices=sorted(PLACES), default="folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    failures: list[Failure] = []
    counts: Counter[str] = Counter()

    def count(name: str, many: int) -> None:
        counts[name] += many

    share = Share(
        chosen.part,
        chosen.parts,
        chosen.seed,
        lambda: time.monotonic() - began > chosen.seconds,
        count,
        failures.append,
    )
    campaign = Campaign(share, chosen.place)
    try:
        while not share.finished() and not failures:
            campaign.next_round()
    finally:
        campaign.close()
    print(f"{campaign.rounds} rounds in {time.monotonic() - began:.0f} seconds")
    for name, many in sorted(counts.items()):
        print(f"{many:10,}  {name}")
    for point in campaign.agenda.points:
        print(f"{campaign.agenda.hits[point.name]:10,}  {point.name}")
    for failure in failures:
        print(f"FAILED: {failure.what}\n  again: {failure.repeat}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

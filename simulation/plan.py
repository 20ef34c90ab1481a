"""A plan: everything about a run that is not decided while it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FAULTS = (
    "refuse",
    "lose",
    "duplicate",
    "conflict",
    "late",
    "crash",
    "pause",
    "slow",
    "jump",
    "pages",
)


@dataclass(frozen=True)
class Plan:
    """Who takes part, for how many steps each, and what may go wrong how often.

    `requests` is how many there may be before the end, `pace` how long programs wait between
    steps, and a `quick` run does not wait until the bucket is tidy. `names` are the namespaces;
    roles are shared out among them.
    """

    seed: int
    roles: tuple[str, ...]
    steps: int
    faults: tuple[str, ...]
    intensity: float
    requests: int
    pace: float = 1.0
    quick: bool = False
    names: tuple[str, ...] = ("n",)


def plan_of(seed: int) -> Plan:
    """The plan of a seed. Faults come in random company: some bugs hide when all are there.

    Every third seed is one of sleepers: everybody is at work, and now and then somebody sleeps in
    the middle of something for longer than the retention.
    """
    random = Random(f"{seed}/plan")
    asleep = seed % 3 == 2
    roles = ["writer"] * random.choice((1, 2) if asleep else (1, 1, 2, 2, 3))
    roles += ["reader"] * random.choice((0, 1, 1, 2))
    roles += ["indexer"] * random.choice((0, 1, 1))
    roles += ["compactor"] * random.choice((0, 0, 1))
    roles += ["collector"] * random.choice((1,) if asleep else (0, 1, 1))
    roles += ["loader"] * random.choice((0, 1) if asleep else (0, 0, 1))
    roles += ["worker"] * random.choice((1,) if asleep else (0, 1, 1, 2))
    roles += random.choice((["doctor"], ["historian"], [], [], []))
    roles += ["dropper"] * (random.random() < 0.12)
    density = random.choice((0.15, 0.6))
    faults = tuple(fault for fault in FAULTS if random.random() < density)
    if asleep:
        faults = random.choice((("pause",), ("pause", "late"), ("pause", "pause", "lose", "crash")))
    return Plan(
        seed,
        tuple(roles),
        random.choice((5, 8, 14)),
        faults or ("crash",),
        random.choice((0.03, 0.06) if asleep else (0.0, 0.01, 0.03, 0.06, 0.1)),
        random.choice((80, 120, 180)),
        random.choice((0.01, 0.1, 1.0)),
        random.random() < 0.6,
        ("n", "m") if random.random() < 0.1 else ("n",),
    )

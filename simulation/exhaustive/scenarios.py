"""The scenarios: pairs and triples of programs, on buckets where each has something to do."""

from __future__ import annotations

from itertools import combinations

from simulation.exhaustive.parts import (
    ADDER,
    COLLECTOR,
    COMPACTION,
    DROP,
    EMPTYING,
    FOLD,
    KEEPER,
    LOAD,
    OVERWRITE,
    PIN,
    READER,
    REPAIR,
    SECOND_LIFE,
    SUCCESSOR,
    TAKEOVER,
    WRITER,
    upsert,
)
from simulation.exhaustive.scenario import Part, Scenario
from simulation.session import PATIENCE, Session


def lived_in(session: Session) -> None:
    """Two runs, something unfolded, something due for collection, and something still retained."""
    ns = session.open("w")
    assert ns is not None
    for ids in ("abc", "bd"):
        session.write(ns, upsert(session, *ids))
        ns.index()
    ns.compact(full=True)
    session.sleep(2 * PATIENCE)
    session.write(ns, upsert(session, "ef"))
    ns.index()
    session.write(ns, upsert(session, "a", "g", key=True))


def wounded(session: Session) -> None:
    """What a compaction wrote is damaged, and what it was made from is due for collection."""
    ns = session.open("w")
    assert ns is not None
    for ids in ("abc", "bd"):
        session.write(ns, upsert(session, *ids))
        ns.index()
    ns.compact(full=True)
    observer = session.observer
    (key,) = observer.named[-1]
    session.stage.bucket.damage(observer.prefix + key)
    observer.damaged.add(key)
    session.sleep(2 * PATIENCE)


ENDED = (WRITER, TAKEOVER, FOLD, COMPACTION, COLLECTOR, LOAD, READER, PIN, DROP)
PARTS = (
    WRITER, TAKEOVER, FOLD, COMPACTION, COLLECTOR, REPAIR, LOAD, OVERWRITE, READER, PIN,
)  # fmt: skip


def _together(*parts: Part) -> Scenario:
    return Scenario("-".join(part.name for part in parts), lived_in, parts)


PAIRS = [_together(one, other) for one, other in combinations(PARTS, 2)]
TRIPLES = [
    _together(*parts)
    for parts in (
        (WRITER, TAKEOVER, COLLECTOR),
        (WRITER, FOLD, COLLECTOR),
    )
]
OTHERS = [
    _together(ADDER, EMPTYING),
    _together(COMPACTION, KEEPER),
    _together(WRITER, SUCCESSOR),
    _together(LOAD, KEEPER),
    _together(READER, KEEPER),
    *(_together(part, SECOND_LIFE) for part in ENDED),
    *(_together(part, DROP) for part in ENDED[:-1]),
    Scenario("wounded-collector-repair", wounded, (COLLECTOR, REPAIR)),
]
SCENARIOS = {scenario.name: scenario for scenario in (*PAIRS, *TRIPLES, *OTHERS)}

"""The programs: what a node of each role does, as anybody would write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import reef
from reef.manifest import MANIFESTS
from simulation.intent import Intent
from simulation.session import IDS, Held, Session
from simulation.world import Violation

NOVEL = ("c", "d")


def make_intent(session: Session, *, load: bool = False) -> Intent:
    """Something to write."""
    random = session.random
    token = session.token()
    intent = Intent(token, load=load)
    if random.random() < 0.4:
        intent.key = f"key-{token}"
    few = random.sample(IDS, random.choice((1, 1, 2, 3, 8)))

    # Whoever comes first decides the type of such an attribute.
    novel = random.choice(NOVEL) if random.random() < 0.25 else None
    value = random.choice((7, 0.5, "seven"))

    def row(id: str) -> dict[str, object]:
        made: dict[str, object] = {"id": id, "v": random.randrange(6), "token": token}
        if random.random() < 0.3:
            made[random.choice(("a", "b"))] = random.randrange(100)
        if novel is not None:
            made[novel] = value
        return made

    if load:
        intent.upserts = [row(id) for id in few]
        intent.truncate = random.random() < 0.3
        return intent
    kind = random.randrange(10)
    if kind < 3:
        intent.upserts = [row(id) for id in few]
        if random.random() < 0.3:
            text = random.choice("xyz") * 300
            intent.upserts = [{**made, "text": text} for made in intent.upserts]
    elif kind < 5:
        intent.patches = [{"id": id, "v": random.randrange(6), "token": token} for id in few]
    elif kind < 6:
        intent.deletes = few
    elif kind < 7:
        intent.below = random.randrange(1, 4)
    else:
        half = (len(few) + 1) // 2
        intent.upserts = [row(id) for id in few[:half]]
        if random.random() < 0.3:
            intent.deletes = few[half:]
        else:
            intent.patches = [{"id": id, "token": token} for id in few[half:]]
        intent.condition = random.choice(("absent", "exists", 0, 1, 2))
        intent.skip = random.random() < 0.3
    return intent


def make_declaration(session: Session) -> Intent:
    """Types to declare, which may not go with what others declare or write."""
    random = session.random
    names = random.sample(NOVEL, random.choice((1, 2)))
    kinds = {name: random.choice(("int64", "float64", "string")) for name in names}
    return Intent(session.token(), declares=kinds)


def think(session: Session) -> None:
    """Between two steps."""
    random = session.random
    pace = session.stage.pace
    kind = random.random()
    if kind < 0.7:
        session.sleep(random.random() * pace)
    elif kind < 0.92:
        session.sleep(random.random() * 20 * pace)
    else:
        session.sleep(50 + random.random() * 150)


def upkeep(session: Session, ns: reef.Namespace, what: str) -> None:
    """One pass of background work."""
    session.attempt(what, lambda: PASSES[what](session, ns))


PASSES: dict[str, Callable[[Session, reef.Namespace], object]] = {
    "index": lambda session, ns: ns.index(),
    "compact": lambda session, ns: ns.compact(),
    "compact fully": lambda session, ns: ns.compact(full=True),
    "collect": lambda session, ns: ns.gc(apply=True),
    "verify": lambda session, ns: session.verify(ns),
    "rehearse repair": lambda session, ns: session.repair(ns, apply=False),
    "repair": lambda session, ns: session.repair(ns, apply=True),
    "rebuild": lambda session, ns: ns.rebuild(),
}
EVERYDAY = ("index", "compact", "compact fully", "collect")
MEDICAL = ("verify", "rehearse repair", "repair", "repair", "rebuild", "rebuild")


class Program(ABC):
    """Steps until there are none left; `left` outlives the process, as a to-do list would."""

    mode = "r"

    def __init__(self, steps: int) -> None:
        self.left = steps

    def run(self, session: Session) -> None:
        """One life."""
        ns = None
        while self.left > 0:
            think(session)
            if ns is None:
                self.left -= session.random.random() < 0.2
                if self.mode == "r" and not session.observer.roots.newest:
                    session.sleep(session.random.random() * 5)
                ns = session.open(self.mode)
                continue
            self.left -= 1
            usable = True
            try:
                usable = self.step(session, ns)
            except reef.StoreUnavailable:
                session.alive()
                continue
            except reef.NamespaceNotFound as error:
                session.alive()
                session.check_gone("a step", error)
            if session.gone or not usable:
                ns = None

    @abstractmethod
    def step(self, session: Session, ns: reef.Namespace) -> bool:
        """One thing to do. False if the handle is of no more use."""


class Writer(Program):
    """Writes, retries what it cannot know, reads its own writes, sometimes does the upkeep."""

    mode = "w"

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        random = session.random
        kind = random.random()
        if kind < 0.62:
            return session.write(ns, make_intent(session))
        if kind < 0.72 and session.unsettled:
            return session.write(ns, session.unsettled.pop(0))
        if kind < 0.78:
            return self._increment(session, ns)
        if kind < 0.82:
            return session.write(ns, make_intent(session, load=True))
        if kind < 0.845:
            return session.write(ns, make_declaration(session))
        if kind < 0.855:
            upkeep(session, ns, random.choice(MEDICAL))
            return True
        if kind < 0.92:
            upkeep(session, ns, random.choice(EVERYDAY))
            return random.random() < 0.95
        read(session, ns, writer=True)
        return True

    def _increment(self, session: Session, ns: reef.Namespace) -> bool:
        """Read, change, and write back if nobody came between."""
        id = session.random.choice(IDS)
        seen: list[dict[str, object] | None] = []
        session.attempt("read", lambda: seen.append(session.get(ns, id)))
        intent = Intent(session.token())
        row: dict[str, object] = {"id": id, "v": 0, "token": intent.token}
        intent.condition = "absent"
        if seen and seen[0] is not None:
            version = seen[0]["v"]
            assert isinstance(version, int)
            intent.condition = version
            row["v"] = version + 1
        intent.upserts = [row]
        return session.write(ns, intent)


class Reader(Program):
    """Reads in every way."""

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        read(session, ns)
        return session.random.random() < 0.95


class Historian(Program):
    """Keeps handles on states of the past, pins some, and reads them now and then."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.held: list[Held] = []

    def run(self, session: Session) -> None:
        self.held = []
        super().run(session)

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        random = session.random
        if self.held and random.random() < 0.7:
            held = random.choice(self.held)
            call = session.reread if random.random() < 0.6 else partial(session.pin, ns)
            if session.attempt("hold", lambda: call(held)) is False:
                self.held.remove(held)
            return True
        session.attempt("hold", lambda: self._take(session, ns))
        return random.random() < 0.95

    def _take(self, session: Session, ns: reef.Namespace) -> None:
        random = session.random
        observer = session.observer
        # Numbers of generations that were collected and won again: only a pin vouches for them.
        names = (MANIFESTS.generation_of(name) for name in observer.ghosts)
        first = observer.first_generation
        ghosts = sorted(number for number in names if number is not None and number >= first)
        if ghosts and random.random() < 0.5:
            held = session.hold(ns, generation=random.choice(ghosts))
        elif ns.lsn >= observer.first_slot and random.random() < 0.5:
            lsn = random.randint(max(observer.first_slot, ns.lsn - 6), ns.lsn)
            held = session.hold(ns, lsn=lsn)
        else:
            newest = observer.roots.newest
            held = session.hold(
                ns, generation=random.randint(max(observer.first_generation, newest - 4), newest)
            )
        if held is not None:
            self.held.append(held)


class Loader(Program):
    """Loads in bulk, beside the writers."""

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        loads = [intent for intent in session.unsettled if intent.load]
        if loads and session.random.random() < 0.6:
            session.unsettled.remove(loads[0])
            session.write(ns, loads[0])
        else:
            session.write(ns, make_intent(session, load=True))
        return True


class Keeper(Program):
    """Does upkeep of some kinds, in a loop."""

    def __init__(self, steps: int, *passes: str) -> None:
        super().__init__(steps)
        self.passes = passes

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        upkeep(session, ns, session.random.choice(self.passes))
        return session.random.random() < 0.95


class Dropper(Program):
    """Drops the namespace now and then, uses the name again, and collects what is left."""

    def run(self, session: Session) -> None:
        while self.left > 0:
            self.left -= 1
            session.sleep(session.random.random() * 60)
            kind = session.random.random()
            if kind < 0.4:
                session.drop()
            elif kind < 0.7:
                session.open("w")
            else:
                session.attempt("collect", lambda: session.database.gc_dropped(apply=True))

    def step(self, session: Session, ns: reef.Namespace) -> bool:
        raise AssertionError


def read(session: Session, ns: reef.Namespace, *, writer: bool = False) -> None:
    """One read of some kind."""
    random = session.random
    observer = session.observer
    kind = random.randrange(6)
    oldest = max(observer.first_slot - 1, observer.newest - 12)
    calls: list[Callable[[], object]] = [
        lambda: session.scan(ns),
        lambda: session.get(ns, random.choice(IDS)),
        lambda: session.travel(ns, random.randint(oldest, ns.lsn)),
        lambda: session.changes(ns, random.randint(oldest, ns.lsn)),
        lambda: session.refresh(ns) if not writer else None,
        lambda: session.scan(ns),
    ]
    if kind in (2, 3) and ns.lsn < oldest:
        return
    session.attempt("read", calls[kind])


def program_of(role: str, steps: int) -> Program:
    """The program of a role."""
    if role == "writer":
        return Writer(steps)
    if role == "reader":
        return Reader(steps)
    if role == "loader":
        return Loader(max(1, steps // 3))
    if role == "indexer":
        return Keeper(steps, "index")
    if role == "compactor":
        return Keeper(max(1, steps // 2), "compact", "compact fully")
    if role == "collector":
        return Keeper(steps, "collect")
    if role == "worker":
        return Keeper(steps, *EVERYDAY)
    if role == "doctor":
        return Keeper(max(1, steps // 3), *MEDICAL)
    if role == "dropper":
        return Dropper(max(2, steps // 2))
    if role == "historian":
        return Historian(steps)
    raise Violation(f"there is no role {role}")

"""The programs of scenarios: a handful of requests each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import reef
from simulation.exhaustive.scenario import Part
from simulation.intent import Intent
from simulation.programs import PASSES
from simulation.session import PATIENCE, Session
from simulation.world import Violation

Handle = reef.Namespace | None


def upsert(session: Session, *ids: str, v: int = 1, key: bool = False) -> Intent:
    """A batch of new documents."""
    token = session.token()
    rows = [{"id": id, "v": v, "token": token} for id in ids]
    return Intent(token, upserts=rows, key=f"key-{token}" if key else None)


def _opened(mode: str) -> Callable[[Session], Handle]:
    def before(session: Session) -> Handle:
        ns = session.open(mode)
        if ns is None:
            raise Violation("a namespace that is there could not be opened")
        return ns

    return before


def _write(session: Session, ns: Handle) -> None:
    assert ns is not None
    if session.write(ns, upsert(session, "a", "x")):
        token = session.token()
        session.write(ns, Intent(token, patches=[{"id": "b", "token": token}], deletes=["c"]))


def _add(session: Session, ns: Handle) -> None:
    """Write what must not be there, and again what must."""
    assert ns is not None
    first = upsert(session, "y")
    first.condition = "absent"
    if session.write(ns, first):
        session.attempt("read", lambda: session.get(ns, "y"))


def _take_over(session: Session, _: object) -> None:
    ns = session.open("w")
    if ns is not None:
        session.write(ns, upsert(session, "a", v=2, key=True))
        session.attempt("read", lambda: session.scan(ns))


def _pass(what: str) -> Callable[[Session, Handle], None]:
    def act(session: Session, ns: Handle) -> None:
        assert ns is not None
        session.attempt(what, lambda: PASSES[what](session, ns))

    return act


def _load(session: Session, ns: Handle, *, truncate: bool, empty: bool) -> None:
    assert ns is not None
    intent = upsert(session, *(() if empty else ("b", "z")), v=3)
    intent.load, intent.truncate = True, truncate
    session.write(ns, intent)


def _read(session: Session, ns: Handle) -> None:
    assert ns is not None
    session.attempt("read", lambda: session.scan(ns))
    session.attempt("refresh", lambda: session.refresh(ns))
    if not session.gone:
        session.attempt("read", lambda: session.scan(ns))


def _hold(session: Session, ns: Handle) -> None:
    assert ns is not None
    newest = session.observer.roots.newest
    held = session.attempt("hold", lambda: session.hold(ns, generation=newest - 1))
    if held is None:
        return
    if session.attempt("pin", lambda: session.pin_for(ns, held, 1_000_000.0)):
        session.attempt("reread", lambda: session.reread(held))


def _keep_house(session: Session, ns: Handle) -> None:
    """Fold, and collect twice: what that superseded, and the generations up to there."""
    assert ns is not None
    session.attempt("index", ns.index)
    for _ in range(2):
        session.sleep(2 * PATIENCE)
        session.attempt("collect", lambda: ns.gc(apply=True))


def _succeed(session: Session, _: object) -> None:
    """Take over, and keep house until nothing of before is left."""
    ns = session.open("w")
    if ns is not None:
        session.write(ns, upsert(session, "a", v=2))
        _keep_house(session, ns)


def _drop(session: Session, _: object) -> None:
    session.drop()


def _drop_and_use_again(session: Session, _: object) -> None:
    """Drop it, write to what is created in its place, and collect what was before."""
    session.drop()
    ns = session.open("w")
    if ns is not None:
        session.write(ns, upsert(session, "a", "q", v=4))
        session.sleep(2 * PATIENCE)
        session.attempt("collect", lambda: ns.gc(apply=True))


WRITER = Part("writer", _write, _opened("w"))
ADDER = Part("adder", _add, _opened("w"))
TAKEOVER = Part("takeover", _take_over)
FOLD = Part("fold", _pass("index"), _opened("r"))
COMPACTION = Part("compaction", _pass("compact fully"), _opened("r"))
COLLECTOR = Part("collector", _pass("collect"), _opened("r"))
REPAIR = Part("repair", _pass("repair"), _opened("r"))
LOAD = Part("load", partial(_load, truncate=False, empty=False), _opened("r"))
OVERWRITE = Part("overwrite", partial(_load, truncate=True, empty=False), _opened("r"))
EMPTYING = Part("emptying", partial(_load, truncate=True, empty=True), _opened("r"))
KEEPER = Part("keeper", _keep_house, _opened("r"))
SUCCESSOR = Part("successor", _succeed)
DROP = Part("drop", _drop)
SECOND_LIFE = Part("second-life", _drop_and_use_again)
READER = Part("reader", _read, _opened("r"))
PIN = Part("pin", _hold, _opened("r"))

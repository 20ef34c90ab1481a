"""The end of a run: no more faults, everything acknowledged is there, and the bucket is tidy."""

from __future__ import annotations

from random import Random

import reef
from reef.log import WAL
from reef.manifest.lists import PREFIX as LIST_PREFIX
from reef.manifest.manifests import MANIFESTS
from reef.manifest.manifests import PREFIX as MANIFEST_PREFIX
from reef.segment.info import PREFIX as SEGMENT_PREFIX
from simulation.session import IDS, PATIENCE, Session, Stage
from simulation.world import Violation

_MOST_MANIFESTS = 4
_MOST_SLOTS = 4


def end_of(stage: Stage, *, quick: bool) -> None:
    """Open what is left and hold it against the model; unless `quick`, make it tidy too."""
    for name in list(stage.observer.trees):
        _end_of(stage, name, quick)


def _end_of(stage: Stage, name: str, quick: bool) -> None:
    world = stage.world
    random = Random("end")
    session = Session(stage, world.process("end", random), random, name)
    failure: list[BaseException] = []

    def live() -> None:
        try:
            _check(session, quick)
        except Exception as error:
            failure.append(error)

    session.process.run(live)
    world.finish()
    if failure:
        raise failure[0]


def _check(session: Session, quick: bool) -> None:
    observer = session.observer
    if not observer.roots.newest:
        return
    if observer.damaged and not _cured(session):
        return
    reader = session.open("r")
    if reader is None:
        # It was dropped. Whoever uses the name again finds nothing of what was.
        session.open("w")
        reader = session.open("r")
        assert reader is not None
    _same(session, reader)
    _past(session, reader)
    writer = session.open("w")
    assert writer is not None
    for intent in list(session.unsettled):
        session.write(writer, intent)
    if quick:
        _same(session, writer)
        _sound(writer)
        return
    while writer.index() is not None:
        pass
    writer.compact(full=True)
    session.refresh(reader)
    _same(session, reader)
    for _ in range(3):
        session.sleep(3 * PATIENCE)
        writer.gc(apply=True)
    _tidy(session, writer)
    _same(session, writer)
    _sound(writer)


def _same(session: Session, ns: reef.Namespace) -> None:
    observer = session.observer
    if ns.lsn != observer.newest:
        raise Violation(f"the log ends with slot {observer.newest}, and {ns.lsn} is seen")
    expected = observer.model.states[-1]
    session.scan(ns)
    found = ns.get_many(IDS)
    if found != [expected.get(id) for id in IDS]:
        raise Violation(f"looking ids up gives {found}, and should {expected}")
    if ns.count() != len(expected):
        raise Violation(f"{ns.count()} documents are counted, and there are {len(expected)}")


def _cured(session: Session) -> bool:
    """Repair what is damaged. False if that lost something, so that the model says nothing."""
    observer = session.observer
    ns = session.open("r")
    assert ns is not None
    session.repair(ns, apply=True)
    session.refresh(ns)
    _sound(ns)
    observer.damaged.clear()
    return not observer.lost


def _past(session: Session, ns: reef.Namespace) -> None:
    """A number that was collected and won again says nothing of what was there."""
    for name in sorted(session.observer.ghosts):
        generation = MANIFESTS.generation_of(name)
        if generation is not None:
            held = session.hold(ns, generation=generation)
            if held is not None:
                session.reread(held)


def _sound(ns: reef.Namespace) -> None:
    report = ns.verify(deep=True)
    if not report.sound:
        raise Violation(f"verification found {report.problems}")


def _tidy(session: Session, ns: reef.Namespace) -> None:
    """A quiet bucket holds what is live and little else."""
    bucket = session.stage.bucket
    manifest = session.observer.roots.head
    prefix = session.observer.prefix
    live = {prefix + info.key for info in (*manifest.segments, *manifest.window)}
    live |= {prefix + info.key for info in manifest.lists}
    live |= {prefix + retired.list.key for retired in manifest.retired}
    folders = (prefix + SEGMENT_PREFIX, prefix + LIST_PREFIX)
    left = [key for key in bucket.keys if key.startswith(folders)]
    kept = [key for key in left if key not in live]
    if kept:
        raise Violation(f"segments that nothing needs stay for ever: {kept}")
    manifests = [key for key in bucket.keys if key.startswith(prefix + MANIFEST_PREFIX)]
    slots = [key for key in bucket.keys if key.startswith(prefix + WAL.prefix)]
    if len(manifests) > _MOST_MANIFESTS or len(slots) > _MOST_SLOTS:
        raise Violation(f"{manifests} and {slots} stay for ever")

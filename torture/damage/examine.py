"""The judge: what is promised of a damaged namespace, held against what comes of a case.

1. *Reading* gives the right answer or an honest error. Right is what the intact specimen says; with
   one exception. An object that is the last of the log and damaged is taken as never committed,
   since that is what a PUT looks like that never finished; and if it is gone there is no trace of
   it. So if the last slot is injured, everything may read as if it had never been written, but
   then everything must. The newest manifest is no such exception: the hint has it too, and the
   generation before it and the log amount to the same.
2. *Verifying* names an injured object as a problem, unless nothing needs it: `is_needless` says
   which those are.
3. *Repairing* changes nothing in a dry run. Applied, it leaves a namespace that is sound, to verify
   and to read, has nothing to repair, and can be written, folded and compacted; in which whatever
   reads differently was reported as lost; and the injured bytes are in quarantine.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from crc32c import crc32c

import reef.lsm.repair.health
from reef.errors import Corruption, ObjectNotFound
from reef.log import WAL
from reef.log.codec import decode
from reef.lsm.repair.repair import Repaired, repair
from reef.lsm.repair.verify import verify
from reef.lsm.tree import Tree
from reef.manifest import MANIFESTS
from reef.segment import Problem, SegmentInfo
from reef.segment.verify import verify_segment
from reef.store import Store
from tests.support.faults import Clock, Crash, FaultyStore
from torture.damage.injuries import Injury, kind_of
from torture.damage.reading import Copy, Question, Questions, compare, database
from torture.damage.specimen import NAME, PLACE, Id, Specimen

QUARANTINE = "quarantine/"
_LONGEST = 5.0
_MOST_MEMORY = 256 * 1024 * 1024


@dataclass
class Verdict:
    """What came of a case. `broken` are the promises that were."""

    harmless: bool = False
    lost_rows: bool = False
    repaired: bool = False
    crashes: int = 0
    broken: list[str] = field(default_factory=list)


class Bench:
    """A specimen, ready to be injured again and again."""

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self.content = specimen.content()
        self.questions = Questions(specimen)
        tree = self._tree(specimen.store)
        manifest = tree.register.head().manifest
        self.head = manifest.generation
        report = verify(tree, deep=True)
        assert report.sound, report.problems
        self._log_skips = {
            lsn
            for key, data in self.content.items()
            if kind_of(key) == "wal" and (lsn := WAL.lsn_of(key)) and _entry(key, data) is None
        }
        listed = [gone.generation for gone in manifest.superseded]
        listed += [span.generation for span in manifest.folded]
        self.first_kept = min(listed, default=self.head + 1) - 1
        tree.recover()
        named = {info.key for info in (*manifest.segments, *manifest.window)}
        named |= {info.key for info in tree.view.unfolded.named}
        named |= {gone.key for gone in manifest.superseded}
        self._orphans = {key for key in self.content if kind_of(key) == "segments"} - named
        self._values = _values_of(specimen)
        self._sound: dict[tuple[int, SegmentInfo, bool], list[Problem]] = {}
        self._own = {id(found.data): found.data for found in specimen.store._objects.values()}
        self._judged: dict[Any, tuple[bool, tuple[str, ...]]] = {}

    def _clock(self, who: str = "reader") -> Clock:
        """A clock whose chance is the same in every case, and another for everybody at work: no
        two of them may come to make the same name."""
        return Clock(self.specimen.environment.now() + 1, seed=crc32c(who.encode()))

    def _tree(self, store: Store, who: str = "reader") -> Tree:
        return database(store, self._clock(who))._tree(NAME)

    def injured(self, injury: Injury) -> Copy:
        """The bucket with the injury done to it."""
        store = Copy(self.specimen.store, self._clock())
        for key, data in injury.of(self.content, self.specimen.hints).items():
            if data is None:
                store.delete(PLACE + key)
            else:
                store.put(PLACE + key, data)
        return store

    def is_needless(self, injury: Injury, key: str) -> bool:
        """Whether nothing promised depends on an injured object: nobody needs to notice.

        - The clock is an empty object of which only the time counts, as of a moment ago.
        - What lies in quarantine is for people, orphans are garbage, and a slot that was given
          up is passed over whatever it holds.
        - Without the hint, or with an older one, the newest generation is found by listing.
        - The last log object, when it is gone, might never have been.
        - Whoever holds a pin that is gone, its board or its heartbeat, puts it up again in time.
        - Generations older than everything that the manifest says is retained may have been
          collected; when one is gone, it may just have been.
        """
        if key == "clock" or key.startswith(QUARANTINE) or key in self._orphans:
            return True
        if key.startswith(("pins/", "heartbeats/")):
            return injury.kind == "remove" or key.startswith("heartbeats/")
        lsn = WAL.lsn_of(key)
        generation = MANIFESTS.generation_of(key)
        if lsn is not None:
            gone = injury.kind == "remove" and lsn == self.specimen.last
            return gone or lsn in self._log_skips
        if generation is not None:
            return injury.kind == "remove" and generation < self.first_kept
        if key == "hint.json":
            return injury.kind in ("remove", "older") or (
                injury.kind == "swap" and "manifest/" in f"{injury.keys}"
            )
        return False

    def judge(self, injury: Injury, *, crash: bool = False) -> Verdict:
        """Do it, and look at everything. With `crash`, let the repair die at every request too."""
        verdict = Verdict()
        began, memory = time.perf_counter(), _peak()
        with self._remembering():
            try:
                self._judge(injury, verdict, crash)
            except Exception as error:
                verdict.broken.append(f"{type(error).__name__}: {error}")
        if time.perf_counter() - began > _LONGEST and not crash:
            verdict.broken.append(f"it took {time.perf_counter() - began:.1f} seconds")
        if _peak() - memory > _MOST_MEMORY:
            verdict.broken.append(f"it took {(_peak() - memory) >> 20} MiB of memory")
        return verdict

    def _judge(self, injury: Injury, verdict: Verdict, crash: bool) -> None:
        store = self.injured(injury)
        before = store.objects()
        broken = verdict.broken
        asked = self.questions.asked
        if injury.kind != "remove":
            asked = self.questions.touching(injury.keys)
        answers = self.questions.ask(store, self._clock(), asked)
        last = self.specimen.last
        worlds: list[tuple[int, ...]] = [()]
        if WAL.key(last) in injury.keys:
            worlds.append((last,))
        read = compare(self.questions, answers, worlds)
        broken += [f"reading: {wrong}" for wrong in read.wrong]

        report = verify(self._tree(store), deep=True)
        needed = [key for key in injury.keys if not self.is_needless(injury, key)]
        named = {problem.key for problem in report.problems}
        if needed and named.isdisjoint(needed):
            broken.append(f"verify does not name {' or '.join(needed)} but {sorted(named)}")
        verdict.harmless = not read.errors and not read.lost and report.sound
        if not needed and not all(
            self._may_be_gone(question)
            for question in answers
            if isinstance(answers[question], Exception)
        ):
            broken.append(f"a needless object is needed: {read.errors[0]}")

        promise = repair(self._tree(store))
        if store.objects() != before:
            broken.append("a dry run of repair changed the bucket")
        if bool(promise.actions) == report.sound and needed:
            broken.append(f"verify and repair disagree: {report.problems}, {promise.actions}")
        done = repair(self._tree(store, "repair"), apply=True)
        verdict.repaired = bool(done.actions)
        if _losses(done) != _losses(promise) or done.actions != promise.actions:
            broken.append(f"the dry run said {promise}, and then it was {done}")
        self._check_aftermath(injury, store, before, promise, verdict)
        if crash:
            self._crash(injury, promise, verdict)

    def _may_be_gone(self, question: Question) -> bool:
        """Whether an error is right for a generation that may have been collected."""
        what, which = question
        if what == "lsn":
            return which == self.specimen.last or which <= self.specimen.folded.get(1, 0)
        return what == "generation" and which < self.first_kept

    def _check_aftermath(
        self,
        injury: Injury,
        store: Copy,
        before: dict[str, Any],
        promise: Repaired,
        verdict: Verdict,
    ) -> None:
        for key in promise.quarantined:
            aside = store.objects().get(f"{PLACE}{QUARANTINE}{key}")
            if aside is None or aside.data != before[PLACE + key].data:
                verdict.broken.append(f"what {key} held is not in quarantine")
        # Beyond this nothing looks into quarantine, and into the log only through its codec: so
        # what was found of the same bucket under the same promise is true of this one as well.
        mark = (_fingerprint(store), injury.keys, injury.kind == "remove", _losses(promise))
        known = self._judged.get(mark)
        if known is None:
            broken: list[str] = []
            lost_rows = self._examine_aftermath(injury, store, promise, broken)
            known = self._judged[mark] = (lost_rows, tuple(broken))
        verdict.lost_rows = verdict.lost_rows or known[0]
        verdict.broken += known[1]

    def _examine_aftermath(
        self, injury: Injury, store: Copy, promise: Repaired, broken: list[str]
    ) -> bool:
        report = verify(self._tree(store), deep=True)
        broken += [f"after repair: {problem}" for problem in report.problems]
        manifest = self._tree(store).register.head().manifest
        live = {info.key for info in (*manifest.segments, *manifest.window)}
        # A collector deletes what is superseded without asking whether it is live.
        doomed = live & {gone.key for gone in manifest.superseded}
        if doomed:
            broken.append(f"after repair: {sorted(doomed)} is live and superseded")
        repaired = store.objects()
        again = repair(self._tree(store, "second repair"), apply=True)
        if again.actions or store.objects() != repaired:
            broken.append(f"a second repair does something: {again.actions}")

        last = self.specimen.last
        slots = {lsn for key in injury.keys if (lsn := WAL.lsn_of(key)) is not None}
        # What was folded is not lost with its slot.
        slots = {lsn for lsn in slots if lsn > self.specimen.folded[self.head]}
        lost = {lsn for lsn in slots if _holds(promise.lost_lsns, lsn)}
        if injury.kind == "remove" and last in slots:
            lost = {last}
        answers = self.questions.ask(store, self._clock())
        read = compare(self.questions, answers, [lost], _pardon(promise))
        broken += [f"after repair: {wrong}" for wrong in read.wrong]
        present = {q: a for q, a in answers.items() if q[0] not in ("generation", "lsn", "changes")}
        broken += [
            f"after repair: {question}: {answer}"
            for question, answer in present.items()
            if isinstance(answer, Exception)
        ]
        now = answers.get(("scan", None))
        if isinstance(now, dict):
            self._check_values(now, broken)
            self._write(store, now, broken)
        return bool(now != self.questions.world(())["scan", None])

    def _check_values(self, now: dict[Id, dict[str, Any]], broken: list[str]) -> None:
        for identity, document in now.items():
            for name, value in document.items():
                if repr(value) not in self._values.get((identity, name), ()):
                    broken.append(f"after repair: {identity!r} has {name} = {value!r}, invented")

    def _write(self, store: Copy, now: dict[Id, dict[str, Any]], broken: list[str]) -> None:
        """The repaired namespace must be one to go on with."""
        fresh: Id = "fresh" if isinstance(self.specimen.ids[0], str) else 1000
        expected = {**now, fresh: {"id": fresh, "n": 1}}
        namespace = database(store, self._clock("writer")).namespace(NAME, maintain=False)
        with namespace:
            namespace.write(upserts=[{"id": fresh, "n": 1}])
            for step in (lambda: None, namespace.index, lambda: namespace.compact(full=True)):
                step()
                found = {d["id"]: d for d in namespace.scan().documents()}
                if found != expected:
                    broken.append(f"after repair and writing: {found} instead of {expected}")
        report = verify(self._tree(store), deep=True)
        broken += [f"after repair and writing: {problem}" for problem in report.problems]

    def _crash(self, injury: Injury, promise: Repaired, verdict: Verdict) -> None:
        """Die before and after every request of the repair that changes anything, and repair."""
        for after in (False, True):
            nth = 0
            while True:
                nth += 1
                store = self.injured(injury)
                before = store.objects()
                faulty = _Faulty(store)
                (faulty.crash_after if after else faulty.crash_before)(nth=nth)
                try:
                    repair(self._tree(faulty, "dying repair"), apply=True)
                except Crash:
                    verdict.crashes += 1
                else:
                    break
                when = f"{'after' if after else 'before'} request {nth}"
                repair(self._tree(store, "repair"), apply=True)
                found = Verdict()
                self._check_aftermath(injury, store, before, promise, found)
                verdict.broken += [f"dying {when}: {wrong}" for wrong in found.broken]

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        """Verify segments that are not injured only once: what is found is a function of their
        bytes, and of what the manifest says of them."""

        def remembered(store: Store, key: str, info: SegmentInfo, *, deep: bool) -> list[Problem]:
            try:
                data = store.get(key).data.obj
            except ObjectNotFound:
                data = None
            if data is None or id(data) not in self._own:
                return verify_segment(store, key, info, deep=deep)
            mark = (id(data), info, deep)
            if mark not in self._sound:
                self._sound[mark] = verify_segment(store, key, info, deep=deep)
            return list(self._sound[mark])

        vars(reef.lsm.repair.health)["verify_segment"] = remembered
        try:
            yield
        finally:
            vars(reef.lsm.repair.health)["verify_segment"] = verify_segment


class _Faulty(FaultyStore):
    @property
    def is_local(self) -> bool:
        return True


def _entry(key: str, data: bytes) -> object | None:
    try:
        return decode(key, memoryview(data))
    except Corruption:
        return None


def _values_of(specimen: Specimen) -> dict[tuple[Id, str], set[str]]:
    """Every value that an attribute of a document ever had."""
    values: dict[tuple[Id, str], set[str]] = {}
    for operations in specimen.slots.values():
        for operation in operations:
            for name, value in (operation.document or {}).items():
                assert operation.id is not None
                values.setdefault((operation.id, name), set()).add(repr(value))
    return values


def _losses(report: Repaired) -> tuple[Any, ...]:
    return (report.quarantined, report.lost_lsns, report.lost_ids, report.lost_keys)


def _pardon(promise: Repaired) -> Callable[[Question, Id], bool]:
    def pardoned(question: Question, identity: Id) -> bool:
        if question[0] == "key":
            return _holds(promise.lost_keys, identity)
        return _holds(promise.lost_ids, identity)

    return pardoned


def _holds(ranges: tuple[tuple[Any, Any], ...], value: Any) -> bool:
    return any(low <= value <= high for low, high in ranges)


def _fingerprint(store: Copy) -> frozenset[tuple[str, object]]:
    marks: list[tuple[str, object]] = []
    for key, found in store.objects().items():
        mark: object = found.data
        if key.startswith(PLACE + QUARANTINE):
            mark = None
        elif WAL.lsn_of(key.removeprefix(PLACE)) is not None:
            mark = _log_mark(key, found.data)
        marks.append((key, mark))
    return frozenset(marks)


def _log_mark(key: str, data: bytes) -> object:
    """The bytes of a log object, or what is wrong with it and how long it is."""
    try:
        decode(key, memoryview(data))
    except Corruption as damage:
        return str(damage), len(data)
    return data


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

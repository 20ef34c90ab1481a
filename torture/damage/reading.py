"""Reading a specimen in every way there is, and what the answers should be.

A *question* is one read. An *answer* is its value, or the error that it raised. A *world* has the
right answers to all questions, given that certain log slots were never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import reef
from reef.documents import Database, Namespace
from reef.errors import (
    Corruption,
    InvalidInput,
    ObjectNotFound,
    PastRetention,
    UnsupportedFormat,
)
from reef.lsm.write.idempotency import recall
from reef.store import MemoryStore, Store
from reef.store.contract import Blob, ObjectInfo, Result
from tests.support.faults import Clock
from torture.damage.specimen import NAME, PLACE, Documents, Id, Specimen

Question = tuple[str, Any]
Answers = dict[Question, Any]

HONEST = (Corruption, UnsupportedFormat, PastRetention, ObjectNotFound)
"""What a read may raise on a damaged namespace: that it is damaged, or that what was asked for is
not there any more."""

FILTER = "n >= 5"
_SCAN: Question = ("scan", None)


class Copy(MemoryStore):
    """A bucket that begins as a copy of another; objects are shared until they are changed."""

    def __init__(self, original: MemoryStore, clock: Clock) -> None:
        super().__init__(clock.environment())
        self._objects = dict(original._objects)
        self._keys = list(original._keys)
        self._writes = original._writes

    def objects(self) -> dict[str, Any]:
        """Every object, its version and time too."""
        return dict(self._objects)

    def _submit(self, call: Callable[[], Result]) -> Future[Result]:
        # No threads: there are thousands of these, and all is in memory.
        future: Future[Result] = Future()
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)
        return future


class _Witness(Copy):
    """A bucket that notes which objects were read."""

    def __init__(self, original: MemoryStore, clock: Clock) -> None:
        super().__init__(original, clock)
        self.read: set[str] = set()

    def get(self, key: str) -> Blob:
        self.read.add(key)
        return super().get(key)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        self.read.add(key)
        return super().get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        self.read.add(key)
        return super().head(key)


def database(store: Store, clock: Clock) -> Database:
    """A database that shares nothing with any other but the store."""
    return Database(store, reef.Options(), clock.environment())


def by_id(documents: Iterable[dict[str, Any]]) -> Documents:
    """Documents by their ids; none may come twice."""
    found: Documents = {}
    for document in documents:
        assert document["id"] not in found, f"{document['id']!r} twice in one scan"
        found[document["id"]] = document
    return found


class Questions:
    """All questions that the intact specimen answers."""

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        self._worlds: dict[frozenset[int], Answers] = {}
        asked: list[Question] = [("scan", None), ("filter", None), ("count", None)]
        asked += [("get", id) for id in specimen.ids]
        asked += [("many", None), ("changes", self._first_slot() - 1)]
        asked += [("key", key) for key in specimen.keys]
        asked += [("generation", generation) for generation in specimen.folded]
        asked += [("lsn", lsn) for lsn in range(specimen.last + 1)]
        intact = self.ask(specimen.store, Clock(specimen.environment.now()), asked)
        self.asked = [q for q in asked if not isinstance(intact[q], Exception)]
        self._changes = intact["changes", self._first_slot() - 1]
        world = self.world(())
        for question in self.asked:
            assert intact[question] == world[question], (specimen.name, question)
        self._opening = self._touched([])
        self._touching = {question: self._touched([question]) for question in self.asked}

    def _touched(self, asked: list[Question]) -> set[str]:
        clock = Clock(self.specimen.environment.now())
        store = _Witness(self.specimen.store, clock)
        self.ask(store, clock, asked)
        return {key.removeprefix(PLACE) for key in store.read}

    def touching(self, keys: Iterable[str]) -> list[Question]:
        """The questions whose answers depend on what some of these objects hold.

        An answer is a function of what is read on the way to it, and of which objects there are.
        (Listings show lengths as well, but no read looks at those.) Where none of that changed, it
        is the answer of the intact specimen.
        """
        if not self._opening.isdisjoint(keys):
            return self.asked
        injured = set(keys)
        return [q for q in self.asked if not self._touching[q].isdisjoint(injured)]

    def _first_slot(self) -> int:
        names = [key for key in self.specimen.content() if key.startswith("wal/")]
        return min(int(name[4:24]) for name in names)

    def ask(self, store: Store, clock: Clock, asked: list[Question] | None = None) -> Answers:
        """Open the namespace as a fresh reader and ask everything. Errors that are no `ReefError`
        are answers too, and wrong ones."""
        asked = self.asked if asked is None else asked
        try:
            namespace = database(store, clock).namespace(NAME, "r")
        except Exception as error:
            return {("open", None): error}
        with namespace:
            return {question: _attempt(namespace, self.specimen, question) for question in asked}

    def world(self, lost: Iterable[int]) -> Answers:
        """The right answers if those slots were never written."""
        gone = frozenset(lost)
        known = self._worlds.get(gone)
        if known is None:
            now = self.specimen.state(self.specimen.last, gone)
            known = self._worlds[gone] = {q: self._right(q, gone, now) for q in self.asked}
        return known

    def world_like(self, now: Documents, lost: Iterable[int]) -> Answers:
        """The right answers if these are the documents of now."""
        gone = frozenset(lost)
        world = dict(self.world(gone))
        for question in self.asked:
            if question[0] in ("scan", "filter", "count", "get", "many"):
                world[question] = self._right(question, gone, now)
        return world

    def _right(self, question: Question, lost: frozenset[int], now: Documents) -> Any:
        specimen = self.specimen
        what, which = question
        if what == "scan":
            return now
        if what == "filter":
            return {id: d for id, d in now.items() if (d.get("n") or 0) >= 5}
        if what == "count":
            return len(now)
        if what == "get":
            return now.get(which)
        if what == "many":
            return [now.get(id) for id in specimen.ids]
        if what == "changes":
            return [change for change in self._changes if change[0] not in lost]
        if what == "key":
            lsn = specimen.keys[which]
            return None if lsn in lost else lsn
        if what == "generation":
            return specimen.state(specimen.folded[which])
        return specimen.state(which, lost)


def _attempt(namespace: Namespace, specimen: Specimen, question: Question) -> Any:
    what, which = question
    try:
        return _ASK[what](namespace, specimen, which)
    except Exception as error:
        return error


def _scan(namespace: Namespace, specimen: Specimen, which: Any) -> Documents:
    return by_id(namespace.scan().documents())


def _filter(namespace: Namespace, specimen: Specimen, which: Any) -> Documents:
    return by_id(namespace.scan(filter=FILTER).documents())


def _changes(namespace: Namespace, specimen: Specimen, after: int) -> list[Any]:
    return [(c.lsn, c.kind, c.id, c.document) for c in namespace.changes(after=after)]


def _key(namespace: Namespace, specimen: Specimen, key: str) -> int | None:
    tree = namespace._tree
    manifest = tree.view.manifest
    readers = [tree.reader_of(info) for info in manifest.window]
    keys = tree.view.unfolded.keys
    receipt = recall(key, keys, readers, manifest.settings, tree.environment.now())
    return None if receipt is None else receipt.lsn


_ASK: dict[str, Callable[[Namespace, Specimen, Any], Any]] = {
    "scan": _scan,
    "filter": _filter,
    "changes": _changes,
    "key": _key,
    "count": lambda namespace, specimen, which: namespace.count(),
    "get": lambda namespace, specimen, id: namespace.get(id),
    "many": lambda namespace, specimen, which: namespace.get_many(specimen.ids),
    "generation": lambda namespace, specimen, number: by_id(
        namespace.at(generation=number).scan().documents()
    ),
    "lsn": lambda namespace, specimen, lsn: by_id(namespace.at(lsn=lsn).scan().documents()),
}


@dataclass(frozen=True)
class Comparison:
    """How answers compare with worlds: what is wrong in the closest one, which slots that one
    lacks, and the errors met."""

    wrong: list[str]
    lost: frozenset[int]
    errors: list[Exception]


def compare(
    questions: Questions,
    answers: Answers,
    worlds: Iterable[Iterable[int]],
    pardon: Callable[[Question, Id], bool] | None = None,
) -> Comparison:
    """Hold answers against worlds, each given by its lost slots; one of them must fit them all.

    What is pardoned, a document or a key of a question, may be another, or gone.
    """
    errors = [answer for answer in answers.values() if isinstance(answer, Exception)]
    strange = [
        f"{question}: {type(answer).__name__}: {answer}"
        for question, answer in answers.items()
        if isinstance(answer, Exception) and not _is_honest(question, answer)
    ]
    found: list[tuple[list[str], frozenset[int]]] = []
    for lost in worlds:
        world = questions.world(lost)
        wrong = []
        if pardon is not None and isinstance(answers.get(_SCAN), dict):
            wrong = _differing(_SCAN, answers[_SCAN], world[_SCAN], pardon)
            world = questions.world_like(answers[_SCAN], lost)
        for question, answer in answers.items():
            if not isinstance(answer, Exception) and answer != world[question]:
                wrong += _differing(question, answer, world[question], pardon)
        found.append((wrong, frozenset(lost)))
        if not wrong:
            break
    best = min(found, key=lambda one: len(one[0]))
    return Comparison(strange + best[0], best[1], errors)


def _is_honest(question: Question, error: Exception) -> bool:
    if question[0] in ("lsn", "generation") and isinstance(error, InvalidInput):
        return True
    return isinstance(error, HONEST)


def _differing(
    question: Question, answer: Any, right: Any, pardon: Callable[[Question, Id], bool] | None
) -> list[str]:
    what, which = question
    if pardon is not None:
        if what == "key" and answer is None and pardon(question, which):
            return []
        if what in ("scan", "lsn"):
            ids = {id for id in {*answer, *right} if answer.get(id) != right.get(id)}
            if all(pardon(question, id) for id in ids):
                return []
    return [f"{question}: {_short(answer)} instead of {_short(right)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else f"{text[:157]}..."

"""The namespaces that are injured: small, so that every byte can be, and with every kind of object.

Three of them, for no one namespace has everything:

- *kept*: ids are strings; nothing was ever collected. Attributes of all types, every kind of log
  record folded and not, segments of two levels, superseded ones too, an idempotency window.
- *bare*: ids are integers; all that is past was collected, so what is live is there once only.
  Segments of several row groups, and a damaged log slot that a repair gave up.
- *emptied*: a truncating load in the unfolded log, above segments that it hides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import reef
from reef.data.convert import convert_rows
from reef.data.rows import UPSERT, with_lsn
from reef.documents import Database, Namespace
from reef.environment import Environment
from reef.log import WAL
from reef.lsm.records import Condemn, encode_condemn
from reef.lsm.repair.repair import repair
from reef.lsm.write.guest import append_as_guest
from reef.lsm.write.ingest import ingest
from reef.manifest import Settings
from reef.segment import split_segments
from reef.store import MemoryStore
from tests.support.faults import Clock

NAME = "n"
PLACE = f"namespaces/{NAME}/"

Id = str | int
Document = dict[str, Any]
Documents = dict[Id, Document]
TEXT = "the quick brown fox jumps over the lazy dog and the lazy dog sleeps on, "


@dataclass(frozen=True)
class Operation:
    """One operation of a log slot: an upsert, patch or delete of an id, or a truncation."""

    kind: str
    id: Id | None = None
    document: Document | None = None


@dataclass
class Specimen:
    """A namespace, and everything that it should say.

    `slots` has the operations of every log slot that was ever won, `keys` the idempotency keys
    with their slots, `folded` for each generation the last slot that its segments hold. What lies
    under `hints` are earlier contents of the hint.
    """

    name: str
    store: MemoryStore
    environment: Environment
    slots: dict[int, tuple[Operation, ...]]
    keys: dict[str, int]
    folded: dict[int, int] = field(default_factory=dict)
    hints: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The newest log slot."""
        return max(self.slots)

    @property
    def ids(self) -> list[Id]:
        """Every id that was ever written, and one that was not."""
        written = {op.id for ops in self.slots.values() for op in ops if op.id is not None}
        absent: Id = "nobody" if isinstance(next(iter(written)), str) else 999
        return [*sorted(written), absent]  # type: ignore[type-var]

    def content(self) -> dict[str, bytes]:
        """Every object, by its key below the namespace's place."""
        return {
            info.key.removeprefix(PLACE): bytes(self.store.get(info.key).data)
            for info in self.store.list(PLACE)
        }

    def state(self, through: int, lost: Iterable[int] = ()) -> Documents:
        """The documents after a slot, as if the lost slots had never been."""
        documents: Documents = {}
        for lsn in sorted(set(self.slots) - set(lost)):
            if lsn > through:
                break
            for operation in self.slots[lsn]:
                _apply(documents, operation)
        return documents


def _apply(documents: Documents, operation: Operation) -> None:
    if operation.kind == "truncate":
        documents.clear()
        return
    assert operation.id is not None
    if operation.kind == "delete":
        documents.pop(operation.id, None)
        return
    assert operation.document is not None
    if operation.kind == "upsert":
        documents[operation.id] = dict(operation.document)
    elif operation.id in documents:
        documents[operation.id].update(operation.document)


class _Maker:
    """Works on a namespace and keeps a record of it."""

    def __init__(self, name: str, seed: int, settings: Settings | None = None, **schema: str):
        self.clock = Clock(seed=seed)
        environment = self.clock.environment()
        self.specimen = Specimen(name, MemoryStore(environment), environment, {}, {})
        self.database = Database(self.specimen.store, reef.Options(), environment)
        self.database.create(NAME, schema=schema or None, settings=settings)
        self.namespace = self.open()

    def open(self) -> Namespace:
        """Take over as a writer. That takes a slot, and so do all the others below."""
        self.clock.advance(1)
        self.namespace = self.database.namespace(NAME, maintain=False)
        self._record(self.namespace.lsn, ())
        return self.namespace

    def write(
        self,
        upserts: Any = None,
        patches: list[Document] | None = None,
        deletes: list[Id] | None = None,
        key: str | None = None,
    ) -> None:
        """A batch in one log object."""
        self.clock.advance(1)
        receipt = self.namespace.write(upserts, patches, deletes, idempotency_key=key)
        operations = [Operation("upsert", row["id"], row) for row in _rows(upserts)]
        operations += [Operation("patch", row["id"], row) for row in patches or ()]
        operations += [Operation("delete", id) for id in deletes or ()]
        self._record(receipt.lsn, operations, key)

    def load(
        self,
        rows: list[Document],
        *,
        key: str | None = None,
        truncate: bool = False,
        groups: bool = False,
    ) -> None:
        """A bulk load; with `groups`, as a segment with a row group for every few rows."""
        self.clock.advance(1)
        if groups:
            receipt = self._load_in_groups(rows)
        else:
            receipt = self.namespace.load(rows, idempotency_key=key, truncate=truncate)
        operations = [Operation("truncate")] if truncate else []
        operations += [Operation("upsert", row["id"], row) for row in rows]
        self._record(receipt.lsn, operations, key)

    def leave_orphan(self, rows: list[Document], key: str) -> None:
        """Load under a key that was used: the load is not done, and its segment not named."""
        self.namespace.load(rows, idempotency_key=key)

    def _load_in_groups(self, rows: list[Document]) -> reef.Receipt:
        tree = self.namespace._tree
        batch, schema = convert_rows(rows, tree.view.schema, kind=UPSERT)
        pieces = (with_lsn(batch.slice(at, 3), 0) for at in range(0, batch.num_rows, 3))
        infos = []
        for parts, info in split_segments(
            pieces,
            schema,
            make_id=tree.environment.unique_id,
            birth=tree.head.manifest.generation,
            run=tree.environment.unique_id(),
            level=0,
            group_bytes=1,
        ):
            tree.store.put(info.key, parts)
            infos.append(info)
        return ingest(tree, infos, schema)

    def condemn(self) -> None:
        """The record that a collector leaves before it deletes orphans."""
        self.clock.advance(1)
        tree = self.namespace._tree
        floor = tree.head.manifest.orphan_floor
        append_as_guest(tree, lambda view: ([], [encode_condemn(Condemn(floor))]))
        self._record(self.namespace.lsn, ())

    def declare(self, **types: str) -> None:
        """Add attribute types through the log."""
        self.clock.advance(1)
        self.namespace.declare(reef.documents.database.declared_schema(types))
        self._record(self.namespace.lsn, ())

    def fold(self) -> None:
        """Put the log into segments."""
        self._keep_hint()
        self.clock.advance(1)
        assert self.namespace.index() is not None

    def compact(self) -> None:
        """All segments into one."""
        self._keep_hint()
        self.clock.advance(1)
        assert self.namespace.compact(full=True) is not None

    def collect(self) -> None:
        """Delete all that is not needed."""
        for _ in range(2):
            self.clock.advance(100)
            self.namespace.gc(apply=True)

    def give_up(self, lsn: int) -> None:
        """Let a log object be damaged and a repair give it up; then write on."""
        self.namespace.close()
        store, key = self.specimen.store, PLACE + WAL.key(lsn)
        store.put(key, bytes(store.get(key).data)[:-9])
        self.clock.advance(1)
        assert repair(self.database._tree(NAME), apply=True).lost_lsns == ((lsn, lsn),)
        self._record(lsn, ())
        self._record(max(self.specimen.slots) + 1, ())
        self.open()

    def _record(self, lsn: int, operations: Iterable[Operation], key: str | None = None) -> None:
        self.specimen.slots[lsn] = tuple(operations)
        if key is not None:
            self.specimen.keys[key] = lsn

    def _keep_hint(self) -> None:
        hint = self.specimen.store.get(f"{PLACE}hint.json")
        self.specimen.hints = [bytes(hint.data)]

    def finished(self) -> Specimen:
        """The specimen, nobody at work on it any more."""
        self.namespace.close()
        specimen = self.specimen
        register = self.namespace._tree.register
        for generation, _ in register.generations():
            specimen.folded[generation] = register.read_generation(generation).last_applied_lsn
        if f"{PLACE}clock" not in {info.key for info in specimen.store.list(PLACE)}:
            specimen.store.put(f"{PLACE}clock", b"")
        return specimen


def _rows(given: Any) -> list[Document]:
    if given is None:
        return []
    if isinstance(given, Mapping):
        columns = list(given)
        return [dict(zip(columns, row, strict=True)) for row in zip(*given.values(), strict=True)]
    return list(given)


def make_kept() -> Specimen:
    """Everything retained."""
    made = _Maker("kept", 1, n="int64", text="string")
    made.write({"id": ["a", "b"], "n": [1, 2]}, key="zero")
    made.load([{"id": "x", "n": 3}])
    made.load([{"id": "c", "n": 3}, {"id": "d", "text": "d"}], truncate=True)
    made.fold()
    made.declare(
        v="vector<float32, 2>",
        t="timestamp",
        j="json",
        y="bytes",
        f="float64",
        b="bool",
        l="list<string>",
    )
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    made.write(
        [
            {
                "id": f"e{n:02}",
                "n": 10_000 * n * n,
                "text": TEXT * 2 + str(n),
                "v": [n / 2, -1.0],
                "t": moment,
                "f": n / 4,
                "l": ["odd" if n % 2 else "even"],
            }
            for n in range(17)
        ],
        deletes=["e16"],
        key="one",
    )
    made.write(
        [{"id": "g", "j": {"x": [1, None]}, "y": b"\0\1", "b": True, "text": None}],
        [{"id": "c", "text": "patched"}],
        ["d"],
    )
    made.fold()
    made.compact()
    made.write(patches=[{"id": "g", "n": 7}, {"id": "e02", "text": "patched"}], deletes=["e01"])
    made.fold()
    made.condemn()
    made.load([{"id": "e03", "n": 33}, {"id": "h", "n": 8}], key="two")
    made.write({"id": ["i", "k"], "n": [1, 2], "b": [True, None]})
    made.open()
    made.write(
        [{"id": "m", "n": 5, "v": [0.5, 2.0]}],
        [{"id": "h", "f": 1.5}, {"id": "e04", "text": "again"}],
        ["e05", "k"],
        key="three",
    )
    made.write([{"id": "z", "n": 26}])
    return made.finished()


def make_bare() -> Specimen:
    """Nothing retained that is past."""
    settings = Settings(retention=10, grace=10)
    made = _Maker("bare", 2, settings, id="uint64", n="int64", text="string")
    made.load([{"id": 10 * n, "n": n, "text": TEXT[:n]} for n in range(1, 9)], groups=True)
    made.write([{"id": 15, "n": 1}, {"id": 20, "n": 77}], deletes=[30], key="one")
    made.fold()
    made.collect()
    made.write([{"id": 17, "n": 1}])
    made.write([{"id": 18, "n": 1}])
    made.give_up(made.namespace.lsn - 1)
    made.load([{"id": 5 * n, "n": n} for n in range(1, 8)], groups=True)
    made.write([{"id": 19, "n": 1}], [{"id": 25, "text": "patched"}], [60], key="two")
    return made.finished()


def make_emptied() -> Specimen:
    """A truncation that is not folded yet, and behind it a writer that came and did nothing."""
    made = _Maker("emptied", 3)
    made.write([{"id": "a", "n": 1}], key="one")
    made.fold()
    made.leave_orphan([{"id": "o", "n": 1}], "one")
    made.load([{"id": "b", "n": 1}])
    made.write([{"id": "c", "n": 1}])
    made.load([{"id": "b", "n": 2}], truncate=True)
    made.write(patches=[{"id": "b", "n": 3}])
    made.open()
    return made.finished()


@lru_cache(maxsize=1)
def specimens() -> dict[str, Specimen]:
    """All of them by name, made once."""
    return {made.name: made for made in (make_kept(), make_bare(), make_emptied())}

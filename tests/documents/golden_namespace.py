"""A whole namespace with every kind of object, as version 1 left it, and what it must answer.

`golden/version-1/` holds the objects, `golden/version-1.json` the answers. They were made by
`make`, once; `python -m documents.golden_namespace` (from `tests`) makes them only where they are
not.
"""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import reef
from reef.documents import Database, Namespace
from reef.documents.reading import Reading
from reef.environment import Environment
from reef.store import MemoryStore, Store

GOLDEN = Path(__file__).parent / "golden"
NAME = "movies"
BEGAN = 1_700_000_000.0


def environment(now: float = BEGAN) -> Environment:
    """A clock that goes on by a second at each look, and chance that repeats."""
    ticks = count()
    random = Random(1)
    return Environment(
        now=lambda: now + next(ticks),
        monotonic=lambda: 0.0,
        entropy=random.randbytes,
        sleep=lambda seconds: None,
    )


def opened(store: Store, mode: str = "r", *, now: float = BEGAN) -> Namespace:
    """The namespace in a store, without upkeep by itself."""
    database = Database(store, reef.Options(), environment(now))
    return database.namespace(
        NAME, mode, maintain=False, settings=reef.Settings(retention=1e9, grace=1e9)
    )


def stored(folder: Path) -> MemoryStore:
    """The golden objects in a store of their own: no test changes what is golden."""
    store = MemoryStore()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(folder).as_posix(), path.read_bytes())
    return store


def written() -> MemoryStore:
    """A namespace that has seen everything: every kind of write, folds, a compaction, loads, and a
    log that goes on above the floor."""
    store = MemoryStore()
    ns = opened(store, "w")
    ns.write(upserts=[{"id": "old", "year": 1}])
    ns.load([{"id": "other", "year": 2}], truncate=True)
    ns.write(
        upserts=[
            {
                "id": f"m{number:02}",
                "title": f"Movie {number} é",
                "year": 1970 + number,
                "price": number / 4,
                "seen": number % 2 == 0,
                "tags": ["a", "b"][: number % 3],
                "poster": bytes([number, 255]),
                "extra": {"n": [number, None]},
            }
            for number in range(12)
        ],
        idempotency_key="first",
    )
    ns.write(patches=[{"id": "m01", "year": None, "title": "Patched"}], deletes=["m02"])
    ns.index()
    vectors = pa.array([[i, i / 2, -i] for i in range(40)], pa.list_(pa.float32(), 3))
    ns.write(upserts=pa.table({"id": [f"v{i:02}" for i in range(40)], "vector": vectors}))
    ns.write(upserts=[{"id": "m03", "year": 2001}], condition=reef.if_exists())
    ns.index()
    ns.load([{"id": f"l{i}", "year": i} for i in range(5)], idempotency_key="load")
    ns.index()
    ns.compact(full=True)
    ns.declare(reef.Schema("string", {"rating": reef.data.types.parse_type("float64")}))
    ns.write(patches=[{"id": "m04", "rating": 4.5}], idempotency_key="last")
    ns.write(delete_where="year >= 1980")
    ns.load([{"id": "l9", "year": 9}])
    ns.write(deletes=["v00", "nobody"], upserts=[{"id": "m00", "extra": {"deep": {"er": [1.5]}}}])
    return store


def answers(ns: Namespace) -> dict[str, Any]:
    """Everything that can be asked, as JSON."""
    generations = [ns.generation - back for back in range(ns.generation)]
    found = {
        "lsn": ns.lsn,
        "generation": ns.generation,
        "schema": ns.schema.to_dict(),
        "scan": list(ns.scan().documents()),
        "some": list(
            ns.scan(start="m01", stop="m05", columns=["year"], filter="year > 1000").documents()
        ),
        "get": [ns.get(id) for id in ("m00", "m01", "m02", "m04", "v01", "l9", "x")],
        "at_generation": {number: _years(ns.at(generation=number)) for number in generations},
        "at_lsn": {lsn: _years(ns.at(lsn=lsn)) for lsn in range(ns.lsn + 1)},
        "changes": [
            [change.lsn, change.kind, change.id, change.document] for change in ns.changes(after=0)
        ],
        "problems": [str(problem) for problem in ns.verify(deep=True).problems],
    }
    text = json.dumps(found, default=lambda value: {"bytes": value.hex()}, ensure_ascii=False)
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def _years(state: Reading) -> dict[Any, Any]:
    return {document["id"]: document.get("year") for document in state.scan().documents()}


def make() -> None:
    """Write the objects and the answers, unless they are there."""
    folder = GOLDEN / "version-1"
    if folder.exists():
        return
    store = written()
    for info in store.list(""):
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(store.get(info.key).data))
    lines = [
        f"{json.dumps(question)}: {json.dumps(answer, ensure_ascii=False)}"
        for question, answer in answers(opened(store)).items()
    ]
    (GOLDEN / "version-1.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    make()

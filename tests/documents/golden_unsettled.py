"""A namespace with types that are not known yet in every kind of object, as version 2 left
it, and what it must answer. `python -m documents.golden_unsettled` (from `tests`) makes
`golden/version-2/` and `golden/version-2.json`, only where they are not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from documents.golden_namespace import GOLDEN, opened
from reef.documents import Namespace
from reef.store import MemoryStore

FOLDER = GOLDEN / "version-2"
ANSWERS = GOLDEN / "version-2.json"


def written() -> MemoryStore:
    """Nulls and empty lists that were written in every way; of some the type is known by now."""
    store = MemoryStore()
    ns = opened(store, "w")
    ns.write(upserts=[{"id": "a", "n": None, "l": [], "j": [None], "open": None, "lists": []}])
    ns.write(upserts=pa.table({"id": ["b"] * 20, "n": pa.nulls(20)}))
    ns.index()
    ns.load([{"id": "c", "n": None, "l": [None], "open": None}])
    ns.write(upserts=[{"id": "d", "n": 7, "l": ["x"], "j": {"k": [1]}}])
    ns.write(patches=[{"id": "d", "open": None}, {"id": "a", "n": 8}])
    ns.write(upserts=[{"id": "e", "n": None, "open": None}])
    return store


def answers(ns: Namespace) -> dict[str, Any]:
    """What is asked, as JSON."""
    found = {
        "schema": ns.schema.to_dict(),
        "scan": list(ns.scan().documents()),
        "table": ns.scan().to_table().to_pylist(),
        "get": [ns.get(id) for id in "abcde"],
        "above": [document["id"] for document in ns.scan(filter="n > 7").documents()],
        "exists": [document["id"] for document in ns.scan(filter="exists open").documents()],
        "changes": [[change.lsn, change.id, change.document] for change in ns.changes(after=0)],
        "before": [list(ns.at(lsn=lsn).scan().documents()) for lsn in range(1, 5)],
        "problems": [str(problem) for problem in ns.verify(deep=True).problems],
    }
    parsed: dict[str, Any] = json.loads(json.dumps(found))
    return parsed


def make() -> None:
    """Write the objects and the answers, unless they are there."""
    if FOLDER.exists():
        return
    store = written()
    for info in store.list(""):
        path = FOLDER / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(store.get(info.key).data))
    lines = [f"{json.dumps(q)}: {json.dumps(a)}" for q, a in answers(opened(store)).items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    make()

"""A namespace written by every format version answers as it did then, and goes on."""

from __future__ import annotations

import json

from documents import golden_unsettled
from documents.golden_namespace import BEGAN, GOLDEN, answers, opened, stored, written

LATER = BEGAN + 1_000


def test_version_1_answers_as_it_did() -> None:
    expected = json.loads((GOLDEN / "version-1.json").read_text())
    found = answers(opened(stored(GOLDEN / "version-1"), now=LATER))
    for question, answer in expected.items():
        assert found[question] == answer, question
    assert found == expected
    assert expected["problems"] == []
    kinds = {change[1] for change in expected["changes"]}
    assert kinds == {"upsert", "patch", "delete", "truncate"}


def test_version_1_has_every_kind_of_object() -> None:
    kinds = {path.parent.name for path in (GOLDEN / "version-1").rglob("*") if path.is_file()}
    assert {"wal", "segments", "manifest"} <= kinds


def test_version_1_goes_on() -> None:
    expected = json.loads((GOLDEN / "version-1.json").read_text())
    store = stored(GOLDEN / "version-1")
    with opened(store, "w", now=LATER) as ns:
        again = ns.write(upserts=[{"id": "new"}], idempotency_key="last")
        assert again.patched == 1
        again = ns.write(upserts=[{"id": "new"}], idempotency_key="first")
        assert again.upserted == 12
        ns.write(upserts=[{"id": "zz", "year": 3000}])
        while ns.index() is not None:
            pass
        ns.compact(full=True)
        assert ns.verify(deep=True).sound
        found = {document["id"]: document for document in answers(ns)["scan"]}
    assert found.pop("zz")["year"] == 3000
    assert found == {document["id"]: document for document in expected["scan"]}


def test_the_same_calls_give_the_same_answers_today() -> None:
    expected = json.loads((GOLDEN / "version-1.json").read_text())
    found = answers(opened(written(), now=LATER))
    assert found["scan"] == expected["scan"]
    assert found["changes"] == expected["changes"]


def test_version_2_answers_as_it_did() -> None:
    expected = json.loads(golden_unsettled.ANSWERS.read_text())
    assert golden_unsettled.answers(opened(stored(golden_unsettled.FOLDER), now=LATER)) == expected
    assert expected["problems"] == []
    assert golden_unsettled.answers(opened(golden_unsettled.written(), now=LATER)) == expected


def test_version_2_goes_on() -> None:
    expected = json.loads(golden_unsettled.ANSWERS.read_text())
    with opened(stored(golden_unsettled.FOLDER), "w", now=LATER) as ns:
        ns.write(patches=[{"id": "e", "open": 1.5}])
        while ns.index() is not None:
            pass
        ns.compact(full=True)
        assert ns.verify(deep=True).sound
        assert list(ns.scan().documents())[:-1] == expected["scan"][:-1]
        assert list(ns.scan(filter="open > 1").documents()) == [{"id": "e", "n": None, "open": 1.5}]

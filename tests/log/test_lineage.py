"""A log that begins at a slot of another one: read as one, written as its own."""

from __future__ import annotations

import pytest

from reef.errors import Corruption, ObjectNotFound
from reef.log import Bucketed, Lineage, Log, LogHeader, LogTail
from reef.log.tail import MissingSlot, heeding_skips
from reef.store import MemoryStore
from support.faults import Clock

ENVIRONMENT = Clock().environment()


def header(lsn: int, writer: str, skips: tuple[int, ...] = ()) -> LogHeader:
    return LogHeader(lsn, writer, 1, f"{writer}{lsn}", 0.0, skips=skips)


class Family:
    """A parent with slots 1 to 100, a child from slot 71 on, and its child from slot 81 on."""

    def __init__(self) -> None:
        self.bucket = MemoryStore()
        self.parent = Log(self.bucket.below("parent"), ENVIRONMENT)
        self.child = self._descends("child", self.parent, 71)
        self.grandchild = self._descends("grandchild", self.child, 81)
        for log, first, last in (
            (self.parent, 1, 100),
            (self.child, 71, 90),
            (self.grandchild, 81, 85),
        ):
            for lsn in range(first, last + 1):
                assert log.append(header(lsn, self.name(log)), []) is None

    def _descends(self, name: str, log: Log, below: int) -> Log:
        store = self.bucket.below(name)
        return Log(store, ENVIRONMENT, Bucketed("log/"), Lineage(log, below))

    def name(self, log: Log) -> str:
        names = {id(self.parent): "parent", id(self.child): "child"}
        return names.get(id(log), "grandchild")


def read(log: Log, first: int, last: int | None = None) -> list[tuple[int, str]]:
    return heeding_skips(
        lambda skips: [
            (entry.lsn, entry.header.writer) for entry in LogTail(log, first, last, skips)
        ]
    )


def expected(first: int, last: int) -> list[tuple[int, str]]:
    writers = ((71, "parent"), (81, "child"), (999, "grandchild"))
    return [
        (lsn, next(name for below, name in writers if lsn < below))
        for lsn in range(first, last + 1)
    ]


def test_it_reads_as_one_log() -> None:
    family = Family()
    assert read(family.grandchild, 1) == expected(1, 85)
    assert read(family.grandchild, 69, 82) == expected(69, 82)
    assert read(family.grandchild, 80, 80) == [(80, "child")]
    assert read(family.grandchild, 83) == expected(83, 85)
    assert [lsn for lsn, _ in family.grandchild.list(60)] == list(range(60, 86))
    assert [lsn for lsn, _ in family.child.list(60)] == list(range(60, 91))
    assert family.grandchild.read(5).header.writer == "parent"
    assert family.grandchild.key(70) == family.parent.naming.key(70)
    assert family.grandchild.key(71) == "log/0000000000000000/0000000000000047"


def test_appends_go_to_its_own_log_only() -> None:
    family = Family()
    assert family.grandchild.append(header(86, "me"), []) is None
    holder = family.grandchild.append(header(81, "me"), [])
    assert holder is not None
    assert holder.header.writer == "grandchild"
    for lsn in (1, 70, 71, 80):
        with pytest.raises(ValueError, match="descends"):
            family.grandchild.append(header(lsn, "me"), [])
    with pytest.raises(ObjectNotFound):
        family.child.read(91)


def test_an_own_log_that_is_empty_yet() -> None:
    family = Family()
    fresh = Log(family.bucket.below("fresh"), ENVIRONMENT, lineage=Lineage(family.parent, 51))
    assert read(fresh, 40) == expected(40, 50)
    assert read(fresh, 51) == []
    tail = LogTail(fresh, 40)
    list(tail)
    assert tail.next_lsn == 51


@pytest.mark.parametrize("lsn", [70, 71, 80, 81])
def test_a_gap_on_either_side_of_the_boundary(lsn: int) -> None:
    family = Family()
    family.grandchild.home(lsn).store.delete(family.grandchild.key(lsn))
    with pytest.raises(MissingSlot) as missing:
        read(family.grandchild, 60)
    assert missing.value.lsn == lsn
    assert missing.value.key == family.grandchild.key(lsn)


def test_what_was_collected_of_the_ancestor_is_missing() -> None:
    family = Family()
    for lsn in range(1, 71):
        family.parent.store.delete(family.parent.key(lsn))
    with pytest.raises(MissingSlot):
        read(family.grandchild, 1)
    with pytest.raises(MissingSlot):
        read(family.grandchild, 70)
    assert read(family.grandchild, 71) == expected(71, 85)


def test_damage_before_the_boundary_is_given_up_by_the_descendant() -> None:
    family = Family()
    key = family.parent.key(70)
    family.parent.store.put(key, bytes(family.parent.store.get(key).data)[:-1])
    with pytest.raises(Corruption, match=key):
        read(family.grandchild, 60)
    assert family.grandchild.append(header(86, "me", skips=(70,)), []) is None
    assert [lsn for lsn, _ in read(family.grandchild, 68)][:3] == [68, 69, 71]
    with pytest.raises(Corruption):
        read(family.child, 60)

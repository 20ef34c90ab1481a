"""Reading the log to its end: what is passed over, what is discarded, what is refused."""

from __future__ import annotations

import pytest

from reef.environment import SYSTEM
from reef.errors import Corruption
from reef.log import Log, LogHeader, LogTail
from reef.log.tail import MissingSlot
from reef.store import CountingStore, MemoryStore


class Slots:
    """A log of empty entries, to be damaged."""

    def __init__(self, count: int, skips: dict[int, tuple[int, ...]] | None = None) -> None:
        self.store = MemoryStore()
        self.log = Log(self.store, SYSTEM)
        for lsn in range(1, count + 1):
            header = LogHeader(lsn, "writer", 1, "nonce", 0.0, skips=(skips or {}).get(lsn, ()))
            assert self.log.append(header, []) is None

    def damage(self, *slots: int) -> None:
        for lsn in slots:
            data = bytearray(self.store.get(Log.key(lsn)).data)
            data[-1] ^= 1
            self.store.put(Log.key(lsn), bytes(data))

    def remove(self, *slots: int) -> None:
        for lsn in slots:
            self.store.delete(Log.key(lsn))

    def tail(self, first: int = 1, last: int | None = None) -> LogTail:
        return LogTail(self.log, first, last)

    def read(self, first: int = 1, last: int | None = None) -> list[int]:
        return [entry.lsn for entry in self.tail(first, last)]


def test_every_entry_in_order() -> None:
    slots = Slots(200)
    tail = slots.tail(5)
    assert [entry.lsn for entry in tail] == list(range(5, 201))
    assert (tail.next_lsn, tail.discarded, tail.objects) == (201, [], 196)
    assert slots.read(5, 7) == [5, 6, 7]


def test_an_empty_log() -> None:
    tail = Slots(0).tail(7)
    assert list(tail) == []
    assert tail.next_lsn == 7


def test_a_damaged_end_was_never_committed(caplog: pytest.LogCaptureFixture) -> None:
    slots = Slots(4)
    slots.damage(4)
    tail = slots.tail()
    assert [entry.lsn for entry in tail] == [1, 2, 3]
    assert (tail.next_lsn, tail.discarded) == (5, [4])
    assert "never committed" in caplog.text


def test_a_damaged_end_that_was_asked_for_is_an_error() -> None:
    slots = Slots(4)
    slots.damage(4)
    with pytest.raises(Corruption):
        slots.read(1, 4)


def test_two_damaged_at_the_end_are_an_error() -> None:
    slots = Slots(4)
    slots.damage(3, 4)
    with pytest.raises(Corruption, match=Log.key(3)):
        slots.read()


def test_damage_in_the_middle_is_an_error() -> None:
    slots = Slots(4, {4: (2,)})
    slots.damage(3)
    with pytest.raises(Corruption, match=Log.key(3)):
        slots.read()


def test_a_gap_is_an_error() -> None:
    slots = Slots(4)
    slots.remove(2)
    with pytest.raises(MissingSlot) as raised:
        slots.read()
    assert raised.value.lsn == 2


@pytest.mark.parametrize("later", [4, 5, 150])
def test_any_later_entry_may_give_slots_up(later: int) -> None:
    slots = Slots(150, {later: (2, 3)})
    slots.damage(2)
    slots.remove(3)
    expected = [lsn for lsn in range(1, 151) if lsn not in (2, 3)]
    assert slots.read() == expected
    assert slots.read(2) == expected[1:]
    assert slots.read(3) == expected[1:]


def test_entries_past_the_last_wanted_count_too() -> None:
    slots = Slots(100, {99: (2, 3)})
    slots.damage(2, 3)
    tail = slots.tail(1, 3)
    assert [entry.lsn for entry in tail] == [1]
    assert tail.next_lsn == 4


def test_two_entries_may_share_the_work() -> None:
    slots = Slots(9, {5: (2,), 9: (6, 7)})
    slots.damage(2, 6, 7)
    assert slots.read() == [1, 3, 4, 5, 8, 9]
    slots.damage(8)
    with pytest.raises(Corruption, match=Log.key(8)):
        slots.read()


def test_an_entry_that_is_damaged_gives_nothing_up() -> None:
    slots = Slots(5, {4: (2,)})
    slots.damage(2, 4)
    with pytest.raises(Corruption, match=Log.key(2)):
        slots.read()


def test_slots_below_the_log_are_missing() -> None:
    slots = Slots(6)
    slots.remove(1, 2, 3)
    with pytest.raises(MissingSlot):
        slots.read(1)
    with pytest.raises(MissingSlot):
        slots.read(1, 2)


def test_a_collected_stretch_costs_one_listing() -> None:
    slots = Slots(120)
    slots.remove(*range(1, 101))
    counting = CountingStore(slots.store)
    with pytest.raises(MissingSlot):
        list(LogTail(Log(counting, SYSTEM), 1))
    assert counting.counts().get == 0


def test_a_sound_log_is_read_once() -> None:
    counting = CountingStore(Slots(120, {100: (3,)}).store)
    assert len(list(LogTail(Log(counting, SYSTEM), 1))) == 120
    assert counting.counts().get == 120

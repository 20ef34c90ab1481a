"""Reading the log to its end: what is passed over, what is discarded, what is refused."""

from __future__ import annotations

import pytest

from reef.errors import Corruption
from reef.log import WAL, Log, LogHeader, LogTail
from reef.log.tail import GivenUp, MissingSlot, heeding_skips
from reef.store import CountingStore, MemoryStore
from support.faults import Clock, FaultyStore, request

ENVIRONMENT = Clock().environment()


class Slots:
    """A log of empty entries, to be damaged."""

    def __init__(self, count: int, skips: dict[int, tuple[int, ...]] | None = None) -> None:
        self.store = MemoryStore()
        self.log = Log(self.store, ENVIRONMENT)
        for lsn in range(1, count + 1):
            header = LogHeader(lsn, "writer", 1, "nonce", 0.0, skips=(skips or {}).get(lsn, ()))
            assert self.log.append(header, []) is None

    def damage(self, *slots: int) -> None:
        for lsn in slots:
            data = bytearray(self.store.get(WAL.key(lsn)).data)
            data[-1] ^= 1
            self.store.put(WAL.key(lsn), bytes(data))

    def remove(self, *slots: int) -> None:
        for lsn in slots:
            self.store.delete(WAL.key(lsn))

    def tail(self, first: int = 1, last: int | None = None) -> LogTail:
        return LogTail(self.log, first, last)

    def read(self, first: int = 1, last: int | None = None) -> list[int]:
        return heeding_skips(
            lambda skips: [entry.lsn for entry in LogTail(self.log, first, last, skips)]
        )


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
    with pytest.raises(Corruption, match=WAL.key(3)):
        slots.read()


def test_damage_in_the_middle_is_an_error() -> None:
    slots = Slots(4, {4: (2,)})
    slots.damage(3)
    with pytest.raises(Corruption, match=WAL.key(3)):
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
    with pytest.raises(Corruption, match=WAL.key(8)):
        slots.read()


def test_an_entry_that_is_damaged_gives_nothing_up() -> None:
    slots = Slots(5, {4: (2,)})
    slots.damage(2, 4)
    with pytest.raises(Corruption, match=WAL.key(2)):
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
        list(LogTail(Log(counting, ENVIRONMENT), 1))
    assert counting.counts().get == 0


def test_a_sound_log_is_read_once() -> None:
    counting = CountingStore(Slots(120).store)
    assert len(list(LogTail(Log(counting, ENVIRONMENT), 1))) == 120
    assert counting.counts().get == 120


@pytest.mark.parametrize("first", [1, 2, 60, 64, 65, 100])
@pytest.mark.parametrize("later", [1, 2, 40, 80])
def test_a_slot_that_is_given_up_is_passed_over_though_it_is_sound(first: int, later: int) -> None:
    slots = Slots(200, {first + later: (first,)})
    expected = [lsn for lsn in range(1, 201) if lsn != first]
    assert slots.read() == expected
    assert slots.read(first) == expected[first - 1 :]
    assert slots.read(1, first + later) == expected[: first + later - 1]


def test_the_entry_behind_the_last_one_wanted_counts() -> None:
    """Whoever takes a damaged end as never committed says so in the slot behind it."""
    slots = Slots(9, {5: (4,)})
    assert slots.read(1, 4) == [1, 2, 3]
    tail = slots.tail(1, 4)
    assert ([entry.lsn for entry in tail], tail.next_lsn) == ([1, 2, 3], 5)


def test_what_was_taken_in_before_is_given_up() -> None:
    slots = Slots(9, {8: (3,)})
    with pytest.raises(GivenUp) as raised:
        list(LogTail(slots.log, 6, held=2))
    assert raised.value.slots == {3}
    assert [entry.lsn for entry in LogTail(slots.log, 6, held=4)] == [6, 7, 8, 9]
    known = frozenset({3})
    assert [entry.lsn for entry in LogTail(slots.log, 6, skips=known, held=2)] == [6, 7, 8, 9]


def test_a_consumer_that_cannot_take_back_is_not_disturbed() -> None:
    slots = Slots(9, {8: (3, 7)})
    told = [entry.lsn for entry in LogTail(slots.log, 1, takes_back=False)]
    assert told == [1, 2, 3, 4, 5, 6, 8, 9]


def test_no_entry_gives_up_itself_or_what_comes_after() -> None:
    assert Slots(6, {3: (3, 4, 5)}).read() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("slot", [2, 4])
@pytest.mark.parametrize("times", [1, 3])
def test_damage_on_the_way_is_not_believed(slot: int, times: int) -> None:
    slots = Slots(4)
    faulty = FaultyStore(slots.store)
    faulty.damage(request("get", WAL.key(slot)), times=times)
    tail = LogTail(Log(faulty, ENVIRONMENT), 1)
    assert [entry.lsn for entry in tail] == [1, 2, 3, 4]
    assert (tail.next_lsn, tail.discarded) == (5, [])


def test_damage_that_stays_is_believed_in_the_end() -> None:
    slots = Slots(4)
    slots.damage(4)
    counting = CountingStore(slots.store)
    with pytest.raises(Corruption):
        Log(counting, ENVIRONMENT).read(4)
    assert counting.counts().get == 4

"""Slots: who wins one, and reading them in order."""

from __future__ import annotations

import logging
from threading import Thread

import pytest

from reef.environment import Environment
from reef.errors import CommitUncertain, Corruption, ObjectNotFound
from reef.log import Log, LogHeader, LogTail
from reef.log.tail import MissingSlot
from reef.store import MemoryStore, Store
from support.faults import Clock, FaultyStore, request


def log_of(store: Store, clock: Clock | None = None) -> Log:
    return Log(store, clock.environment() if clock else Environment())


def header(lsn: int, writer: str = "w", nonce: str = "n", **more: object) -> LogHeader:
    return LogHeader(lsn, writer, 1, nonce, 0.0, **more)  # type: ignore[arg-type]


def fill(log: Log, *slots: int) -> None:
    for lsn in slots:
        assert log.append(header(lsn, nonce=str(lsn)), [[b"%d" % lsn]]) is None


def damage(store: Store, lsn: int) -> None:
    store.put(Log.key(lsn), bytes(store.get(Log.key(lsn)).data)[:-1])


def test_keys() -> None:
    assert Log.key(7) == "wal/00000000000000000007.wal"
    assert Log.lsn_of(Log.key(2**63)) == 2**63
    for strange in ("wal/7.wal", "wal/x.wal", "wal/0000000000000000000x.wal", "other", "wal/"):
        assert Log.lsn_of(strange) is None


def test_one_winner_a_slot(store: Store) -> None:
    holders: list[tuple[int, str | None]] = []

    def race(number: int) -> None:
        log = log_of(store)
        for lsn in range(1, 6):
            holder = log.append(header(lsn, f"w{number}", f"{number}"), [[b"x"]])
            holders.append((lsn, holder.header.writer if holder else None))

    threads = [Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lsn in range(1, 6):
        told = [writer for slot, writer in holders if slot == lsn]
        assert told.count(None) == 1
        winner = log_of(store).read(lsn).header.writer
        assert {writer for writer in told if writer} == {winner}


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
def test_an_own_entry_is_a_success(fault: str) -> None:
    faulty = FaultyStore(MemoryStore())
    getattr(faulty, fault)(request("create"))
    assert log_of(faulty, Clock()).append(header(1), []) is None


def test_an_entry_of_an_earlier_attempt_is_somebody_elses() -> None:
    log = log_of(MemoryStore(), Clock())
    assert log.append(header(1, nonce="first"), []) is None
    holder = log.append(header(1, nonce="second"), [])
    assert holder is not None
    assert holder.header.nonce == "first"


def test_refusals_are_tried_again() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.refuse(request("create"), times=3)
    assert log_of(faulty, Clock()).append(header(1), []) is None


def test_a_store_that_says_nothing() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.refuse(request("create"), times=100)
    with pytest.raises(CommitUncertain):
        log_of(faulty, Clock()).append(header(1), [])
    with pytest.raises(ObjectNotFound):
        log_of(faulty).read(1)


def test_a_slot_that_holds_anothers_entry() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1)
    store.put(Log.key(2), store.get(Log.key(1)).data)
    with pytest.raises(Corruption, match="slot 1"):
        log.read(2)


def test_the_tail_in_order() -> None:
    log = log_of(MemoryStore())
    fill(log, *range(1, 151))
    tail = LogTail(log, 3)
    assert [entry.lsn for entry in tail] == list(range(3, 151))
    assert (tail.next_lsn, tail.discarded) == (151, [])
    tail = LogTail(log, 3, 80)
    assert [entry.lsn for entry in tail] == list(range(3, 81))
    assert tail.next_lsn == 81


def test_an_empty_tail() -> None:
    tail = LogTail(log_of(MemoryStore()), 5)
    assert list(tail) == []
    assert tail.next_lsn == 5


@pytest.mark.parametrize("last", [1, 64, 65])
def test_a_damaged_end_is_left_out(last: int, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, *range(1, last + 1))
    damage(store, last)
    tail = LogTail(log, 1)
    with caplog.at_level(logging.ERROR, "reef"):
        assert [entry.lsn for entry in tail] == list(range(1, last))
    assert (tail.next_lsn, tail.discarded) == (last + 1, [last])
    assert Log.key(last) in caplog.text


def test_a_damaged_middle_is_corruption() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2, 3)
    damage(store, 2)
    with pytest.raises(Corruption, match=Log.key(2)):
        list(LogTail(log, 1))


def test_two_damaged_at_the_end_are_corruption() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2, 3)
    damage(store, 2)
    damage(store, 3)
    with pytest.raises(Corruption, match=Log.key(2)):
        list(LogTail(log, 1))


def test_a_damaged_slot_that_was_given_up() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2)
    damage(store, 2)
    assert log.append(header(3, nonce="3", skips=(2,)), []) is None
    assert [entry.lsn for entry in LogTail(log, 1)] == [1, 3]
    fill(log, 4)
    assert [entry.lsn for entry in LogTail(log, 1)] == [1, 3, 4]


def test_a_gap_is_a_missing_slot() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2, 3)
    store.delete(Log.key(2))
    with pytest.raises(MissingSlot) as caught:
        list(LogTail(log, 1))
    assert caught.value.lsn == 2


def test_a_listing_that_misses_a_slot_that_is_there() -> None:
    """It is no snapshot: two slots written while it was made may show only the later one."""

    class Racy(MemoryStore):
        def list(self, prefix: str, *, start_after: str = ""):  # type: ignore[no-untyped-def]
            for info in super().list(prefix, start_after=start_after):
                if info.key != Log.key(2):
                    yield info

    log = log_of(Racy())
    fill(log, 1, 2, 3)
    assert [entry.lsn for entry in LogTail(log, 1)] == [1, 2, 3]

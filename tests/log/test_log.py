"""Slots: who wins one, and reading them in order."""

from __future__ import annotations

import logging
from threading import Thread

import pytest

from reef.environment import Environment
from reef.errors import (
    AccessDenied,
    CommitUncertain,
    Corruption,
    InvalidInput,
    ObjectNotFound,
)
from reef.log import WAL, BatchHeader, Log, LogHeader, LogTail
from reef.log.tail import MissingSlot
from reef.store import CountingStore, MemoryStore, Store
from support.faults import Clock, FaultyStore, request


def log_of(store: Store, clock: Clock | None = None) -> Log:
    return Log(store, clock.environment() if clock else Environment())


def header(lsn: int, writer: str = "w", nonce: str = "n", **more: object) -> LogHeader:
    return LogHeader(lsn, writer, 1, nonce, 0.0, **more)  # type: ignore[arg-type]


def fill(log: Log, *slots: int) -> None:
    for lsn in slots:
        assert log.append(header(lsn, nonce=str(lsn)), [[b"%d" % lsn]]) is None


def damage(store: Store, lsn: int) -> None:
    store.put(WAL.key(lsn), bytes(store.get(WAL.key(lsn)).data)[:-1])


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
    store.put(WAL.key(2), store.get(WAL.key(1)).data)
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
    assert WAL.key(last) in caplog.text


def test_a_damaged_middle_is_corruption() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2, 3)
    damage(store, 2)
    with pytest.raises(Corruption, match=WAL.key(2)):
        list(LogTail(log, 1))


def test_two_damaged_at_the_end_are_corruption() -> None:
    store = MemoryStore()
    log = log_of(store)
    fill(log, 1, 2, 3)
    damage(store, 2)
    damage(store, 3)
    with pytest.raises(Corruption, match=WAL.key(2)):
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
    store.delete(WAL.key(2))
    with pytest.raises(MissingSlot) as caught:
        list(LogTail(log, 1))
    assert caught.value.lsn == 2


def test_a_listing_that_misses_a_slot_that_is_there() -> None:
    """It is no snapshot: two slots written while it was made may show only the later one."""

    class Racy(MemoryStore):
        def list(self, prefix: str, *, start_after: str = ""):  # type: ignore[no-untyped-def]
            for info in super().list(prefix, start_after=start_after):
                if info.key != WAL.key(2):
                    yield info

    log = log_of(Racy())
    fill(log, 1, 2, 3)
    assert [entry.lsn for entry in LogTail(log, 1)] == [1, 2, 3]


def refuse_for_good() -> None:
    raise AccessDenied("this is not for you")


def test_a_refusal_for_good_is_passed_on_at_once() -> None:
    counting = CountingStore(MemoryStore())
    faulty = FaultyStore(counting)
    faulty.pause_before(request("create"), refuse_for_good)
    with pytest.raises(AccessDenied):
        log_of(faulty, Clock()).append(header(1), [])
    assert counting.counts().requests == 0


@pytest.mark.parametrize("kind", ["create", "get"])
def test_a_refusal_after_a_request_that_may_have_happened_leaves_it_uncertain(kind: str) -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.lose_answer(request("create"))
    if kind == "create":
        faulty.refuse(request("get"))
    faulty.pause_before(request(kind), refuse_for_good, nth=2 if kind == "create" else 1)
    with pytest.raises(CommitUncertain, match="not for you"):
        log_of(faulty, Clock()).append(header(1), [])
    assert log_of(faulty).read(1).header.nonce == "n"


@pytest.mark.parametrize("value", [object(), "\ud800", {1: 2, None: 3}])
def test_what_cannot_be_encoded_is_not_sent(value: object) -> None:
    counting = CountingStore(MemoryStore())
    batch = BatchHeader(1, condition={"values": value})
    with pytest.raises(InvalidInput):
        log_of(counting).append(header(1, batches=(batch,)), [])
    assert counting.counts().requests == 0


def test_an_answer_that_was_damaged_on_its_way_is_read_again() -> None:
    faulty = FaultyStore(MemoryStore())
    faulty.lose_answer(request("create"))
    faulty.damage(request("get"))
    assert log_of(faulty, Clock()).append(header(1), []) is None

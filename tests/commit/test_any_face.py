"""Register, log and commits without the tree: the kernel serves a face that it does not know."""

from __future__ import annotations

from threading import Thread

import pytest

from commit.counters import LOG, Add, Counters, CountersRoot, CountersWriter, added
from reef.commit import append_as_guest, give_up, plug
from reef.errors import (
    AccessDenied,
    Closed,
    CommitUncertain,
    ConcurrentPublication,
    ConditionFailed,
    Corruption,
    Fenced,
    InvalidInput,
    StoreUnavailable,
)
from reef.log import WAL, Lineage, Naming
from reef.log.tail import MissingSlot
from reef.manifest import take_over
from reef.store import CountingStore, MemoryStore, Store
from support.faults import Clock, FaultyStore, request


class World:
    """A bucket of counters; `faulty` is what the actor in trouble sees of it."""

    def __init__(self, naming: Naming) -> None:
        self.clock = Clock()
        self.naming = naming
        self.store = MemoryStore(self.clock.environment())
        self.faulty = FaultyStore(self.store)
        self.counters(self.store).create()

    def counters(self, store: Store | None = None) -> Counters:
        return Counters(store or self.store, self.clock.environment(), self.naming)

    def follower(self) -> Counters:
        counters = self.counters()
        counters.recover()
        return counters

    def writer(self, store: Store | None = None) -> CountersWriter:
        writer = CountersWriter(self.counters(store))
        writer.open()
        return writer

    def counts(self) -> dict[str, int]:
        return self.follower().state.counts


@pytest.fixture(params=[LOG, WAL], ids=["bucketed", "flat"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def test_commits_are_read_by_everybody(world: World) -> None:
    reader = world.follower()
    writer = world.writer()
    assert writer.add("a") == (2, 1)
    assert writer.add("a", 4) == (3, 5)
    assert writer.add("b", 2) == (4, 2)
    assert writer.counters.state.counts == world.counts() == {"a": 5, "b": 2}
    reader.refresh()
    assert reader.state.counts == {"a": 5, "b": 2}
    assert writer.add("a", 0) == (4, 5)
    with pytest.raises(ConditionFailed):
        writer.add("a", -6)
    assert writer.add("a", -5) == (5, 0)


def test_folds_move_the_floor_for_followers(world: World) -> None:
    writer, reader = world.writer(), world.follower()
    for _ in range(3):
        writer.add("a")
        writer.counters.fold(forget=True)
        writer.add("b")
        reader.refresh()
        assert reader.state.counts == world.counts() == writer.counters.state.counts
        assert reader.state.floor == writer.counters.state.floor
    late = world.follower()
    writer.counters.fold(forget=True)
    head = writer.counters.head.root
    for lsn in range(1, head.floor):
        world.store.delete(world.naming.key(lsn))
    late.refresh()
    assert late.state.counts == {"a": 3, "b": 3}
    assert writer.add("b") == (head.floor, 4)


def test_a_lost_slot_is_told(world: World) -> None:
    writer = world.writer()
    for _ in range(4):
        writer.add("a")
    world.store.delete(world.naming.key(3))
    with pytest.raises(MissingSlot) as missing:
        world.follower()
    assert missing.value.key == world.naming.key(3)
    plug(world.counters(), 3)
    assert world.counts() == {"a": 3}


def test_a_writer_is_fenced_by_its_successor(world: World) -> None:
    first = world.writer()
    first.add("a")
    second = world.writer()
    with pytest.raises(Fenced, match=r"epoch 1 was superseded by 2 in slot 3, which \w+ holds"):
        first.add("a")
    with pytest.raises(Fenced):
        first.add("b")
    assert second.add("a") == (4, 2)
    assert world.counts() == {"a": 2}


def test_a_writer_that_learned_of_its_successor_from_the_root(world: World) -> None:
    first = world.writer()
    epoch, head = take_over(first.counters.register, "writer_epoch")
    first.counters.advance(head)
    with pytest.raises(Fenced, match=f"superseded by {epoch}"):
        first.add("a")
    assert world.counts() == {}


def test_any_epoch_can_be_raised(world: World) -> None:
    register = world.counters().register
    assert take_over(register, "master_epoch")[0] == 1
    assert take_over(register, "master_epoch", above=6)[0] == 7
    assert register.head().root.writer_epoch == 0


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate", "refuse"])
def test_a_lost_answer_is_no_lost_commit(world: World, fault: str) -> None:
    writer = world.writer(world.faulty)
    getattr(world.faulty, fault)(request("create", world.naming.prefix))
    assert writer.add("a") == (2, 1)
    assert writer.add("a") == (3, 2)
    assert world.counts() == {"a": 2}


@pytest.mark.parametrize("happened", [True, False])
def test_what_nobody_could_tell_is_settled_before_anything_is_decided(
    world: World, happened: bool
) -> None:
    writer = world.writer(world.faulty)
    fault = world.faulty.lose_answer if happened else world.faulty.refuse
    fault(request("create", world.naming.prefix), times=6 if happened else 12)
    if happened:
        world.faulty.refuse(request("get", world.naming.prefix), times=6)
    with pytest.raises(CommitUncertain):
        writer.add("a")
    assert writer.counters.unsettled
    if not happened:
        with pytest.raises(StoreUnavailable, match="not settled yet"):
            writer.add("a", -1)
    if happened:
        assert writer.add("a", -1)[1] == 0
    else:
        with pytest.raises(ConditionFailed):
            writer.add("a", -1)
    assert not writer.counters.unsettled
    assert world.counts() == writer.counters.state.counts


def test_a_refusal_for_good_is_told_as_it_is(world: World) -> None:
    counting = CountingStore(world.store)
    faulty = FaultyStore(counting)
    writer = world.writer(faulty)

    def refuse() -> None:
        raise AccessDenied("not for you")

    before = counting.counts().requests
    faulty.pause_before(request("create", world.naming.prefix), refuse)
    with pytest.raises(AccessDenied):
        writer.add("a")
    assert counting.counts().requests == before
    assert not writer.counters.unsettled
    assert writer.add("a") == (2, 1)


def test_a_guest_comes_first_and_is_heeded(world: World) -> None:
    writer, guest = world.writer(), world.counters()
    writer.add("a")
    assert append_as_guest(guest, lambda: added("a", -1)) == 3
    entry = guest.log.read(3)
    assert (entry.header.guest, entry.header.epoch) == (True, 1)
    # What was admitted against an older state is admitted again.
    with pytest.raises(ConditionFailed):
        writer.add("a", -1)
    assert world.counts() == writer.counters.state.counts == {"a": 0}
    assert writer.add("a") == (4, 1)


def test_a_guest_decides_again_when_it_was_late(world: World) -> None:
    writer = world.writer()
    guest = world.counters(world.faulty)
    seen: list[int] = []

    def decide() -> object | None:
        seen.append(guest.state.counts.get("a", 0))
        return added("a", 10) if len(seen) < 3 else None

    world.faulty.pause_before(request("create", world.naming.prefix), lambda: writer.add("a"))
    assert append_as_guest(guest, decide) == 3  # type: ignore[arg-type]
    assert seen == [0, 1]
    assert append_as_guest(guest, decide) is None  # type: ignore[arg-type]
    assert world.counts() == {"a": 11}


def test_a_writer_that_slept_in_the_middle_cannot_know(world: World) -> None:
    first = world.writer(world.faulty)
    first.add("a")

    def sleep() -> None:
        second = world.writer()
        second.add("b")
        second.counters.fold(forget=True)
        for lsn in range(1, second.counters.state.floor):
            world.store.delete(world.naming.key(lsn))
        world.clock.advance(60)

    world.faulty.pause_before(request("create", world.naming.prefix), sleep)
    with pytest.raises(CommitUncertain, match="folded and collected"):
        first.add("a")
    with pytest.raises(Fenced):
        first.add("a")
    assert world.counts() == {"a": 1, "b": 1}


def test_a_writer_that_slept_before_looks_first(world: World) -> None:
    first = world.writer()
    take_over(world.counters().register, "writer_epoch")
    world.clock.advance(60)
    with pytest.raises(Fenced):
        first.add("a")
    assert world.counts() == {}


def test_a_slot_is_given_up_for_everybody(world: World) -> None:
    writer, reader = world.writer(), world.follower()
    lsn, _ = writer.add("a")
    writer.add("b")
    reader.refresh()
    assert give_up(world.counters(), 2, 0, [lsn]) == 4
    for follower in (reader, writer.counters):
        follower.refresh()
        assert follower.state.counts == world.counts() == {"b": 1}
    assert writer.add("a")[1] == 1


def test_giving_up_in_a_slot_that_was_collected_is_refused(world: World) -> None:
    writer = world.writer()
    writer.add("a")
    writer.counters.fold(forget=True)
    world.store.delete(world.naming.key(1))
    with pytest.raises(ConcurrentPublication):
        give_up(world.counters(), 1, 0, [1])


@pytest.mark.parametrize("bad", ["note", "amount"])
def test_what_cannot_be_written_fails_alone(world: World, bad: str) -> None:
    writer = world.writer(world.faulty)
    told: dict[str, object] = {}

    def add(name: str, request: Add) -> None:
        try:
            told[name] = writer.commit(request)
        except Exception as error:
            told[name] = error

    broken = Add("x", note="\ud800") if bad == "note" else Add("x", complex(1, 1))
    requests = [Add("a"), broken, Add("b"), Add("x", note=object()), Add("c")]
    threads = [
        Thread(target=add, args=(str(number), request)) for number, request in enumerate(requests)
    ]

    def arrive() -> None:
        for number, thread in enumerate(threads):
            thread.start()
            while writer.waiting < number + 2:
                pass

    world.faulty.pause_before(request("create", world.naming.prefix), arrive)
    writer.add("first")
    for thread in threads:
        thread.join()
    for number in (1, 3):
        assert isinstance(told[str(number)], InvalidInput), told
    assert [told[str(number)][1] for number in (0, 2, 4)] == [1, 1, 1]  # type: ignore[index]
    assert world.counts() == {"a": 1, "b": 1, "c": 1, "first": 1}
    assert writer.add("last")[1] == 1
    assert not writer.counters.unsettled


def test_closing(world: World) -> None:
    writer = world.writer()
    writer.add("a")
    writer.close()
    with pytest.raises(Closed):
        writer.add("a")
    assert world.counts() == {"a": 1}


class Branch:
    """A counter whose log begins at a slot of another's."""

    def __init__(self, world: World, parent: CountersWriter, below: int) -> None:
        self.world = world
        self.lineage = Lineage(parent.counters.log, below)
        self.store = world.store.below("branch")
        root = parent.counters.head.root
        self.counters().create(
            floor=root.floor, retained=root.retained, counts=root.counts, writer_epoch=0
        )

    def counters(self) -> Counters:
        environment = self.world.clock.environment()
        return Counters(self.store, environment, LOG, self.lineage)

    def writer(self) -> CountersWriter:
        writer = CountersWriter(self.counters())
        writer.open()
        return writer

    def counts(self) -> dict[str, int]:
        counters = self.counters()
        counters.recover()
        return counters.state.counts


def test_a_log_that_descends_from_another(world: World) -> None:
    parent = world.writer()
    parent.add("a")
    parent.counters.fold()
    parent.add("b", 2)
    branch = Branch(world, parent, below=4)
    parent.add("b", 3)
    assert branch.counts() == {"a": 1, "b": 2}
    writer = branch.writer()
    assert writer.epoch == 2
    assert writer.add("b") == (5, 3)
    assert parent.add("b") == (5, 6)
    assert append_as_guest(branch.counters(), lambda: added("c", 1)) == 6
    assert writer.add("c") == (7, 2)
    assert branch.counts() == writer.counters.state.counts == {"a": 1, "b": 3, "c": 2}
    assert world.counts() == {"a": 1, "b": 6}
    successor = branch.writer()
    with pytest.raises(Fenced):
        writer.add("b")
    successor.counters.fold(forget=True)
    assert branch.counts() == {"a": 1, "b": 3, "c": 2}
    # Nothing before its floor is read any more.
    world.store.delete(world.naming.key(3))
    assert branch.counts() == {"a": 1, "b": 3, "c": 2}


def test_an_ancestors_slot_that_is_gone_or_damaged(world: World) -> None:
    parent = world.writer()
    for _ in range(3):
        parent.add("a")
    branch = Branch(world, parent, below=4)
    writer = branch.writer()
    writer.add("a")
    key = world.naming.key(2)
    data = bytes(world.store.get(key).data)
    world.store.put(key, data[:-1])
    with pytest.raises(Corruption, match=key):
        branch.counts()
    world.store.delete(key)
    with pytest.raises(MissingSlot):
        branch.counts()
    world.store.put(key, data)
    assert branch.counts() == {"a": 3}


def test_the_root_is_a_type_of_its_own() -> None:
    assert CountersRoot(1, "n", 0.0, "p", "x").lease == 10.0

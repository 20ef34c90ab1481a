"""A slice of murder: every crash point on a folder, random kills on a folder and on S3, and the
server itself. And that it would tell."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torture.murder.agenda import Agenda
from torture.murder.batch import SMALL_KINDS, Row, check_text, make_batch, make_text
from torture.murder.campaign import Campaign
from torture.murder.crash_points import CRASH_POINTS, CrashPoint
from torture.murder.life import Habits
from torture.murder.nursery import Nursery
from torture.murder.place import Folder, Place, Server
from torture.murder.round import Plan, Round
from torture.murder.witness import Lane, Node, Violation
from torture.share import Failure, Share

QUICK = Habits(retention=0.4, grace=0.8, fold_objects=4)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("nursery") / "victims.log") as nursery:
        yield nursery


def play(
    nursery: Nursery,
    place: Place,
    plan: Plan,
    finished: Callable[[Round], bool],
    points: tuple[CrashPoint, ...] = (),
    seed: int = 1,
) -> Round:
    one = Round(nursery, place, plan, Agenda(points), seed)
    deadline = time.monotonic() + 200
    one.run(lambda: finished(one) or time.monotonic() > deadline)
    assert one.hearing.lost == 0
    assert one.counts["inspections"] == 1
    return one


@pytest.mark.timeout(300)
def test_every_crash_point_in_a_folder(nursery: Nursery, tmp_path: Path) -> None:
    one = play(
        nursery,
        Folder(tmp_path),
        Plan(QUICK),
        lambda one: not one.agenda.left,
        CRASH_POINTS,
    )
    assert [point.name for point in one.agenda.left] == []
    assert one.counts["kills at crash points"] >= len(CRASH_POINTS)
    assert one.counts["acknowledged writes"] > 0
    assert one.counts["objects collected"] > 0


@pytest.mark.timeout(300)
def test_random_kills_in_a_folder(nursery: Nursery, tmp_path: Path) -> None:
    plan = Plan(QUICK, mean_life=0.15, takeovers=0.2)
    one = play(nursery, Folder(tmp_path), plan, lambda one: one.counts["kills"] >= 20, seed=2)
    assert one.counts["acknowledged writes"] > 0


@pytest.mark.timeout(300)
def test_random_kills_on_a_server_that_is_killed_too(nursery: Nursery, tmp_path: Path) -> None:
    plan = Plan(QUICK, mean_life=0.2, takeovers=0.0, server_kills=(1.5,))
    with Server(tmp_path) as place:
        one = play(
            nursery,
            place,
            plan,
            lambda one: one.counts["kills"] >= 10 and one.counts["server kills"] > 0,
            seed=3,
        )
    assert one.counts["server kills"] == 1
    assert one.counts["acknowledged writes"] > 0
    assert one.counts["plain objects that the server lost"] == 0


@pytest.mark.timeout(300)
def test_a_store_that_is_slow_and_out_of_order(nursery: Nursery, tmp_path: Path) -> None:
    outage = (1.0, 2.0, 0.8)
    plan = Plan(QUICK, takeovers=0.0, slow=0.03, outages=(outage,), kill=False)
    one = play(nursery, Folder(tmp_path), plan, lambda one: one.counts["outages"] > 0, seed=4)
    assert one.counts["recoveries without a restart"] > 0
    assert one.counts["errors met"] + one.counts["unknown outcomes"] > 0


@pytest.mark.timeout(300)
def test_a_store_that_lies_is_found_out(nursery: Nursery, tmp_path: Path) -> None:
    """Log objects that were acknowledged and are not there: what all this is for."""
    plan = Plan(QUICK, lies=0.2, kill=False)
    with pytest.raises(Violation):
        play(nursery, Folder(tmp_path), plan, lambda one: one.counts["acknowledged writes"] > 500)


def test_a_share_counts_and_tells(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    failures: list[Failure] = []

    def count(name: str, many: int) -> None:
        counts[name] += many

    began = time.monotonic()
    share = Share(0, 40, 5, lambda: time.monotonic() - began > 60, count, failures.append)
    campaign = Campaign(share, "folder", Folder(tmp_path))
    try:
        campaign.next_round()
    finally:
        campaign.close()
    assert failures == []
    assert counts["folder: crash points met"] == 2  # of more than forty, every fortieth
    assert counts["folder: kills at crash points"] >= 2
    assert counts["folder: acknowledged writes lost"] == 0


# What the witness takes for possible.


def lane_of(*kinds: str) -> Lane:
    """A lane with an acknowledged batch of each kind, in slots 1, 2, …"""
    lane = Lane("a")
    for number, kind in enumerate(kinds, 1):
        lane.intent(make_batch("a", number, kind, True))
        counts = lane.ends[-1].counts
        lane.acknowledged(number, number, counts)
    return lane


def states(lane: Lane) -> list[dict[str, Row]]:
    """Every state that the lane was in, oldest first."""
    (end,) = lane.ends
    return [dict(node.state) for node in end.line()][::-1]


def test_what_was_acknowledged_must_be_seen() -> None:
    lane = lane_of("upsert", "upsert", "upsert")
    first, second, third, fourth = states(lane)
    lane.seen(fourth, 3, 3)
    lane.seen(second, 1, 1)
    lane.seen(third, 1, 2)
    for lost in (first, second, third):
        with pytest.raises(Violation):
            lane.seen(lost, 3, 3)
    with pytest.raises(Violation):
        lane.seen(fourth, 2, 2)
    assert lane.lost(second) == 2


def test_a_batch_is_seen_whole() -> None:
    lane = lane_of("upsert", "large")
    whole = states(lane)[-1]
    some = dict(whole)
    some.pop("a/large-3")
    with pytest.raises(Violation):
        lane.seen(some, 2, 2)


@pytest.mark.parametrize("happened", [True, False])
def test_what_is_unknown_is_decided_once(happened: bool) -> None:
    lane = lane_of("upsert")
    lane.intent(make_batch("a", 2, "upsert", False))
    lane.settle()
    without, within = (dict(end.state) for end in lane.ends)
    lane.fenced_at(3)
    lane.seen(within if happened else without, 3, 3)
    lane.seen(within if happened else without, 4, 4)
    with pytest.raises(Violation):
        lane.seen(without if happened else within, 4, 4)


def test_a_key_that_is_tried_again_happens_once() -> None:
    lane = lane_of("upsert")
    batch = make_batch("a", 2, "upsert", True)
    lane.intent(batch)
    lane.settle()
    assert lane.retry is batch
    lane.intent(batch)
    lane.acknowledged(2, 2, lane.ends[-1].counts)
    assert all(sum(node.batch == batch for node in end.line()) == 1 for end in lane.ends)
    lane.seen(lane.ends[-1].state, 2, 2)


def test_a_refused_attempt_says_nothing_of_the_one_before() -> None:
    lane = lane_of("upsert")
    batch = make_batch("a", 2, "upsert", True)
    lane.intent(batch)
    without, within = (dict(end.state) for end in lane.ends)
    lane.unknown(2)
    lane.intent(batch)
    lane.refused(2, "refused")
    assert lane.retry is batch
    lane.seen(without, 1, 1)
    lane.seen(within, 3, 3)


def test_what_was_refused_must_not_be_seen() -> None:
    lane = lane_of("upsert")
    lane.intent(make_batch("a", 2, "upsert", False))
    written = dict(lane.ends[-1].state)
    lane.refused(2, "refused")
    with pytest.raises(Violation):
        lane.seen(written, 2, 2)


def test_a_condition_is_judged() -> None:
    lane = Lane("a", [Node({"a/00": (1, 1, 1)})])
    failing = make_batch("a", 2, "upsert", False)
    lane.intent(failing)
    with pytest.raises(Violation):
        lane.refused(2, "failed")
    lane.ends, lane.open = [Node({})], None
    lane.intent(make_batch("a", 3, "update", False))
    with pytest.raises(Violation):
        lane.acknowledged(3, 5, (1, 0, 0, 0))


@pytest.mark.parametrize("kind", sorted({*SMALL_KINDS, "large", "huge", "load", "large load"}))
def test_a_batch_is_the_same_for_whoever_asks(kind: str) -> None:
    one, other = (make_batch("b", 7, kind, True) for _ in range(2))
    assert one == other
    assert one.documents() == other.documents()
    for document in one.documents():
        assert check_text(document["text"], "b", 7, document["id"]) is None


def test_a_text_that_changed_is_found_out() -> None:
    text = make_text("a", 1, "a/00", 100)
    assert check_text(text, "a", 1, "a/00") is None
    assert check_text(text, "a", 2, "a/00") is not None
    assert check_text(text[:-1], "a", 1, "a/00") is not None
    assert check_text(text.replace(text[50], "x"), "a", 1, "a/00") is not None


def test_names_of_crash_points_are_their_own() -> None:
    assert len({point.name for point in CRASH_POINTS}) == len(CRASH_POINTS)

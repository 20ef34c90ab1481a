"""Which segments a root names itself, and which by lists."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.errors import Corruption, UnsupportedFormat
from reef.manifest.listing import LARGE_RUN, MOST_NAMED, Listing, arrange, gather
from reef.manifest.lists import MOST_SEGMENTS, ListInfo, decode_list, encode_segments
from reef.manifest.runs import SegmentRun, Segments
from reef.segment import SegmentInfo


def run_of(name: str, size: int, lsn: int = 0) -> list[SegmentInfo]:
    return [
        SegmentInfo(
            f"{name}-{n}", 1, name, 0, 10, 1, f"{n:06d}", f"{n:06d}x", n + 1, n + 9, 100, 50, n, lsn
        )
        for n in range(size)
    ]


class Bucket:
    """Lists that were written, and how often each was read."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[ListInfo, bytes]] = {}
        self.reads: list[str] = []
        self._ids = (f"l{n}" for n in count())

    def publish(self, segments: Segments, lists: tuple[ListInfo, ...] = ()) -> Listing:
        listing = arrange(segments, lists, birth=3, make_id=lambda: next(self._ids))
        self.objects |= {info.id: (info, data) for info, data in listing.fresh}
        return listing

    def read(self, info: ListInfo) -> tuple[SegmentInfo, ...]:
        self.reads.append(info.id)
        return decode_list(info, memoryview(self.objects[info.id][1]), SegmentInfo)

    def reopened(self, listing: Listing) -> Segments:
        return gather(listing.named, listing.lists, self.read)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def by_key(segments: Segments) -> dict[str, SegmentInfo]:
    return {info.key: info for info in segments}


def test_few_segments_are_named_by_the_root_itself(bucket: Bucket) -> None:
    listing = bucket.publish(Segments.of(run_of("a", 3) + run_of("b", LARGE_RUN - 1)))
    assert listing.lists == ()
    assert len(listing.named) == LARGE_RUN + 2


def test_a_large_run_is_named_by_lists_and_read_only_when_asked_for(bucket: Bucket) -> None:
    infos = run_of("a", 2 * MOST_SEGMENTS + 1)
    listing = bucket.publish(Segments.of(infos + run_of("b", 2)))
    assert [info.items for info in listing.lists] == [MOST_SEGMENTS, MOST_SEGMENTS, 1]
    assert len(listing.named) == 2
    reopened = bucket.reopened(listing)
    large = next(run for run in reopened.runs if run.key == ("a", 0))
    assert len(reopened) == 2 * MOST_SEGMENTS + 3
    assert large.summary == SegmentRun(tuple(infos)).summary
    assert bucket.reads == []
    assert large.segments == tuple(infos)
    assert len(bucket.reads) == 3


def test_a_publication_writes_only_the_lists_of_what_is_new(bucket: Bucket) -> None:
    first = bucket.publish(Segments.of(run_of("a", MOST_SEGMENTS)))
    second = bucket.publish(first.segments.plus(run_of("b", 1)), first.lists)
    assert second.fresh == ()
    assert second.lists == first.lists
    third = bucket.publish(second.segments.plus(run_of("c", LARGE_RUN)), second.lists)
    assert [info.items for info, _ in third.fresh] == [LARGE_RUN]
    gone = bucket.publish(third.segments.minus(run_of("a", MOST_SEGMENTS)), third.lists)
    assert gone.fresh == ()
    assert gone.lists == third.lists[1:]


def test_many_small_runs_share_lists(bucket: Bucket) -> None:
    infos = [info for n in range(MOST_NAMED + 1) for info in run_of(f"r{n}", 1)]
    first = bucket.publish(Segments.of(infos))
    assert first.named == ()
    assert [info.items for info in first.lists] == [MOST_NAMED + 1]
    # One of them goes: its list is of no use any more, and the others are named anew.
    second = bucket.publish(first.segments.minus(run_of("r7", 1)), first.lists)
    assert second.lists == ()
    assert len(second.named) == MOST_NAMED
    assert by_key(bucket.reopened(second)) == {i.key: i for i in infos if i.run != "r7"}


sizes = st.integers(1, 5) | st.sampled_from([LARGE_RUN, MOST_NAMED, MOST_SEGMENTS + 3])
steps = st.lists(
    st.tuples(st.just("add"), sizes)
    | st.tuples(st.sampled_from(["drop", "trim"]), st.integers(0, 9)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_whatever_is_published_is_what_is_read_again(steps: list[tuple[str, int]]) -> None:
    bucket = Bucket()
    segments, lists = Segments(), ()
    live: dict[str, SegmentInfo] = {}
    for number, (what, how) in enumerate(steps):
        if what == "add":
            added = run_of(f"r{number}", how)
            segments = segments.plus(added)
            live |= {info.key: info for info in added}
        elif segments.runs:
            run = segments.runs[how % len(segments.runs)]
            gone = run.segments if what == "drop" else run.segments[:1]
            segments = segments.minus(gone)
            live = {key: info for key, info in live.items() if info not in gone}
        listing = bucket.publish(segments, lists)
        assert len(listing.named) <= MOST_NAMED
        assert by_key(listing.segments) == live
        segments, lists = bucket.reopened(listing), listing.lists
        assert by_key(segments) == live


def test_runs_that_nothing_happens_to_stay_the_same_objects() -> None:
    segments = Segments.of(run_of("a", 3) + run_of("b", 2))
    a, b = segments.runs
    assert segments.plus(run_of("c", 1)).runs[:2] == (a, b)
    assert segments.minus(run_of("b", 2)).runs == (a,)
    assert segments.minus(run_of("c", 2)).runs == (a, b)
    assert segments.minus(run_of("b", 1)).runs[0] is a
    assert list(segments.minus(run_of("b", 1))) == run_of("a", 3) + run_of("b", 2)[1:]
    assert segments.plus(run_of("b", 3)[2:]) == Segments.of(run_of("a", 3) + run_of("b", 3))
    assert segments.holds(run_of("a", 2))
    assert not segments.holds(run_of("b", 3))
    assert not segments.holds(run_of("a", 1, lsn=4))


def test_a_list_is_what_was_written_or_an_error() -> None:
    infos = tuple(run_of("a", 5))
    data, info = encode_segments(infos, "x", 7)
    assert info.key == "lists/00000000000000000007-x.list"
    assert decode_list(info, memoryview(data), SegmentInfo) == infos
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with pytest.raises(Corruption):
            decode_list(info, memoryview(bytes(flipped)), SegmentInfo)
    for end in range(len(data)):
        with pytest.raises(Corruption):
            decode_list(info, memoryview(data[:end]), SegmentInfo)
    other, _ = encode_segments(infos[:4], "x", 7)
    with pytest.raises(Corruption, match="not the list"):
        decode_list(info, memoryview(other), SegmentInfo)


def test_a_newer_list_is_told_from_a_damaged_one() -> None:
    from crc32c import crc32c

    data, info = encode_segments(tuple(run_of("a", 1)), "x", 7)
    newer = data[:8] + b"\2\0\0\0" + data[12:-4]
    newer += crc32c(newer).to_bytes(4, "little")
    with pytest.raises(UnsupportedFormat):
        decode_list(info, memoryview(newer), SegmentInfo)

"""Chapter seven: a byte goes bad, and Reef says which."""

from __future__ import annotations

from rich.markup import escape

import reef
from demo.tour import NAMESPACE, Tour
from reef.segment import Problem, SegmentInfo


def damage(tour: Tour) -> None:
    """Flip one bit in the bucket, see it refused and found, and mend it."""
    stage = tour.stage
    stage.chapter(
        "Damage",
        "Disks lie now and then. Everything read is checked before it is believed.",
    )
    segments = sorted(tour.manifest().segments, key=lambda info: info.min_id)
    bad = segments[len(segments) // 2]
    key = f"namespaces/{NAMESPACE}/{bad.key}"
    sound = bytes(tour.store.get(key).data)
    place = len(sound) // 2
    # Blocks are padded with up to seven zeros, which nobody reads.
    while sound[place] == 0:
        place += 1
    stage.say(f"So one bit is flipped: in byte {place} of {len(sound)} of a segment.")
    stage.gap()
    changed = bytearray(sound)
    changed[place] ^= 0x10
    tour.store.put(key, changed)
    try:
        _notice(tour, bad, place, segments)
    finally:
        tour.store.put(key, sound)
    with stage.working("verifying every block"):
        report = tour.ns.verify(deep=True)
    tour.facts["sound"] = report.sound
    stage.claim(
        report.sound,
        f"the byte is put right: verify(deep=True) finds {report.manifests} manifests,"
        f" {report.log_objects} log objects and every block of {report.segments} segments sound",
    )


def _notice(tour: Tour, bad: SegmentInfo, place: int, segments: list[SegmentInfo]) -> None:
    stage = tour.stage
    database, _ = tour.newcomer()
    reader = database.namespace(NAMESPACE, "r")
    told: reef.Corruption | None = None
    try:
        reader.scan(start=bad.min_id).to_table()
    except reef.Corruption as corruption:
        told = corruption
    tour.facts["corruption"] = told is not None
    stage.claim(
        told is not None and told.key.endswith(bad.key) and told.offset <= place,
        "a scan across it gives no wrong answer but an error that names the object and the block:"
        f" [italic]Corruption: {escape(str(told))}[/italic]",
    )
    others = [info.min_id for info in segments if info is not bad]
    stage.claim(
        all(reader.get(id) is not None for id in others),
        "what lies elsewhere is read as before",
    )
    reader.close()
    database.close()
    with stage.working("verifying every block"):
        report = tour.ns.verify(deep=True)
    stage.claim(
        {problem.key.endswith(bad.key) for problem in report.problems} == {True},
        "verify(deep=True) finds it, and nothing else:"
        f" {escape('; '.join(map(_brief, report.problems)))}",
    )


def _brief(problem: Problem) -> str:
    return f"byte {problem.offset}: {problem.meaning}"

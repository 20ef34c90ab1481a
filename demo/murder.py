"""Chapter six: processes die, and nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.markup import escape

import reef
from demo.drawing import duration, facts
from demo.tour import NAMESPACE, Tour
from demo.victim import BATCH_ROWS, REVIEWS, reviews

_ROOT = Path(__file__).resolve().parent.parent
_MURDERS = 3
_RECEIPTS = 25


def murder(tour: Tour) -> None:
    """Kill writers in mid-flight, fence one that is alive, kill a compaction."""
    with ExitStack() as stack:
        # They start at the same time, so that nobody waits for four interpreters in a row.
        victims = [stack.enter_context(_victim()) for _ in range(_MURDERS + 1)]
        tour.stage.chapter(
            "Murder",
            "A process writes reviews, batch after batch, folding in the background, and prints"
            " each receipt it gets. It is killed with SIGKILL at a random moment, three times"
            " over; each time a newcomer reads the bucket.",
        )
        _writers(tour, victims[:_MURDERS])
        _fence(tour)
        _compaction(tour, victims[_MURDERS])


@contextmanager
def _victim() -> Iterator[subprocess.Popen[str]]:
    """A process that waits for its orders, and is gone in the end."""
    path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "demo.victim"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _order(victim: subprocess.Popen[str], *words: str | int) -> None:
    assert victim.stdin is not None
    victim.stdin.write(json.dumps(words) + "\n")
    victim.stdin.flush()


def _writers(tour: Tour, victims: list[subprocess.Popen[str]]) -> None:
    stage = tour.stage
    random = np.random.default_rng()
    acknowledged: set[int] = set()
    rows = []
    torn = lost = unheard = 0
    first = 0
    for victim in victims:
        with stage.working("a writer is at work"):
            before = len(acknowledged)
            heard, status = _kill_a_writer(victim, tour.url, first, float(random.uniform(0, 0.02)))
            acknowledged |= heard
            began = time.perf_counter()
            database, _ = tour.newcomer()
            reader = database.namespace(REVIEWS, "r")
            found = _batches(reader)
            seconds = time.perf_counter() - began
            reader.close()
            database.close()
        torn += sum(count != BATCH_ROWS for count in found.values())
        lost += len(acknowledged - found.keys())
        surplus = len(found.keys() - acknowledged)
        unheard += surplus
        rows.append(
            [
                f"process {victim.pid}, signal {-status}",
                str(len(acknowledged) - before),
                str(len(found)),
                str(len(acknowledged - found.keys())),
                str(surplus),
                duration(seconds),
            ]
        )
        acknowledged |= found.keys()
        first = max(found) + 1
        if status != -signal.SIGKILL:
            stage.claim(False, f"the writer was killed by SIGKILL (it ended with {status})")
    headers = ["", "receipts", "found", "lost", "unheard", "reopened in"]
    stage.show(facts(rows, headers))
    tour.facts["acknowledged"] = len(acknowledged) - unheard
    tour.facts["lost"] = lost
    tour.facts["torn"] = torn
    stage.claim(
        lost == 0 and len(acknowledged) > _MURDERS,
        f"{len(acknowledged) - unheard} batches of {BATCH_ROWS} reviews acknowledged, {lost} lost",
    )
    silent = f", {unheard} of them without having lived to say so" if unheard else ""
    stage.claim(
        torn == 0,
        f"every batch is there whole or not at all{silent}; nobody had to repair anything",
    )
    database, _ = tour.newcomer()
    reader = database.namespace(REVIEWS, "r")
    some = max(acknowledged)
    expected = reviews(some)
    stage.claim(
        list(reader.scan(prefix=f"review-{some:06d}-").documents()) == expected,
        f"the documents of the last batch ({some}) are what the dead process wrote",
    )
    reader.close()
    database.close()


def _kill_a_writer(
    victim: subprocess.Popen[str], url: str, first: int, patience: float
) -> tuple[set[int], int]:
    """The batches whose receipts it told before its end, and how it ended."""
    _order(victim, "write", url, first)
    assert victim.stdout is not None
    heard = set()
    for line in victim.stdout:
        heard.add(int(line.split()[0]))
        if len(heard) == _RECEIPTS:
            break
    time.sleep(patience)
    victim.kill()
    heard |= {int(line.split()[0]) for line in victim.stdout if line.endswith("\n")}
    return heard, victim.wait()


def _batches(reader: reef.Namespace) -> dict[int, int]:
    """How many documents of each batch there are."""
    numbers = reader.scan(columns=["batch"]).to_table()["batch"].to_numpy()
    batches, counts = np.unique(numbers, return_counts=True)
    return dict(zip(batches.tolist(), counts.tolist(), strict=True))


def _fence(tour: Tour) -> None:
    stage, first = tour.stage, tour.ns
    stage.gap()
    stage.say("The dead are harmless. What about a writer that was only thought dead?")
    stage.pause(0.8)
    second = tour.db.namespace(NAMESPACE, maintain=False)
    told = ""
    try:
        first.write(upserts=[{"id": "film-zombie", "title": "The Living Dead"}])
    except reef.Fenced as fenced:
        told = str(fenced)
    tour.facts["fenced"] = bool(told)
    stage.claim(
        bool(told) and second.get("film-zombie") is None,
        "a second writer opened the films; the first, alive and unaware, was refused at its next"
        f" write: [italic]Fenced: {escape(told)}[/italic]",
    )
    tour.take_over(second)


def _compaction(tour: Tour, victim: subprocess.Popen[str]) -> None:
    stage = tour.stage
    stage.gap()
    stage.say("And a compaction that dies halfway, with new segments uploaded but not published?")
    stage.pause(0.8)
    before = tour.manifest().segments
    with stage.working("compacting, not for long"):
        _order(victim, "compact", tour.url, NAMESPACE, tour.options.segment_bytes)
        status = victim.wait()
    after = tour.manifest().segments
    report = tour.ns.verify()
    tour.facts["orphans"] = report.orphans
    stage.claim(
        status == -signal.SIGKILL and after == before and report.orphans > 0 and report.sound,
        f"killed after uploading: the tree is what it was, {report.orphans} orphans wait for the"
        " garbage collector, and verify finds nothing wrong",
    )
    with stage.working("compacting again"):
        began = time.perf_counter()
        tour.ns.compact(full=True)
        seconds = time.perf_counter() - began
        intact = tour.is_intact(tour.ns)
    stage.claim(
        intact,
        f"done again by somebody else in {duration(seconds)}; all {tour.films.num_rows:,} films"
        " compared with the original: equal",
    )

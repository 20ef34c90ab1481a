"""The processes that work on a campaign, and how they tell what they did."""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any

from torture import progress
from torture.share import Failure, Share

_TELL = 0.25
_PATIENCE = 240.0

_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Campaign:
    """A module with a `run(share)`. `weight` is its part of the time.

    A campaign that is to be gone through once at least counts that under `once`, and may take
    up to three times its time for it.
    """

    name: str
    module: str
    weight: float
    once: str | None = None


CAMPAIGNS = (
    Campaign("damage", "torture.damage.campaign", 2.0, once="turns"),
    Campaign("murder", "torture.murder.campaign", 1.2),
    Campaign("fuzz", "torture.fuzz.campaign", 4.8),
    Campaign("simulate", "torture.simulation", 3.0),
)


@dataclass
class Tally:
    """What a campaign has come to."""

    campaign: Campaign
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class _Order:
    """What a worker is told."""

    campaign: Campaign
    index: int
    parts: int
    seed: int
    seconds: float


class _Member:
    """One worker, as its leader sees it."""

    def __init__(self, order: _Order, stop: Any) -> None:
        self.order = order
        self.note = _context.RawArray("c", progress.LONGEST)
        self.heard, told = _context.Pipe(duplex=False)
        self.process = _context.Process(target=_work, args=(order, told, self.note, stop))
        self.done = False
        self.process.start()
        told.close()

    def end(self) -> Failure | None:
        """Wait for its end; the failure that this is, unless all is well."""
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        if self.done and code == 0:
            return None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        last = self.note.value.decode(errors="replace")
        what = f"a worker died of {how}" + (f" at {last}" if last else "")
        return Failure(what, last or _again(self.order))


def _again(order: _Order) -> str:
    return (
        f"script/torture --only {order.campaign.name} --jobs {order.parts} --seed {order.seed}"
        f" --minutes {order.seconds / 60:.3g}"
    )


def _work(order: _Order, told: Connection, note: Any, stop: Any) -> None:
    """The worker's whole life."""
    # An interrupt is for the leader, who asks everybody to come to an end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    progress.keep_in(note)
    counts: Counter[str] = Counter()
    began = last = monotonic()
    once = order.campaign.once
    through = False

    def flush() -> None:
        nonlocal last
        last = monotonic()
        if counts:
            told.send(dict(counts))
            counts.clear()

    def finished() -> bool:
        now = monotonic()
        if now - last > _TELL:
            flush()
        if stop.value:
            return True
        lasted = now - began
        return lasted > order.seconds and (once is None or through or lasted > 3 * order.seconds)

    def count(name: str, many: int) -> None:
        nonlocal through
        counts[name] += many
        through = through or name == once

    share = Share(order.index, order.parts, order.seed, finished, count, told.send)
    try:
        importlib.import_module(order.campaign.module).run(share)
    except Exception:
        told.send(Failure(traceback.format_exc(limit=-4).strip(), _again(order)))
    flush()
    told.send(None)
    told.close()


class Workers:
    """As many workers as there are jobs, all on one campaign."""

    def __init__(self, campaign: Campaign, jobs: int, seed: int, seconds: float) -> None:
        self.tally = Tally(campaign)
        self.seconds = seconds
        self._began = monotonic()
        self._stop = _context.RawValue("b", 0)
        self._members = [
            _Member(_Order(campaign, index, jobs, seed, seconds), self._stop)
            for index in range(jobs)
        ]

    def work(self) -> Iterator[Tally]:
        """Work until all have come to their end; the tally every now and then."""
        members = {member.heard: member for member in self._members}
        most = self.seconds * (3 if self.tally.campaign.once else 1) + _PATIENCE
        while members:
            for heard in wait(list(members), timeout=_TELL):
                member = members[heard]  # type: ignore[index]
                try:
                    self._take(member, member.heard.recv())
                except EOFError:
                    del members[member.heard]
                    failure = member.end()
                    if failure is not None:
                        self.tally.failures.append(failure)
            self.tally.seconds = monotonic() - self._began
            if self.tally.seconds > most:
                self.kill("a worker did not come to its end")
            yield self.tally

    def _take(self, member: _Member, told: Any) -> None:
        if told is None:
            member.done = True
        elif isinstance(told, Failure):
            self.tally.failures.append(told)
        else:
            self.tally.counts.update(told)

    def stop(self) -> None:
        """Ask all to come to their end soon."""
        self._stop.value = 1

    def kill(self, why: str | None = None) -> None:
        """End all at once."""
        for member in self._members:
            if member.process.is_alive():
                member.process.kill()
                if why is not None:
                    self.tally.failures.append(Failure(why, _again(member.order)))
                    member.done = True

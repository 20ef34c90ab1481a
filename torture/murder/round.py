"""A round: a bucket, its processes, their deaths, and the inspection at the end."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from torture.murder.agenda import Agenda
from torture.murder.batch import HUGE, LARGE, LARGE_LOAD, LOAD, SMALL_KINDS
from torture.murder.crash_points import CrashPoint
from torture.murder.hearing import Hearing, Victim
from torture.murder.hostile_store import Hostility
from torture.murder.life import NAMESPACE, Habits, LaneStart, Life
from torture.murder.nursery import Nursery
from torture.murder.place import Place
from torture.murder.witness import Violation

SEATS = {"writer": (("a", "b", "c"), ("d", "e")), "loader": (("g",),)}
ROLES = ("writer", "loader", "indexer", "compactor", "collector", "reader")
# Who would do the work before a writer comes to do it itself.
_RIVALS = {"own fold": ("indexer",), "own compact": ("compactor", "collector")}
_OFTEN_MET = ("write", "fold", "read", "load")
_LONGEST_SILENCE = 90.0
_RECOVERY = 60.0
_INSPECTION = 240.0


@dataclass(frozen=True)
class Plan:
    """What happens in a round. `mean_life` is the mean time between two random kills."""

    habits: Habits = field(default_factory=Habits)
    mean_life: float = 0.35
    takeovers: float = 0.1
    slow: float = 0.0
    outages: tuple[tuple[float, float, float], ...] = ()
    server_kills: tuple[float, ...] = ()
    lies: float = 0.0
    kill: bool = True

    @property
    def troubled(self) -> bool:
        """Whether the store itself misbehaves."""
        return bool(self.slow or self.outages or self.server_kills)


@dataclass(frozen=True)
class Survivor:
    """A process that lived through trouble: it has to get on again, without a restart."""

    victim: Victim
    progress: int
    deadline: float


class Round:
    """Processes on one bucket. Raises `Violation` as soon as a promise is broken."""

    def __init__(
        self, nursery: Nursery, place: Place, plan: Plan, agenda: Agenda, seed: int
    ) -> None:
        self.place = place
        self.plan = plan
        self.agenda = agenda
        # Only on a folder is the bucket's clock exact, and only then is nobody kept waiting.
        exact = place.name == "folder" and not plan.troubled
        retained = max(plan.habits.retention, plan.habits.grace) if exact else 0.0
        lanes = [lane for seats in SEATS.values() for seat in seats for lane in seat]
        self.hearing = Hearing(lanes, retained)
        self.counts = self.hearing.counts
        self._nursery = nursery
        self._random = Random(seed)
        self._seeds = count(seed * 1_000_003 % (1 << 40))
        self._url = place.bucket()
        self._selector = selectors.DefaultSelector()
        self._victims: list[Victim] = []
        self._founded = count(1)
        self._unfounded: str | None = None
        self._survivors: list[Survivor] = []

    # The course of it

    def run(self, finished: Callable[[], bool]) -> None:
        """Begin, kill until it is finished, end it all at once, and inspect."""
        try:
            self._found()
            self.hearing.began = self.hearing.heard = time.monotonic()
            next_kill = self._next_kill()
            server_kills = list(self.plan.server_kills)
            outages = list(self.plan.outages)
            if self.plan.server_kills:
                self._spawn("probe")
            while not (finished() and not self._survivors) and not self.agenda.hopeless:
                self._fill_roles()
                self._listen(0.02)
                elapsed = time.monotonic() - self.hearing.began
                if server_kills and elapsed > server_kills[0]:
                    server_kills.pop(0)
                    self._kill_server()
                if outages and elapsed > outages[0][1]:
                    began, _, _ = outages.pop(0)
                    self.counts["outages"] += 1
                    self._watch_survivors(self.hearing.began + began)
                self._check_survivors()
                out = bool(outages) and elapsed > outages[0][0] - 1.0
                if self.plan.kill and time.monotonic() >= next_kill:
                    if not out and not self._survivors:
                        self._kill_somebody()
                    next_kill = self._next_kill()
                silence = time.monotonic() - self.hearing.heard
                if silence > _LONGEST_SILENCE:
                    raise Violation(f"nobody could write for {silence:.0f} seconds")
            self._kill_everybody()
            self._inspect()
        finally:
            for victim in list(self._victims):
                self._kill(victim, counted=False)
                with suppress(Violation):
                    self._bury(victim)
            self._selector.close()

    def _next_kill(self) -> float:
        return time.monotonic() + self._random.expovariate(1 / self.plan.mean_life)

    def _found(self) -> None:
        """Make the namespace of the round."""
        founder = self._spawn("founder", namespace=NAMESPACE)
        self._await(founder, 60.0)

    def _await(self, victim: Victim, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while victim in self._victims:
            self._listen(0.1)
            if time.monotonic() > deadline:
                raise Violation(f"the {victim.life.role} did not finish in {seconds:.0f} seconds")
        if not victim.ended:
            raise Violation(f"the {victim.life.role} ended without a word")

    def _fill_roles(self) -> None:
        alive = Counter(victim.life.role for victim in self._victims)
        phases = [victim.point.phase for victim in self._victims if victim.point]
        kept_away = {rival for phase in phases for rival in _RIVALS.get(phase, ())}
        for role in ROLES:
            if not alive[role] and role not in kept_away:
                self._spawn_as_planned(role)
        if not alive["founder"]:
            if self._unfounded is not None:
                self._spawn("founder", namespace=self._unfounded, fresh=False)
                self._unfounded = None
            elif self.plan.kill and any(point.role == "founder" for point in self.agenda.left):
                self._spawn_as_planned("founder")

    def _spawn_as_planned(self, role: str) -> None:
        # Who is to show that it survives trouble must not die of something else.
        gentle = not self.plan.kill or self.plan.outages or self.plan.server_kills
        point = None if gentle else self.agenda.take(role, self._random)
        details: dict[str, Any] = {}
        if role == "founder":
            details["namespace"] = f"other-{next(self._founded)}"
        if role == "reader":
            details["lanes"] = tuple(LaneStart(name, 0) for name in self.hearing.lanes)
        if role in SEATS:
            seat = self._random.choice(SEATS[role])
            if point is not None and point.phase == "large":
                details["only"] = (LARGE, LARGE, HUGE)
                seat = seat[:1]
            elif point is not None and point.phase == "write":
                details["only"] = SMALL_KINDS
            elif point is not None and point.phase == "load":
                details["only"] = (LOAD, LARGE_LOAD)
            elif point is not None and point.phase in _RIVALS:
                seat = seat[:1]
                self._send_away(_RIVALS[point.phase])
            details["lanes"] = tuple(self._start(name) for name in seat)
            details["maintain"] = role == "writer" and (
                point.phase.startswith("own") if point else self._random.random() < 0.3
            )
        self._spawn(role, point, **details)

    def _start(self, name: str) -> LaneStart:
        lane = self.hearing.lanes[name]
        lane.settle()
        retry = lane.retry
        again = None
        if retry is not None and self._random.random() < 0.6:
            again = (retry.number, retry.kind)
        return LaneStart(name, lane.number, again)

    def _spawn(self, role: str, point: CrashPoint | None = None, **details: Any) -> Victim:
        seed = next(self._seeds)
        plan = self.plan
        often = point is not None and point.phase in _OFTEN_MET
        hostile = role not in ("inspector", "founder", "probe", "probe count")
        hostility = Hostility(
            crash=point.name if point else "",
            nth=self._random.choice((1, 1, 2, 3)) if often else 1,
            slow=plan.slow if hostile else 0.0,
            outages=tuple(
                (self.hearing.began + a, self.hearing.began + b, share)
                for a, b, share in plan.outages
            )
            if hostile
            else (),
            lies=plan.lies if hostile else 0.0,
            seed=seed,
        )
        life = Life(role, self._url, self.place.secrets, plan.habits, hostility, seed, **details)
        process, channel = self._nursery.spawn(life)
        victim = Victim(life, process, channel, point, self.hearing.newest)
        self._victims.append(victim)
        self._selector.register(channel, selectors.EVENT_READ, victim)
        self.hearing.note(victim, {"told": "born", "point": point.name if point else ""})
        return victim

    # Death

    def _kill_somebody(self) -> None:
        now = time.monotonic()
        if self._random.random() < self.plan.takeovers and self._take_over():
            return
        ready = [
            victim
            for victim in self._victims
            if victim.point is None or now - victim.born > self.place.patience
        ]
        ready = [victim for victim in ready if not victim.killed and victim.life.role != "probe"]
        if ready:
            # Who has got somewhere has more to lose.
            weights = [1.0 if victim.progress else 0.3 for victim in ready]
            self._kill(self._random.choices(ready, weights)[0])

    def _send_away(self, roles: tuple[str, ...]) -> None:
        for victim in self._victims:
            if victim.life.role in roles and victim.point is None:
                self._kill(victim)

    def _take_over(self) -> bool:
        """Start a writer while another is alive: that one will be fenced."""
        writers = [victim for victim in self._victims if victim.life.role == "writer"]
        if len(writers) != 1 or writers[0].point is not None:
            return False
        held = {start.lane for start in writers[0].life.lanes}
        free = [seat for seat in SEATS["writer"] if held.isdisjoint(seat)]
        self._spawn("writer", lanes=tuple(self._start(name) for name in free[0]))
        self.counts["takeovers"] += 1
        return True

    def _kill(self, victim: Victim, *, counted: bool = True) -> None:
        if not victim.killed:
            victim.killed = True
            # It is not reaped before it is buried, so the number is still its own.
            os.kill(victim.process, signal.SIGKILL)
            if counted:
                self.counts["kills"] += 1

    def _kill_everybody(self) -> None:
        for victim in self._victims:
            self._kill(victim)
        while self._victims:
            self._listen(0.1)

    def _kill_server(self) -> None:
        began = time.monotonic()
        if self.place.kill_server(self._random.random()):
            self.counts["server kills"] += 1
            self._watch_survivors(began)

    def _watch_survivors(self, since: float) -> None:
        """The store is well again: whoever lived through it has to get on."""
        self.hearing.heard = time.monotonic()
        self._survivors += [
            Survivor(victim, victim.progress, self.hearing.heard + _RECOVERY)
            for victim in self._victims
            if victim.life.role in ("writer", "loader", "reader")
            and victim.born < since
            and victim.opened
            and victim.point is None
            and not victim.killed
        ]

    def _check_survivors(self) -> None:
        now = time.monotonic()
        for survivor in list(self._survivors):
            victim = survivor.victim
            if victim.progress > survivor.progress:
                self.counts["recoveries without a restart"] += 1
                self._survivors.remove(survivor)
            elif victim.ended or victim not in self._victims:
                self._survivors.remove(survivor)
            elif now > survivor.deadline:
                raise Violation(
                    f"the {victim.life.role} did not recover in {_RECOVERY:.0f} seconds after the"
                    " store was well again"
                )

    def _bury(self, victim: Victim) -> None:
        """It is gone: find out how, and what it leaves open."""
        self._victims.remove(victim)
        self._selector.unregister(victim.channel)
        victim.channel.close()
        code = self._nursery.reap(victim.process)
        self.hearing.note(victim, {"told": "dead", "code": code})
        role, point = victim.life.role, victim.point
        for start in victim.life.lanes if role in SEATS else ():
            lane = self.hearing.lanes[start.lane]
            self.counts["unknown outcomes"] += lane.open is not None
            lane.settle()
        if point is not None:
            if victim.dying == point.name and not victim.killed:
                self.counts["kills at crash points"] += 1
                self.counts["kills"] += 1
                self.agenda.hit(point.name)
            else:
                tried = time.monotonic() - victim.born > self.place.patience
                self.agenda.missed(point.name, tried=tried or victim.ended)
        if role == "founder" and not victim.ended and victim.life.namespace != NAMESPACE:
            self._unfounded = victim.life.namespace
        well = victim.ended and code == 0
        if not well and code != -signal.SIGKILL:
            raise Violation(f"the {role} ended with code {code}")

    # Listening

    def _listen(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            victim: Victim = key.data
            try:
                messages = victim.channel.received()
            except EOFError:
                self._bury(victim)
                continue
            for message in messages:
                self.hearing.hear(victim, message)

    def _inspect(self) -> None:
        """Everybody is dead: what they left must be what was acknowledged, and stay so."""
        if self.plan.server_kills:
            self._await(self._spawn("probe count"), 60.0)
        if self._unfounded is not None:
            founder = self._spawn("founder", namespace=self._unfounded, fresh=False)
            self._unfounded = None
            self._await(founder, 60.0)
        self._await(self._spawn("inspector"), _INSPECTION)

"""The victims: what a process of each role does until it is killed.

Every program is ordinary code over the public interface. It tells the witness what it is about to
write before it does, what came of it after, and whatever it reads.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from threading import Thread
from typing import Any

import reef
from reef.documents import Database, Namespace, Reading
from reef.environment import SYSTEM
from reef.store import open_store
from torture.murder.batch import (
    HUGE,
    LARGE,
    LARGE_LOAD,
    LOAD,
    SCHEMA,
    SMALL_KINDS,
    Batch,
    check_text,
    make_batch,
)
from torture.murder.channel import Channel
from torture.murder.hostile_store import HostileStore
from torture.murder.inspector import inspect
from torture.murder.life import NAMESPACE, LaneStart, Life
from torture.murder.probe import count_probes, probe

# The store would not say, or somebody else came first: a program may only try again.
PASSING = (reef.StoreUnavailable, reef.CommitUncertain, reef.ConcurrentPublication)
_COLUMNS = ("batch", "value", "origin")


@dataclass
class Scene:
    """What a program has to act with."""

    life: Life
    channel: Channel
    store: HostileStore
    database: Database
    random: Random

    def tell(self, told: str, **details: Any) -> None:
        """Say something to the witness."""
        self.channel.send({"told": told, **details})

    def pause(self) -> None:
        """A moment between two steps."""
        time.sleep(self.random.random() * 2 * self.life.habits.pace)

    def passing(self, what: str, error: Exception) -> None:
        """Tell of an error after which one may only try again."""
        self.tell("trouble", what=what, error=f"{type(error).__name__}: {error}")
        time.sleep(0.05)

    def open(self, mode: str, phase: str = "open") -> Namespace:
        """The namespace, however often it takes."""
        while True:
            self.store.begin(phase)
            try:
                opened = self.database.namespace(
                    self.life.namespace, mode, create=False, maintain=self.life.maintain
                )
            except PASSING as error:
                self.passing("open", error)
                continue
            self.tell("opened", mode=mode)
            return opened

    def look(self, ns: Namespace, *, way: str = "scan", lane: str | None = None) -> bool:
        """Read a whole state, or a lane's, and tell what was seen. False if it was gone."""
        self.tell("looking")
        self.channel.receive()
        self.store.begin("read")
        began = time.monotonic()
        try:
            ns.refresh()
            low = ns.lsn
            rows = read(ns, way, lane)
            high = ns.lsn
        except reef.PastRetention:
            self.tell("past", elapsed=time.monotonic() - began)
            return False
        except PASSING as error:
            self.passing("look", error)
            return False
        self.tell("seen", low=low, high=high, lane=lane, rows=rows)
        return True

    def look_back(self, ns: Namespace) -> None:
        """Read the state of some slots ago, if it is still there."""
        self.store.begin("read")
        lsn = max(0, ns.lsn - self.random.randrange(30))
        try:
            rows = read(ns.at(lsn=lsn), "scan", None)
        except reef.PastRetention:
            return
        except PASSING as error:
            self.passing("look back", error)
            return
        self.tell("seen", low=lsn, high=lsn, lane=None, rows=rows, past=True)


def read(reading: Reading, way: str, lane: str | None) -> dict[str, list[int]]:
    """Documents by id, read in one of several ways; texts are checked where they are read."""
    if way == "get":
        assert lane is not None
        ids = [f"{lane}/{place:02}" for place in range(24)]
        ids += [f"{lane}/large-{place}" for place in range(10)]
        found = [row for row in reading.get_many(ids, columns=_COLUMNS) if row is not None]
    elif way == "texts":
        found = list(reading.scan(prefix=None if lane is None else f"{lane}/").documents())
        for row in found:
            wrong = check_text(row["text"], row["lane"], row["origin"], row["id"])
            if wrong is not None or row["lane"] != row["id"].partition("/")[0]:
                raise AssertionError(wrong or f"{row['id']} says that its lane is {row['lane']}")
    else:
        prefix = None if lane is None else f"{lane}/"
        found = list(reading.scan(prefix=prefix, columns=_COLUMNS).documents())
    rows = {row["id"]: [row["batch"], row["value"], row["origin"]] for row in found}
    if len(rows) != len(found):
        raise AssertionError("a scan shows an id twice")
    return rows


# Writing


def write(scene: Scene, ns: Namespace, batch: Batch) -> str:
    """Write a batch, telling before and after; what became of it."""
    name = {"lane": batch.lane, "number": batch.number}
    scene.tell("intent", **name, kind=batch.kind, keyed=batch.keyed)
    large = batch.kind in (LARGE, HUGE)
    scene.store.begin("load" if batch.bulk else "large" if large else "write")
    try:
        if batch.bulk:
            receipt = ns.load(batch.documents(), idempotency_key=batch.key)
        else:
            receipt = ns.write(**batch.arguments())
    except reef.ConditionFailed as error:
        return _outcome(scene, name, "failed", error)
    except reef.CommitUncertain as error:
        return _outcome(scene, name, "unknown", error)
    except reef.Fenced as error:
        return _outcome(scene, name, "fenced", error)
    except PASSING as error:
        return _outcome(scene, name, "refused", error)
    counts = (receipt.upserted, receipt.patched, receipt.deleted, receipt.missing)
    scene.tell("acknowledged", **name, lsn=receipt.lsn, counts=counts)
    return "acknowledged"


def _outcome(scene: Scene, name: dict[str, Any], outcome: str, error: Exception) -> str:
    scene.tell(outcome, **name, error=f"{type(error).__name__}: {error}")
    return outcome


def follow_lane(scene: Scene, ns: Namespace, start: LaneStart, kinds: Callable[[], str]) -> None:
    """Write one batch after the other, until fenced."""
    random = Random(f"{scene.life.seed}/{start.lane}")
    lane, number = start.lane, start.number
    if start.again is not None:
        batch = make_batch(lane, *start.again, True)
        if write(scene, ns, batch) == "fenced":
            return
    while True:
        kind = kinds()
        batch = make_batch(lane, number, kind, random.random() < 0.4)
        number += 1
        outcome = write(scene, ns, batch)
        while outcome == "unknown" and batch.keyed and random.random() < 0.8:
            time.sleep(0.02)
            outcome = write(scene, ns, batch)
        if outcome == "fenced":
            return
        if outcome != "acknowledged":
            time.sleep(0.01)
        if scene.life.maintain and random.random() < 0.1:
            time.sleep(0.4)  # compaction waits for pauses
        scene.pause()


def writer(scene: Scene) -> None:
    """The one writer, a thread for each of its lanes."""
    life = scene.life
    ns = scene.open("w")
    for start in life.lanes:
        if not scene.look(ns, way=scene.random.choice(("scan", "texts", "get")), lane=start.lane):
            break

    def kinds() -> str:
        if life.only:
            return scene.random.choice(life.only)
        chance = scene.random.random()
        if chance < life.habits.large:
            return scene.random.choice((LARGE, LARGE, LARGE_LOAD, LOAD, HUGE))
        return scene.random.choice(SMALL_KINDS)

    def follow(start: LaneStart) -> None:
        try:
            follow_lane(scene, ns, start, kinds)
        except (BrokenPipeError, EOFError):
            os._exit(0)
        except BaseException:
            scene.tell("broken", what=traceback.format_exc())
            os._exit(1)

    threads = [Thread(target=follow, args=(start,)) for start in life.lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ns.close()


def loader(scene: Scene) -> None:
    """Loads in bulk, beside the writer."""
    ns = scene.open("r")

    def kinds() -> str:
        time.sleep(scene.random.random() * 20 * scene.life.habits.pace)
        return scene.random.choice(scene.life.only or (LOAD, LOAD, LOAD, LARGE_LOAD))

    follow_lane(scene, ns, scene.life.lanes[0], kinds)


# Reading


def reader(scene: Scene) -> None:
    """Reads in every way, and never sees anything go back."""
    ns = scene.open("r", "read")
    lanes = [start.lane for start in scene.life.lanes]
    while True:
        chance = scene.random.random()
        if chance < 0.15:
            scene.look_back(ns)
        elif chance < 0.4:
            way = scene.random.choice(("scan", "texts", "get"))
            scene.look(ns, way=way, lane=scene.random.choice(lanes))
        else:
            scene.look(ns, way="texts" if chance > 0.9 else "scan")
        scene.pause()


# Upkeep


def keeper(phase: str, work: Callable[[Scene, Namespace], int]) -> Callable[[Scene], None]:
    """A program that does passes of one kind of upkeep, sometimes with a new handle."""

    def keep(scene: Scene) -> None:
        while True:
            ns = scene.open("r")
            while scene.random.random() > 0.02:
                scene.store.begin(phase)
                try:
                    done = work(scene, ns)
                    if done:
                        scene.tell("did", what=phase, many=done)
                except PASSING as error:
                    scene.passing(phase, error)
                scene.pause()
            ns.close()

    return keep


def fold(scene: Scene, ns: Namespace) -> int:
    """One fold, of a stretch that had time to gather."""
    time.sleep(scene.random.random() * 5 * scene.life.habits.pace)
    return ns.index() is not None


def compact(scene: Scene, ns: Namespace) -> int:
    """One compaction, sometimes of everything."""
    return ns.compact(full=scene.random.random() < 0.1) is not None


def collect(scene: Scene, ns: Namespace) -> int:
    """One collection; how many objects it deleted."""
    time.sleep(scene.random.random() * 5 * scene.life.habits.pace)
    return ns.gc(apply=True).deleted


def founder(scene: Scene) -> None:
    """Creates a namespace, or finds what one that died while creating it left, and uses it."""
    life = scene.life
    name = life.namespace
    if life.fresh:
        scene.store.begin("create")
        scene.database.create(name, schema=SCHEMA, settings=life.habits.settings)
    scene.store.begin("open")
    opened = scene.database.namespace(
        name, schema=SCHEMA, settings=life.habits.settings, maintain=False
    )
    with opened as ns:
        if name != NAMESPACE:
            ns.write(upserts=[{"id": "first", "batch": 1}])
            if ns.get("first") != {"id": "first", "batch": 1}:
                raise AssertionError(f"{name} does not hold what was written to it")
        report = ns.verify(deep=True)
        if not report.sound or ns.status().retention != life.habits.retention:
            raise AssertionError(f"{name} is not as it was made: {report}")
    scene.tell("founded", name=name)


PROGRAMS: dict[str, Callable[[Scene], None]] = {
    "founder": founder,
    "writer": writer,
    "loader": loader,
    "indexer": keeper("fold", fold),
    "compactor": keeper("compact", compact),
    "collector": keeper("collect", collect),
    "reader": reader,
    "inspector": lambda scene: inspect(scene),
    "probe": lambda scene: probe(scene.life, scene.tell),
    "probe count": lambda scene: count_probes(scene.life, scene.tell),
}


def live(life: Life, channel: Channel) -> None:
    """One life, from the opening of the store to whatever end it takes."""
    secrets: dict[str, Any] = life.secrets
    inner = open_store(life.url, **secrets)
    store = HostileStore(
        inner, life.hostility, lambda name: channel.send({"told": "dying", "point": name})
    )
    database = Database(store, life.habits.options(), SYSTEM)
    PROGRAMS[life.role](Scene(life, channel, store, database, Random(life.seed)))
    channel.send({"told": "ended"})

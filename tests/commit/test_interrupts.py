"""An interruption at every place of a commit: nobody waits for ever, nothing told is lost."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread, current_thread, main_thread

import pytest

import reef
from commit.interrupting import Interrupter
from reef.documents import Namespace
from reef.store import MemoryStore
from support.faults import FaultyStore, request

PATIENCE = 60.0


class Scene:
    """A namespace in which some threads commit; the main one is interrupted."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.faulty = FaultyStore(self.store)
        self.ns: Namespace = reef.connect(self.faulty).namespace("n", maintain=False)
        self.ns.write(upserts=[{"id": "first"}])
        self.told: dict[str, object] = {}
        self.threads: list[Thread] = []

    @property
    def waiting(self) -> int:
        writer = self.ns._writer
        assert writer is not None
        return writer.waiting

    def write(self, name: str) -> None:
        try:
            self.told[name] = self.ns.write(upserts=[{"id": name}])
        except BaseException as error:
            self.told[name] = error

    def start(self, name: str) -> None:
        thread = Thread(target=self.write, args=(name,), name=name)
        thread.start()
        self.threads.append(thread)

    def until_waiting(self, count: int) -> None:
        while self.waiting < count:
            pass

    def interrupt(self, nth: int, name: str = "mine") -> Interrupter:
        self.interrupter = interrupter = Interrupter(nth)
        try:
            self.told[name] = interrupter.run(lambda: self.ns.write(upserts=[{"id": name}]))
        except KeyboardInterrupt as error:
            self.told[name] = error
        return interrupter

    def check(self, place: str | None) -> None:
        """Everybody has an answer, the handle works, and who was told of a commit has one."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), f"{thread.name} waits for ever after {place}"
        after = Thread(target=self.write, args=("after",), daemon=True)
        after.start()
        after.join(PATIENCE)
        assert not after.is_alive(), f"nobody can commit after {place}"
        assert isinstance(self.told["after"], reef.Receipt), (place, self.told)
        fresh = reef.connect(self.store).namespace("n", "r")
        for name, answer in self.told.items():
            expected = reef.Receipt | reef.CommitUncertain | KeyboardInterrupt
            assert isinstance(answer, expected), (place, name, answer)
            if isinstance(answer, reef.Receipt):
                assert fresh.get(name) == {"id": name}, (place, name)
            assert self.ns.get(name) == fresh.get(name), (place, name)
            if name != "mine":
                assert not isinstance(answer, KeyboardInterrupt), (place, name)
        assert self.waiting == 0, place
        ids = [change.id for change in fresh.changes()]
        assert len(ids) == len(set(ids)), f"{place}: something was written twice: {ids}"


def alone(scene: Scene, nth: int) -> Interrupter:
    """The interrupted thread leads, and nobody follows."""
    return scene.interrupt(nth)


def leading(scene: Scene, nth: int) -> Interrupter:
    """Others queue up while its PUT is under way, and one of them has to lead on."""

    def arrive() -> None:
        if current_thread() is main_thread():
            scene.interrupter.paused = True
            for number, name in enumerate(("one", "two")):
                scene.start(name)
                scene.until_waiting(number + 2)
            scene.interrupter.paused = False

    scene.faulty.pause_before(request("create", "wal/"), arrive)
    return scene.interrupt(nth)


def following(scene: Scene, nth: int) -> Interrupter:
    """It queues up behind another's PUT, which ends when it waits or is gone; another one follows
    it. It is the next leader, or would be."""
    left = Event()

    def hold() -> None:
        if current_thread().name == "leader":
            while scene.waiting < 2 and not left.is_set():
                pass
            scene.start("last")
            while scene.waiting < 3 and not left.is_set():
                pass

    scene.faulty.pause_before(request("create", "wal/"), hold)
    scene.start("leader")
    scene.until_waiting(1)
    try:
        return scene.interrupt(nth)
    finally:
        left.set()


@pytest.mark.parametrize("scenario", [alone, leading, following])
def test_an_interruption_at_every_place(scenario: Callable[[Scene, int], Interrupter]) -> None:
    nth = 0
    while True:
        scene = Scene()
        interrupter = scenario(scene, nth)
        scene.check(interrupter.place)
        if not interrupter.struck:
            break
        nth += 1
    assert nth > 100

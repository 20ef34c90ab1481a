"""The inspector: comes when everybody is dead, and looks at what they left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import reef
from torture.murder.batch import make_batch

if TYPE_CHECKING:
    from torture.murder.victim import Scene


def inspect(scene: Scene) -> None:
    """Read and verify what is there; then fold, compact and collect it all, and look again.

    Neither the keys of acknowledged batches, tried again, nor any of the upkeep may change
    anything, and afterwards nothing may be left that nothing needs.
    """
    with scene.database.namespace(scene.life.namespace, "r") as ns:
        _look(scene, ns)
        _verify(scene, ns)
    with scene.database.namespace(scene.life.namespace, maintain=False, create=False) as ns:
        _look(scene, ns)
        while ns.status().unfolded_objects:
            ns.index()
        _look(scene, ns)
        ns.compact(full=True)
        _look(scene, ns)
        _try_again(scene, ns)
        while ns.status().unfolded_objects:
            ns.index()
        # The clock of some buckets ticks in whole seconds.
        patience = max(scene.life.habits.retention, scene.life.habits.grace)
        time.sleep(patience + (2.1 if "://" in scene.life.url else 0.1))
        for _ in range(2):
            ns.gc(apply=True)
            _look(scene, ns)
        orphans = _verify(scene, ns)
        if orphans:
            raise AssertionError(f"{orphans} orphans are left when nobody is at work")
    with scene.database.namespace(scene.life.namespace, "r") as ns:
        _look(scene, ns)
    scene.tell("inspected")


def _look(scene: Scene, ns: reef.Namespace) -> None:
    if not scene.look(ns, way="texts"):
        raise AssertionError("the state cannot be read though nobody is at work")


def _verify(scene: Scene, ns: reef.Namespace) -> int:
    report = ns.verify(deep=True)
    if not report.sound:
        raise AssertionError(f"verify found {report.problems}")
    scene.tell("verified", segments=report.segments)
    return report.orphans


def _try_again(scene: Scene, ns: reef.Namespace) -> None:
    scene.tell("which keys")
    for lane, number, kind, lsn in scene.channel.receive():
        batch = make_batch(lane, number, kind, True)
        if batch.bulk:
            receipt = ns.load(batch.documents(), idempotency_key=batch.key)
        else:
            receipt = ns.write(**batch.arguments())
        if receipt.lsn != lsn:
            raise AssertionError(
                f"key {batch.key} was answered with slot {lsn} and now with {receipt.lsn}"
            )
        scene.tell("recalled", key=batch.key)

"""The cache keeps to its limit and drops the least recently used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from reef.segment import BlockCache


@dataclass
class Thing:
    nbytes: int


def test_the_least_recently_used_goes_first() -> None:
    cache = BlockCache(30)
    for key in "abc":
        cache.put(key, Thing(10))
    assert cache.get("a")
    assert cache.peek("b")
    cache.put("d", Thing(10))
    assert cache.get("b") is None
    assert cache.used == 30
    cache.put("e", Thing(25))
    assert (len(cache), cache.used) == (1, 25)


def test_replacing_and_dropping_count_right() -> None:
    cache = BlockCache(100)
    cache.put("a", Thing(40))
    cache.put("a", Thing(10))
    assert cache.used == 10
    cache.put("a", Thing(101))
    assert (len(cache), cache.used) == (0, 0)
    cache.put("b", Thing(5))
    cache.discard("b")
    cache.discard("b")
    assert cache.used == 0
    cache.put("c", Thing(5))
    cache.clear()
    assert (len(cache), cache.used) == (0, 0)


def test_many_threads() -> None:
    cache = BlockCache(500)

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(3000):
            key = random.randrange(100)
            found = cache.get(key)
            if found is None:
                cache.put(key, Thing(key))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert cache.used == sum(cache.peek(key).nbytes for key in range(100) if cache.peek(key))
    assert cache.used <= 500

"""The register over a root that is no manifest: a title, of a format of its own, without a hint."""

from __future__ import annotations

import json

import msgspec
import pytest

from reef.environment import Environment
from reef.errors import AlreadyExists, Corruption, ObjectNotFound, UnsupportedFormat
from reef.manifest import Head, Register, Root, take_over
from reef.manifest.codec import RootCodec
from reef.manifest.layout import Layout
from reef.store import CountingStore, MemoryStore, Store
from support.faults import Clock


class Post(Root, frozen=True, omit_defaults=True):
    """Who holds a post."""

    master_epoch: int = 0
    title: str = ""

    @property
    def least_format(self) -> int:
        """The first version had no titles."""
        return 2 if self.title else 1


class NoPost(Exception):
    """There is none."""


POSTS: Layout[Post] = Layout("posts/", ".post", RootCodec(Post, "post", 2), lambda: NoPost())
HINTED: Layout[Post] = Layout("posts/", ".post", POSTS.codec, lambda: NoPost(), "newest")


def posts(store: Store, layout: Layout[Post] = POSTS, clock: Clock | None = None) -> Register[Post]:
    environment = clock.environment() if clock else Environment()
    return Register(store, environment, environment.unique_id(), layout)


def first(**more: object) -> Post:
    return Post(1, "n", 0.0, "p", "first", **more)  # type: ignore[arg-type]


def test_one_winner_a_generation(store: Store) -> None:
    mine, other = posts(store), posts(store)
    with pytest.raises(NoPost):
        mine.head()
    base = mine.create(first())
    with pytest.raises(AlreadyExists):
        other.create(msgspec.structs.replace(first(), nonce="other"))
    other.publish(lambda post: msgspec.structs.replace(post, title="theirs"))
    seen: list[Post] = []

    def edit(post: Post) -> Post:
        seen.append(post)
        return msgspec.structs.replace(post, title=post.title + " and mine")

    head = mine.publish(edit, base)
    assert [(post.generation, post.title) for post in seen] == [(2, ""), (3, "theirs")]
    assert (head.root.title, head.slot) == ("theirs and mine", 3)
    assert head.root == other.head().root == head.manifest
    assert mine.read_generation(2).nonce == head.root.previous
    with pytest.raises(ObjectNotFound):
        mine.read_generation(4)


def test_where_it_lies_and_what_it_looks_like(memory_store: MemoryStore) -> None:
    posts(memory_store).create(first(format=2, title="x"))
    (info,) = memory_store.list("")
    assert info.key == "posts/00000000000000000001.post" == POSTS.key(1)
    assert (POSTS.generation_of(info.key), POSTS.generation_of("posts/x.post")) == (1, None)
    said = json.loads(bytes(memory_store.get(info.key).data))["post"]
    assert (said["title"], said["format"], said["namespace"]) == ("x", 2, "n")


@pytest.mark.parametrize("layout", [POSTS, HINTED])
def test_the_hint_is_the_layouts_choice(layout: Layout[Post]) -> None:
    store = CountingStore(MemoryStore())
    register = posts(store, layout)
    register.create(first())
    for _ in range(3):
        head = register.publish(lambda post: post)
    before = store.counts()
    assert register.head().root == head.root
    cost = store.counts() - before
    assert (cost.get, cost.list, cost.requests) == (1, 1, 2)
    assert len(list(store.list(""))) == 4 + (layout.hint is not None)


def test_a_role_is_taken_over_by_raising_its_epoch(memory_store: MemoryStore) -> None:
    one, two = posts(memory_store), posts(memory_store)
    base: Head[Post] = one.create(first())
    epoch, head = take_over(one, "master_epoch", base)
    assert (epoch, head.root.master_epoch) == (1, 1)
    assert take_over(two, "master_epoch", base)[0] == 2
    assert take_over(one, "master_epoch", head, above=6)[0] == 7
    assert two.head().root.master_epoch == 7


def test_formats_and_damage(memory_store: MemoryStore) -> None:
    codec = POSTS.codec
    old = RootCodec(Post, "post", 1)
    assert codec.decode("k", memoryview(old.encode(Post(1, "n", 0.0, "p", "x")))).format == 1
    with pytest.raises(UnsupportedFormat, match="post format 2; this Reef reads 1"):
        old.decode("k", memoryview(codec.encode(first(format=2))))
    register = posts(memory_store)
    register.create(first())
    assert register.publish(lambda post: post).root.format == 1
    titled = register.publish(lambda post: msgspec.structs.replace(post, title="x"))
    assert titled.root.format == register.head().root.format == 2
    other = RootCodec(Post, "letter", 2)
    with pytest.raises(Corruption, match="not a letter"):
        other.decode("k", memoryview(codec.encode(first())))
    damaged = bytearray(codec.encode(first()))
    damaged[40] ^= 1
    with pytest.raises(Corruption, match="checksum of the post"):
        codec.decode("k", memoryview(damaged))


def test_without_a_lease_every_publication_looks_again() -> None:
    clock = Clock()
    store = CountingStore(MemoryStore(clock.environment()))
    register = posts(store, clock=clock)
    head = register.create(first())
    other = posts(store, clock=clock)
    for _ in range(3):
        other.publish(lambda post: post)
    for generation in (1, 2):
        store.delete(POSTS.key(generation))
    # It wins number 2 again, in no time, and is not believed.
    published = register.publish(lambda post: msgspec.structs.replace(post, title="mine"), head)
    assert (published.root.generation, published.root.title) == (5, "mine")

"""What every store must do, on each store that there is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reef.errors import AlreadyExists, InvalidName, ObjectNotFound, PreconditionFailed
from reef.store import CountingStore, MemoryStore, Store

ODD_KEYS = [
    "a b",
    "ü/é",
    "100%",
    "a%20b",
    "a%2Fb",
    "a+b",
    ".hidden",
    "a..b",
    "...",
    "x.",
    "~t",
    "a=b&c",
    "q?",
    "#h",
    "[x]{y}",
    "a*b",
    "it's",
    '"quoted"',
    "日本/東京",
    "a:b,c;d|e",
    "<x>",
    "`^$!@",
    "😀",
    "trailing ",
    " leading",
]
BAD_KEYS = ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "a\nb", "a\0b"]


def keys_of(store: Store, prefix: str = "", start_after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, start_after=start_after)]


def race(calls: list[Callable[[], str]]) -> list[str | Exception]:
    """What each call returned or raised, all begun at one moment."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], str]) -> str | Exception:
        barrier.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def test_what_was_put_is_read(store: Store) -> None:
    version = store.put("a/b", b"hello")
    blob = store.get("a/b")
    assert bytes(blob.data) == b"hello"
    assert blob.data.readonly
    assert blob.version == version
    second = store.put("a/b", b"hello again")
    assert second != version
    assert bytes(store.get("a/b").data) == b"hello again"


@pytest.mark.parametrize(
    "data",
    [
        b"ab",
        bytearray(b"ab"),
        memoryview(b"xaby")[1:3],
        [b"a", bytearray(b"b")],
        [b"", memoryview(b"ab")],
        memoryview(b"ab\0\0").cast("H")[:1],
    ],
    ids=["bytes", "bytearray", "memoryview", "several", "with empty", "other items"],
)
def test_any_kind_of_buffer(store: Store, data: object) -> None:
    store.put("put", data)  # type: ignore[arg-type]
    version = store.create("create", data)  # type: ignore[arg-type]
    store.replace("create", data, version)  # type: ignore[arg-type]
    assert bytes(store.get("put").data) == bytes(store.get("create").data) == b"ab"


def test_many_buffers_are_written_one_after_the_other(store: Store) -> None:
    parts = [bytes([number % 256]) * (number % 997) for number in range(3000)]
    store.create("many", parts)
    assert store.get("many").data == b"".join(parts)
    store.put("none", [])
    assert store.get("none").data == b""


def test_an_empty_object(store: Store) -> None:
    store.create("empty", b"")
    assert store.get("empty").data == b""
    assert store.head("empty").size == 0
    assert store.get_range("empty", 0, 10) == b""
    assert [info.size for info in store.list("")] == [0]


def test_a_missing_object(store: Store) -> None:
    for call in (
        lambda: store.get("a/none"),
        lambda: store.head("a/none"),
        lambda: store.get_range("a/none", 0, 1),
        lambda: store.get_range("a/none", 0, 0),
        lambda: store.get_ranges("a/none", [(0, 1), (2, 1)]),
    ):
        with pytest.raises(ObjectNotFound, match="a/none"):
            call()
    assert keys_of(store, "a/") == []


def test_a_folder_is_no_object(store: Store) -> None:
    store.put("a/b/c", b"")
    for call in (lambda: store.get("a/b"), lambda: store.head("a"), lambda: store.get("a/b/c/d")):
        with pytest.raises(ObjectNotFound):
            call()
    store.delete("a/b")
    assert keys_of(store) == ["a/b/c"]


def test_ranges(store: Store) -> None:
    store.put("ten", b"0123456789")
    assert store.get_range("ten", 2, 3) == b"234"
    assert store.get_range("ten", 8, 30) == b"89"
    assert store.get_range("ten", 10, 3) == b""
    assert store.get_range("ten", 100, 3) == b""
    assert store.get_range("ten", 4, 0) == b""
    assert store.get_ranges("ten", []) == []
    assert store.get_ranges("ten", [(3, 1)]) == [b"3"]
    assert store.get_ranges("ten", [(9, 5), (0, 2), (0, 2)]) == [b"9", b"01", b"01"]
    assert store.get_ranges("ten", [(9, 5), (10, 2), (0, 0), (3, 2)]) == [b"9", b"", b"", b"34"]
    many = [(start % 10, 1) for start in range(50)]
    assert store.get_ranges("ten", many) == [b"%d" % start for start, _ in many]


def test_create_only_once(store: Store) -> None:
    version = store.create("a", b"first")
    with pytest.raises(AlreadyExists, match="a"):
        store.create("a", b"second")
    assert bytes(store.get("a").data) == b"first"
    assert store.get("a").version == version
    store.delete("a")
    store.create("a", b"third")
    assert bytes(store.get("a").data) == b"third"


def test_racing_creates_have_one_winner(store: Store) -> None:
    # All races at once: the S3 server makes the losers of one wait for whole seconds.
    keys = [f"race/{number}" for number in range(6)]
    entries = [(key, b"%d" % racer) for racer in range(4) for key in keys]
    results = race([partial(store.create, key, data) for key, data in entries])
    for key in keys:
        outcomes = [
            (data, result)
            for (entered, data), result in zip(entries, results, strict=True)
            if entered == key
        ]
        winners = [(data, result) for data, result in outcomes if isinstance(result, str)]
        assert len(winners) == 1
        assert sum(isinstance(result, AlreadyExists) for _, result in outcomes) == 3
        blob = store.get(key)
        assert (bytes(blob.data), blob.version) == winners[0]


def test_replace_only_over_its_version(store: Store) -> None:
    first = store.create("a", b"1")
    second = store.replace("a", b"2", first)
    assert store.get("a").version == second != first
    with pytest.raises(PreconditionFailed, match="a"):
        store.replace("a", b"3", first)
    assert bytes(store.get("a").data) == b"2"
    third = store.put("a", b"4")
    with pytest.raises(PreconditionFailed):
        store.replace("a", b"5", second)
    store.delete("a")
    with pytest.raises(PreconditionFailed):
        store.replace("a", b"6", third)
    with pytest.raises(ObjectNotFound):
        store.get("a")


def test_racing_replaces_have_one_winner(store: Store) -> None:
    version = store.create("a", b"start")
    for turn in range(2):
        entries = [b"%d %d" % (turn, racer) for racer in range(4)]
        results = race([partial(store.replace, "a", data, version) for data in entries])
        winners = [n for n, result in enumerate(results) if isinstance(result, str)]
        assert len(winners) == 1
        assert sum(isinstance(result, PreconditionFailed) for result in results) == 3
        blob = store.get("a")
        assert bytes(blob.data) == entries[winners[0]]
        version = blob.version
        assert version == results[winners[0]]


def test_no_increment_is_lost(store: Store) -> None:
    store.create("counter", b"0")

    def increment() -> str:
        for _ in range(3):
            while True:
                blob = store.get("counter")
                try:
                    store.replace("counter", b"%d" % (int(bytes(blob.data)) + 1), blob.version)
                    break
                except PreconditionFailed:
                    continue
        return ""

    assert race([increment] * 3) == [""] * 3
    assert bytes(store.get("counter").data) == b"9"


def test_versions_tell_writes_apart(store: Store) -> None:
    versions = [store.put("a", b"%03d" % number) for number in range(30)]
    assert len(set(versions)) == 30


def test_head_and_list_agree(store: Store) -> None:
    store.put("x/a", b"abc")
    version = store.create("x/b", b"defg")
    listed = list(store.list("x/"))
    assert [store.head(info.key) for info in listed] == listed
    assert [(info.key, info.size) for info in listed] == [("x/a", 3), ("x/b", 4)]
    assert listed[1].version == version
    assert listed[0].modified > 1.6e9


def test_listing_is_in_code_point_order(store: Store) -> None:
    keys = [
        "a",
        "a-b",
        "a.b",
        "a/b",
        "a0",
        "b/a",
        "b-x",
        "b.x/y",
        "Z",
        "z",
        "é",
        "ÿ/a",
        "\uffee",
        "😀",
    ]
    if store.url.startswith("/"):
        keys.remove("a")
    store.concurrently([lambda key=key: store.put(key, b"") for key in keys])
    assert keys_of(store) == sorted(keys)
    for prefix in ("a", "a/", "a-", "b", "b/", "b.x/y", "é", "none", "none/", "b/a/"):
        assert keys_of(store, prefix) == sorted(key for key in keys if key.startswith(prefix))
    for after in (*keys, "a/", "a/c", "b", "aa", "~"):
        assert keys_of(store, "", after) == sorted(key for key in keys if key > after), after


@pytest.fixture(scope="module")
def shared_s3(request: pytest.FixtureRequest) -> Iterator[Store]:
    from reef.store import open_store

    store = open_store(request.getfixturevalue("seaweed").url("listing"))
    yield store
    store.close()


component = st.text(alphabet="ab-.0/ ~é", min_size=1, max_size=4)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_listing_on_s3_is_that_in_memory(shared_s3: Store, data: st.DataObject) -> None:
    names = data.draw(st.lists(component, min_size=1, max_size=8, unique=True))
    keys = [name for name in names if all(part not in ("", ".", "..") for part in name.split("/"))]
    memory = MemoryStore()
    for key in keys:
        memory.put(key, b"")
    shared_s3.delete_many(keys_of(shared_s3))
    shared_s3.concurrently([lambda key=key: shared_s3.put(key, b"") for key in keys])
    prefix = data.draw(st.sampled_from(["", *(key[:cut] for key in keys for cut in (1, 2, 3))]))
    after = data.draw(st.one_of(st.just(""), component, st.sampled_from(["", *keys])))
    assert keys_of(shared_s3, prefix, after) == keys_of(memory, prefix, after)
    assert shared_s3.list_folders("") == memory.list_folders("")


def test_listing_more_than_a_page(store: Store) -> None:
    keys = [f"page/{number:020d}.wal" for number in range(1203)]
    store.concurrently([lambda key=key: store.put(key, b"x") for key in keys])
    assert keys_of(store, "page/") == keys
    assert keys_of(store, "page/", keys[1100]) == keys[1101:]
    assert keys_of(store, "page/", f"page/{1100:020d}") == keys[1100:]
    assert keys_of(store, f"page/{12:019d}") == keys[120:130]
    assert next(iter(store.list("page/"))).key == keys[0]
    store.delete_many(keys[1:])
    assert keys_of(store, "page/") == keys[:1]


def test_folders(store: Store) -> None:
    for key in ("ns/a/x", "ns/a/y/z", "ns/b-c/x", "ns/b/x", "ns/file", "other/x"):
        store.put(key, b"")
    assert store.list_folders("ns/") == ["a", "b", "b-c"]
    assert store.list_folders("") == ["ns", "other"]
    assert store.list_folders("ns/a/") == ["y"]
    assert store.list_folders("none/") == []
    store.delete("ns/b/x")
    assert store.list_folders("ns/") == ["a", "b-c"]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_odd_keys(store: Store, key: str) -> None:
    version = store.create(key, key.encode())
    assert bytes(store.get(key).data) == key.encode()
    assert keys_of(store) == [key]
    assert store.head(key).version == version
    with pytest.raises(AlreadyExists):
        store.create(key, b"")
    store.delete_many([key])
    assert keys_of(store) == []


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_keys_are_refused(store: Store, key: str) -> None:
    for call in (
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.put(key, b""),
        lambda: store.create(key, b""),
        lambda: store.replace(key, b"", "x"),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: store.delete_many([key]),
    ):
        with pytest.raises(InvalidName):
            call()


def test_deletes_may_be_repeated(store: Store) -> None:
    store.put("a", b"")
    store.delete("a")
    store.delete("a")
    store.delete("never/there")
    store.put("b/c", b"")
    store.delete_many(["b/c", "b/d", "a"])
    store.delete_many([])
    assert keys_of(store) == []


def test_a_large_object(store: Store) -> None:
    block = bytes(range(256)) * 4096
    parts = [block] * 40
    store.put("large/put", parts)
    store.create("large/create", parts)
    with pytest.raises(AlreadyExists):
        store.create("large/create", parts)
    whole = b"".join(parts)
    for key in ("large/put", "large/create"):
        assert store.get(key).data == whole
        assert store.head(key).size == len(whole)
        assert store.get_range(key, len(block) - 2, 4) == b"\xfe\xff\x00\x01"


def test_concurrently_keeps_order_and_raises_the_first_failure(store: Store) -> None:
    store.put("a", b"1")
    assert store.concurrently([]) == []
    assert store.concurrently([lambda n=n: n for n in range(100)]) == list(range(100))
    finished = []
    gate = threading.Event()

    def slow() -> str:
        gate.wait(10)
        finished.append(True)
        return ""

    def failing() -> str:
        gate.set()
        raise ObjectNotFound("x")

    with pytest.raises(ObjectNotFound):
        store.concurrently([failing, slow])
    # The other was either never begun or has ended.
    before = len(finished)
    store.concurrently([lambda: "", lambda: ""])
    assert len(finished) == before


def test_requests_inside_requests_do_not_wait_for_ever(store: Store) -> None:
    store.put("a", b"0123456789")

    def nested() -> list[memoryview]:
        pending = store.start(lambda: store.get_ranges("a", [(0, 1), (1, 1)]))
        assert pending.result() == pending.result()
        return store.concurrently(
            [lambda: store.get_ranges("a", [(n, 1) for n in range(10)])[n] for n in range(3)]
        )

    results = store.concurrently([nested] * 100)
    assert len(results) == 100


def test_start_runs_without_being_waited_for(store: Store) -> None:
    def begin() -> None:
        store.start(lambda: store.put("b", b"inside"))

    store.start(lambda: store.put("a", b"outside"))
    store.start(begin)
    store.close()
    assert keys_of(store) == ["a", "b"]
    pending = store.start(lambda: store.get("none"))
    with pytest.raises(ObjectNotFound):
        pending.result()


def test_below(store: Store) -> None:
    counting = CountingStore(store)
    view = counting.below("ns/one/")
    version = view.create("wal/1", b"a")
    assert bytes(store.get("ns/one/wal/1").data) == b"a"
    view.replace("wal/1", b"bcd", version)
    view.put("x", b"")
    store.put("ns/one-more/y", b"")
    assert keys_of(view) == ["wal/1", "x"]
    assert keys_of(view, "", "wal/1") == ["x"]
    assert view.head("wal/1").key == "wal/1"
    assert view.list_folders("") == ["wal"]
    assert view.get_ranges("wal/1", [(0, 1), (1, 2)]) == [b"b", b"cd"]
    inner = view.below("wal")
    assert keys_of(inner) == ["1"]
    assert inner.url.partition("?")[0].endswith("/ns/one/wal")
    assert inner.url.startswith(store.url.partition("?")[0])
    with pytest.raises(InvalidName):
        inner.get("../x")
    with pytest.raises(InvalidName):
        view.below("..")
    view.delete_many(["x"])
    inner.delete("1")
    assert keys_of(store) == ["ns/one-more/y"]
    inner.close()
    counts = counting.counts()
    assert (counts.create, counts.replace, counts.put, counts.delete) == (1, 1, 1, 2)
    assert counts.get_range == 2

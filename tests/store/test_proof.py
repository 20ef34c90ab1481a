"""A store that does not keep put-if-absent is found out before anything is entrusted to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event, Thread

import pytest

import reef
from reef.environment import SYSTEM
from reef.errors import (
    AccessDenied,
    AlreadyExists,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from reef.store import CountingStore, MemoryStore, Store, open_store, proof
from reef.store.contract import Blob, Data
from reef.store.proof import prove, prove_replace
from support.moto_servers import MotoServers

_prefixes = count()


@pytest.fixture(autouse=True)
def nothing_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(proof, "_proved", set())


@pytest.fixture
def prefix() -> str:
    return f"proof-{next(_prefixes)}"


def proofs(requests: list[str], prefix: str) -> list[str]:
    return [line for line in requests if f"{prefix}/.reef-proof/" in line]


# What servers do


@pytest.mark.parametrize(
    ("kind", "what", "requests"),
    [
        ("overwriting", "ignores put-if-absent: it overwrote an object and said nothing", 3),
        ("unable", "does not offer conditional writes", 3),
        ("refusing", "takes a write, but refuses it as put-if-absent", 4),
    ],
)
def test_s3_servers_that_do_not_keep_conditions_are_refused(
    moto: MotoServers, prefix: str, kind: str, what: str, requests: int
) -> None:
    url = moto.url(kind, prefix)
    with reef.connect(url, **moto.credentials) as db:
        for attempt in (1, 2):
            with pytest.raises(UnsafeStore, match=what) as caught:
                db.namespace("x")
            assert "\n" not in str(caught.value)
            assert len(proofs(moto.requests(kind), prefix)) == requests * attempt
        with pytest.raises(UnsafeStore, match=what):
            db.create("x")
        assert db.namespaces() == []
        assert list(db.store.list("")) == []


def test_an_s3_server_that_ignores_conditions_may_be_read_and_not_written(
    moto: MotoServers, prefix: str
) -> None:
    with reef.connect(moto.url("whole", prefix), **moto.credentials) as db:
        db.namespace("x", maintain=False).write(upserts=[{"id": "a"}])
        before = [info.key for info in db.store.list("")]
    with reef.connect(moto.url("overwriting", prefix), **moto.credentials) as db:
        with db.namespace("x", "r") as reader:
            assert reader.get("a") == {"id": "a"}
            with pytest.raises(UnsafeStore):
                reader.index()
            with pytest.raises(UnsafeStore):
                reader.load([{"id": "b"}])
        with pytest.raises(UnsafeStore):
            db.namespace("x")
        left = [info.key for info in db.store.list("") if "/segments/" not in info.key]
        assert left == before


def test_what_a_server_cannot_do_is_not_told_as_uncertain(moto: MotoServers, prefix: str) -> None:
    """Even where nothing was proved before."""
    url = moto.url("unable", prefix)
    quick = {"prove": False, "retries": 2, "backoff": 0.001}
    with reef.connect(url, **moto.credentials, **quick) as db:
        with pytest.raises(UnsafeStore, match="does not offer conditional writes"):
            db.namespace("x")
        served = [line for line in moto.requests("unable") if prefix in line and "PUT" in line]
        assert len(served) <= 3


def test_a_sound_server_is_asked_once_in_a_process(moto: MotoServers, prefix: str) -> None:
    store = open_store(moto.url("whole", prefix), **moto.credentials)
    store.create("a", b"")
    assert len(proofs(moto.requests("whole"), prefix)) == 6  # and one deletion
    store.create("b", b"")
    again = open_store(moto.url("whole", f"{prefix}/below"), **moto.credentials)
    again.create("c", b"")
    assert len(proofs(moto.requests("whole"), prefix)) == 6
    assert [info.key for info in store.list("")] == ["a", "b", "below/c"]


def test_threads_wait_for_one_proof(moto: MotoServers, prefix: str) -> None:
    store = open_store(moto.url("whole", prefix), **moto.credentials)
    # More than the store has threads: those that wait must not keep the proof from its own.
    store.concurrently([lambda n=n: store.create(f"{n:02}", b"") for n in range(50)])
    assert len(proofs(moto.requests("whole"), prefix)) == 6
    assert len(list(store.list(""))) == 50


def test_replace_is_proved_before_it_is_used(moto: MotoServers, prefix: str) -> None:
    store = open_store(moto.url("overwriting", prefix), **moto.credentials)
    version = store.put("a", b"old")
    with pytest.raises(UnsafeStore, match="version was not the one of If-Match"):
        store.replace("a", b"new", version)
    assert bytes(store.get("a").data) == b"old"
    assert [info.key for info in store.list("")] == ["a"]


# What stores might do


class OddStore(MemoryStore):
    """A store that does something else than it should in one of its methods."""

    def __init__(self, **odd: Callable[..., object]) -> None:
        super().__init__()
        self.odd = odd

    def create(self, key: str, data: Data) -> str:
        odd = self.odd.get("create")
        return super().create(key, data) if odd is None else odd(self, key, data)  # type: ignore

    def replace(self, key: str, data: Data, version: str) -> str:
        odd = self.odd.get("replace")
        return super().replace(key, data, version) if odd is None else odd(self, key, data)  # type: ignore

    def get(self, key: str) -> Blob:
        odd = self.odd.get("get")
        return super().get(key) if odd is None else odd(self, key)  # type: ignore


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object) -> None:
        raise error

    return fail


def overwrites_and_denies(store: OddStore, key: str, data: Data) -> str:
    """It says that the key was taken, and so it was, until then."""
    if bytes(data) != b"late":
        return MemoryStore.create(store, key, data)
    store.put(key, data)
    raise AlreadyExists(key)


def looks_and_writes(store: OddStore, key: str, data: Data) -> str:
    """Two racing ones win, and whoever comes later is refused."""
    if bytes(data) == b"late" or b"racer 0" in bytes(data):
        raise AlreadyExists(key)
    return store.put(key, data)


def loses_answers() -> Callable[[OddStore, str, Data], str]:
    """Its winner learns from a retry that the key is taken: allowed, and no harm."""

    def create(store: OddStore, key: str, data: Data) -> str:
        MemoryStore.create(store, key, data)
        raise AlreadyExists(key)

    return create


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (OddStore(create=MemoryStore.put), "ignores put-if-absent"),
        (OddStore(create=overwrites_and_denies), "and overwrote the object"),
        (OddStore(create=looks_and_writes), "accepted 2 of 3 racing put-if-absents"),
        (OddStore(create=raising(AlreadyExists("k"))), "the key was taken, and it is not so"),
        (OddStore(create=raising(StoreError("no"))), "refuses it as put-if-absent"),
        (OddStore(create=raising(UnsafeStore("does not offer it"))), "does not offer it"),
        (OddStore(get=raising(reef.errors.ObjectNotFound("k"))), "was written, and it is not so"),
    ],
)
def test_what_a_store_did_is_named(store: OddStore, what: str) -> None:
    with pytest.raises(UnsafeStore, match=what):
        prove(store, SYSTEM)
    assert list(store.list("")) == []


@pytest.mark.parametrize("error", [AccessDenied("no"), StoreUnavailable("gone")])
def test_a_store_that_cannot_be_asked_is_not_called_unsafe(error: StoreError) -> None:
    with pytest.raises(type(error)) as caught:
        prove(OddStore(create=raising(error)), SYSTEM)
    assert caught.value is error


def test_sound_stores_pass_and_keep_nothing(memory_store: MemoryStore) -> None:
    for store in (memory_store, OddStore(create=loses_answers())):
        counting = CountingStore(store)
        prove(counting, SYSTEM)
        counts = counting.counts()
        assert (counts.create, counts.get, counts.delete, counts.requests) == (4, 2, 1, 7)
        assert list(store.list("")) == []
    prove_replace(memory_store, SYSTEM)
    assert list(memory_store.list("")) == []


def test_a_passing_failure_does_not_fail_the_proof(memory_store: MemoryStore) -> None:
    class Impatient(MemoryStore):
        def without_retries(self) -> Store:
            return OddStore(create=raising(StoreUnavailable("busy")))

    prove(Impatient(), SYSTEM)


@pytest.mark.parametrize(
    ("replace", "what"),
    [
        (MemoryStore.put, "version was not the one of If-Match"),
        (raising(PreconditionFailed("k")), "refused If-Match with the version"),
    ],
)
def test_what_a_store_did_with_if_match_is_named(replace: Callable[..., str], what: str) -> None:
    with pytest.raises(UnsafeStore, match=what):
        prove_replace(OddStore(replace=replace), SYSTEM)


def test_a_proof_that_failed_is_tried_again() -> None:
    tries = []

    def failing() -> None:
        tries.append("failed")
        raise UnsafeStore("no")

    with pytest.raises(UnsafeStore):
        proof.prove_once("bucket", failing)
    proof.prove_once("bucket", lambda: tries.append("proved"))
    proof.prove_once("bucket", lambda: tries.append("again"))
    assert tries == ["failed", "proved"]


def test_a_bucket_does_not_wait_for_another() -> None:
    begun, done = Event(), Event()

    def slow() -> None:
        begun.set()
        assert done.wait(60)

    thread = Thread(target=proof.prove_once, args=("slow", slow))
    thread.start()
    assert begun.wait(60)
    proof.prove_once("quick", lambda: None)
    done.set()
    thread.join()

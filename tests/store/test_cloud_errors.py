"""What goes wrong with a service has a name in Reef, and comes within a bounded time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

import pytest

from reef.environment import Environment
from reef.errors import (
    AccessDenied,
    AlreadyExists,
    BucketNotFound,
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from reef.store import Store, open_store
from support.moto_servers import BUCKET, MotoServers
from support.seaweed import SeaweedServer, free_ports

KEYS = {"access_key_id": "id", "secret_access_key": "secret", "region": "us-east-1"}
Answer = tuple[int, str]


class CannedServer(ThreadingHTTPServer):
    """Answers each request with the next of its answers, and the last one for ever."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Answer] = []
        self.requests: list[str] = []
        self.lock = threading.Lock()

    def next_answer(self, request: str) -> Answer:
        with self.lock:
            self.requests.append(request)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def open(self, environment: Environment, **options: object) -> Store:
        url = f"s3://bucket/p?endpoint=http://127.0.0.1:{self.server_address[1]}"
        quick = {
            "retries": 2,
            "backoff": 0.001,
            "longest_backoff": 0.002,
            "timeout": 5,
        }
        return open_store(url, environment=environment, prove=False, **{**KEYS, **quick, **options})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: CannedServer

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, code = self.server.next_answer(f"{self.command} {self.path}")
        # A 304 has no body: what is sent as one is taken for the answer to the next request.
        bare = status in (200, 304)
        body = b"" if bare else f"<Error><Code>{code}</Code></Error>".encode()
        self.send_response(status)
        self.send_header("ETag", '"tag"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    with CannedServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def environment(naps: list[float]) -> Environment:
    return Environment(sleep=naps.append)


def requests_of(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.get("k"),
        lambda: store.get_range("k", 0, 1),
        lambda: store.get_ranges("k", [(0, 1), (5, 1)]),
        lambda: store.put("k", b""),
        lambda: store.create("k", b""),
        lambda: store.replace("k", b"", '"tag"'),
        lambda: list(store.list("k")),
        lambda: store.list_folders("k/"),
        lambda: store.delete("k"),
        lambda: store.delete_many(["k"]),
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((404, "NoSuchBucket"), BucketNotFound),
        ((403, "AccessDenied"), AccessDenied),
        ((401, "Unauthorized"), AccessDenied),
        ((400, "ExpiredToken"), AccessDenied),
        ((503, "SlowDown"), StoreUnavailable),
        ((500, "InternalError"), StoreUnavailable),
        ((400, "InvalidArgument"), StoreError),
    ],
)
def test_every_request_names_the_failure(
    canned: CannedServer, environment: Environment, answer: Answer, expected: type[StoreError]
) -> None:
    canned.answers = [answer]
    store = canned.open(environment)
    for request in requests_of(store):
        with pytest.raises(expected) as caught:
            request()
        assert type(caught.value) is expected
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_a_passing_failure_is_retried(canned: CannedServer, environment: Environment) -> None:
    store = canned.open(environment)
    canned.answers = [(503, "SlowDown"), (500, "InternalError"), (200, "")]
    assert store.create("k", b"x") == '"tag"'
    assert len(canned.requests) == 3


def test_retries_are_bounded(canned: CannedServer, environment: Environment) -> None:
    canned.answers = [(503, "SlowDown")]
    with pytest.raises(StoreUnavailable):
        canned.open(environment).get("k")
    assert len(canned.requests) == 3


def test_an_undecided_race_is_asked_again(
    canned: CannedServer, environment: Environment, naps: list[float]
) -> None:
    conflict = (409, "ConditionalRequestConflict")
    canned.answers = [conflict, conflict, (200, "")]
    assert canned.open(environment).create("k", b"x") == '"tag"'
    assert len(canned.requests) == 3
    assert len(naps) == 2
    assert naps[0] < naps[1] * 2


def test_a_race_that_stays_undecided_is_lost(
    canned: CannedServer, environment: Environment, naps: list[float]
) -> None:
    canned.answers = [(409, "ConditionalRequestConflict")]
    with pytest.raises(AlreadyExists):
        canned.open(environment, conflict_retries=3).create("k", b"x")
    assert len(canned.requests) == 4
    assert len(naps) == 3


@pytest.mark.parametrize("status", [412, 304])
def test_a_lost_create_is_not_asked_again(
    canned: CannedServer, environment: Environment, naps: list[float], status: int
) -> None:
    canned.answers = [(status, "PreconditionFailed")]
    store = canned.open(environment)
    with pytest.raises(AlreadyExists):
        store.create("k", b"x")
    assert len(canned.requests) == 1
    assert naps == []
    with pytest.raises(PreconditionFailed):
        store.replace("k", b"x", '"old"')


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_of_other_writes_is_asked_again(
    canned: CannedServer, environment: Environment, naps: list[float], code: str
) -> None:
    """A conditional write under way may hold up writes and deletions that have no condition."""
    canned.answers = [(409, code), (409, code), (200, "")]
    store = canned.open(environment)
    assert store.put("k", b"x") == '"tag"'
    assert len(canned.requests) == 3
    assert len(naps) == 2
    canned.answers = [(409, code)]
    for request in (
        lambda: store.put("k", b"x"),
        lambda: store.delete("k"),
        lambda: store.delete_many(["k", "l"]),
        lambda: store.get("k"),
    ):
        with pytest.raises(StoreUnavailable, match=code):
            request()


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_no_passing_failure(
    canned: CannedServer, environment: Environment, status: int
) -> None:
    """S3 answers so when the region is wrong."""
    canned.answers = [(status, "PermanentRedirect")]
    for request in requests_of(canned.open(environment)):
        with pytest.raises(StoreError, match="region or endpoint may be wrong") as caught:
            request()
        assert type(caught.value) is StoreError


def test_a_foreign_key_that_cannot_be_listed_is_named(moto: MotoServers) -> None:
    url = f"{moto.endpoint('whole')}/{BUCKET}/foreign/ns//b"
    with urlopen(Request(url, method="PUT", data=b""), timeout=60):
        pass
    store = open_store(moto.url("whole", "foreign"), **moto.credentials)
    for request in (lambda: list(store.list("ns/")), lambda: store.list_folders("ns/")):
        with pytest.raises(StoreError, match="its key has an empty or a relative part"):
            request()


def test_a_missing_object_is_not_a_missing_bucket(
    canned: CannedServer, environment: Environment
) -> None:
    canned.answers = [(404, "NoSuchKey")]
    store = canned.open(environment)
    with pytest.raises(ObjectNotFound):
        store.get("k")
    with pytest.raises(PreconditionFailed):
        store.replace("k", b"", '"tag"')
    store.delete("k")


@pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
def test_wrong_credentials(seaweed: SeaweedServer, wrong: str) -> None:
    store = open_store(seaweed.url("denied"), **{wrong: "wrong"})
    for request in requests_of(store):
        with pytest.raises(AccessDenied, match="refused the credentials"):
            request()


def test_a_server_that_does_not_listen() -> None:
    url = f"s3://bucket?endpoint=http://127.0.0.1:{free_ports(1)[0]}"
    store = open_store(url, **KEYS, retries=2, backoff=0.001)
    began = time.monotonic()
    for request in requests_of(store):
        with pytest.raises(StoreUnavailable):
            request()
    assert time.monotonic() - began < 10


def test_a_server_that_does_not_answer() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"s3://bucket?endpoint=http://127.0.0.1:{listening.getsockname()[1]}"
        store = open_store(url, **KEYS, retries=1, timeout=0.2, backoff=0.001, prove=False)
        began = time.monotonic()
        for request in (lambda: store.get("k"), lambda: store.create("k", b"")):
            with pytest.raises(StoreUnavailable):
                request()
        assert time.monotonic() - began < 10

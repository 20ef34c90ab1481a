"""Listing folders takes a bounded number of requests, however many there are."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from reef.store import Store, open_store

PAGE = 1000


class ListingServer(ThreadingHTTPServer):
    """Lists made-up folders with one object each, as S3 does, or in the order of folders."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folders: list[str] = []
        self.empty: set[str] = set()
        self.tree_order = False
        self.requests = 0

    def open(self) -> Store:
        url = f"s3://bucket?endpoint=http://127.0.0.1:{self.server_address[1]}"
        return open_store(url, access_key_id="id", secret_access_key="secret", region="x")

    @cached_property
    def prefixes(self) -> list[str]:
        return self._ordered([f"ns/{name}/" for name in self.folders])

    @cached_property
    def keys(self) -> list[str]:
        return self._ordered([f"ns/{name}/1" for name in self.folders if name not in self.empty])

    def _ordered(self, keys: list[str]) -> list[str]:
        return sorted(keys, key=self.place)

    def place(self, key: str) -> str:
        return key.replace("/", "\1") if self.tree_order else key


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ListingServer

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        server = self.server
        server.requests += 1
        folders = "delimiter" in query
        found = server.prefixes if folders else server.keys
        after = query.get("continuation-token") or query.get("start-after") or ""
        first = bisect_right(found, server.place(after), key=server.place)
        page = found[first : first + PAGE]
        more = first + PAGE < len(found)
        body = "<ListBucketResult>"
        for each in page:
            body += (
                f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>"
                if folders
                else f"<Contents><Key>{each}</Key><Size>1</Size><ETag>x</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        body += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            body += f"<NextContinuationToken>{page[-1]}</NextContinuationToken>"
        data = f"{body}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ListingServer]:
    with ListingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("tree_order", [False, True], ids=["code point order", "folder order"])
@pytest.mark.parametrize(("count", "requests"), [(0, 1), (3, 2), (1000, 2), (20_000, 21)])
def test_many_folders(server: ListingServer, tree_order: bool, count: int, requests: int) -> None:
    server.tree_order = tree_order
    # Names that sort differently by folder and by code point.
    server.folders = [f"t{number // 3:05}{('', '-b', '0')[number % 3]}" for number in range(count)]
    assert server.open().list_folders("ns/") == sorted(server.folders)
    assert server.requests == requests


@pytest.mark.parametrize("tree_order", [False, True], ids=["code point order", "folder order"])
def test_empty_folders_are_left_out_as_far_as_a_page_tells(
    server: ListingServer, tree_order: bool
) -> None:
    server.tree_order = tree_order
    server.folders = [f"t{number:05}" for number in range(3000)]
    server.empty = {"t00001", "t00500", "t02999"}
    found = server.open().list_folders("ns/")
    assert set(server.folders) - set(found) == {"t00001", "t00500"}
    server.folders = server.folders[:900]
    server.__dict__.pop("prefixes")
    server.__dict__.pop("keys")
    server.empty = {"t00001", "t00899"}
    found = server.open().list_folders("ns/")
    assert set(server.folders) - set(found) == server.empty

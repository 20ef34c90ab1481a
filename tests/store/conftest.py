"""The stores of `tests/conftest.py`, and more S3 servers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from reef.store import Store, open_store
from support.moto_servers import MotoServers

_prefixes = count()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServers]:
    """The servers of all kinds, for the session (for each worker of it)."""
    with MotoServers(tmp_path_factory.mktemp("moto")) as servers:
        yield servers


@pytest.fixture
def moto_store(moto: MotoServers) -> Iterator[Store]:
    """An empty prefix of moto's server."""
    store = open_store(moto.url("whole", f"test-{next(_prefixes)}"), **moto.credentials)
    yield store
    store.close()


@pytest.fixture(params=["memory", "folder", "s3-seaweed", "s3-moto"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of store in turn, and each S3 server."""
    name = {"s3-seaweed": "s3_store", "s3-moto": "moto_store"}
    found: Store = request.getfixturevalue(name.get(request.param, f"{request.param}_store"))
    return found

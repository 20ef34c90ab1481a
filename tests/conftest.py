"""The stores that tests run on: memory, a folder, and a prefix of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import hypothesis
import pytest

from reef.store import FolderStore, MemoryStore, Store, open_store
from support.seaweed import SeaweedServer

_prefixes = count()

# How fast the machine is must not decide whether a test passes.
hypothesis.settings.register_profile(
    "reef", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("reef")


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One S3 server for the session (for each worker of it), its credentials in the environment."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    with pytest.MonkeyPatch.context() as patch, server:
        for name, value in server.credentials.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def s3_url(seaweed: SeaweedServer) -> str:
    """The address of an empty prefix of the S3 server."""
    return seaweed.url(f"test-{next(_prefixes)}")


@pytest.fixture
def s3_store(s3_url: str) -> Iterator[Store]:
    """An empty prefix of the S3 server."""
    store = open_store(s3_url)
    yield store
    store.close()


@pytest.fixture
def memory_store() -> MemoryStore:
    """An empty store in memory."""
    return MemoryStore()


@pytest.fixture
def folder_store(tmp_path: Path) -> Iterator[FolderStore]:
    """An empty store in a folder."""
    store = FolderStore(tmp_path / "bucket")
    yield store
    store.close()


@pytest.fixture(params=["memory", "folder", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of store in turn."""
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found

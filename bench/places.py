"""Where the benchmarks run: a folder, and a real S3 server."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path

from tests.support.seaweed import ACCESS_KEY, SECRET_KEY, SeaweedServer


class Place(ABC):
    """A kind of store, and fresh spots in it for Reef and its peers."""

    name: str

    def __init__(self) -> None:
        self._numbers = count()
        self._root = Path(tempfile.mkdtemp(prefix="reef-bench-"))

    def fresh(self) -> str:
        """A prefix that nothing was written under."""
        return f"spot{next(self._numbers)}"

    @abstractmethod
    def reef(self, spot: str) -> str:
        """What `reef.connect` takes."""

    @abstractmethod
    def slate(self) -> dict[str, str]:
        """What SlateDB's object store builder takes; "local_path" means a folder."""

    @abstractmethod
    def lance(self, spot: str) -> tuple[str, dict[str, str] | None]:
        """What `lancedb.connect` takes: an address and storage options."""

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


class Folder(Place):
    """A folder on the local disk."""

    name = "folder"

    def reef(self, spot: str) -> str:
        return str(self._root / "reef" / spot)

    def slate(self) -> dict[str, str]:
        folder = self._root / "slate"
        folder.mkdir(exist_ok=True)
        return {"local_path": str(folder)}

    def lance(self, spot: str) -> tuple[str, dict[str, str] | None]:
        return str(self._root / "tables" / spot), None


class Server(Place):
    """SeaweedFS on this machine, through its S3 interface."""

    name = "s3"

    def __init__(self) -> None:
        super().__init__()
        self._server = SeaweedServer(self._root / "server")
        os.environ.update(self._server.credentials)

    def __enter__(self) -> Place:
        self._server.start()
        return self

    def reef(self, spot: str) -> str:
        return self._server.url(f"reef/{spot}")

    def slate(self) -> dict[str, str]:
        return {
            "endpoint": self._server.endpoint,
            "bucket": self._server.bucket,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
            "allow_http": "true",
        }

    def lance(self, spot: str) -> tuple[str, dict[str, str] | None]:
        return f"s3://{self._server.bucket}/tables/{spot}", {
            "aws_endpoint": self._server.endpoint,
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET_KEY,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def __exit__(self, *arguments: object) -> None:
        self._server.kill()
        super().__exit__(*arguments)


PLACES: dict[str, type[Place]] = {"folder": Folder, "s3": Server}

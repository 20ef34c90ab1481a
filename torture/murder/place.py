"""Where murders happen: a folder, and a real S3 server that can be killed as well."""

from __future__ import annotations

import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from itertools import count
from pathlib import Path

from tests.support.seaweed import ACCESS_KEY, SECRET_KEY, SeaweedServer


class Place(ABC):
    """A kind of store, and empty buckets in it. `patience` is for how many seconds a victim may
    take to come to its crash point."""

    name: str
    patience: float

    def __init__(self, root: Path | None = None) -> None:
        self.keep = root is not None
        self.root = root or Path(tempfile.mkdtemp(prefix="reef-murder-"))
        self._numbers = count(1)

    @abstractmethod
    def bucket(self) -> str:
        """The address of an empty bucket."""

    @property
    def secrets(self) -> dict[str, str]:
        """What has to be known to open it."""
        return {}

    def kill_server(self, pause: float) -> bool:
        """Kill the server and, after a pause, start it again. False if there is none."""
        return False

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            shutil.rmtree(self.root, ignore_errors=True)


class Folder(Place):
    """A folder of the local disk."""

    name = "folder"
    patience = 6.0

    def bucket(self) -> str:
        return str(self.root / f"bucket-{next(self._numbers)}")


class Server(Place):
    """SeaweedFS on this machine, through its S3 interface."""

    name = "s3"
    patience = 15.0

    def __init__(self, root: Path | None = None, server: SeaweedServer | None = None) -> None:
        super().__init__(root)
        self._started = server is None
        self._server = server or SeaweedServer(self.root / "server")

    def bucket(self) -> str:
        # A few retries are the client's; then the victim hears of it, and goes on.
        url = self._server.url(f"murder-{self.root.name}-{next(self._numbers)}")
        return f"{url}&retries=3&timeout=10"

    @property
    def secrets(self) -> dict[str, str]:
        return {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}

    def kill_server(self, pause: float) -> bool:
        self._server.kill()
        time.sleep(pause)
        self._server.start()
        return True

    def __enter__(self) -> Place:
        if self._started:
            self._server.start()
        return self

    def __exit__(self, *arguments: object) -> None:
        if self._started:
            self._server.kill()
        super().__exit__(*arguments)


PLACES: dict[str, type[Place]] = {"folder": Folder, "s3": Server}

"""The probe: plain objects put beside Reef, so that what the server itself loses is told apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from torture.murder.life import Life

Tell = Callable[..., None]


def _store(life: Life) -> Any:
    address = urlsplit(life.url)
    if not address.scheme:
        return LocalStore(f"{life.url}-probe", mkdir=True)
    return S3Store(
        address.netloc,
        prefix=f"{address.path.strip('/')}-probe",
        endpoint=parse_qs(address.query)["endpoint"][0],
        region="us-east-1",
        client_options={"allow_http": True, "timeout": "5s"},
        retry_config={"max_retries": 0},
        access_key_id=life.secrets["access_key_id"],
        secret_access_key=life.secrets["secret_access_key"],
    )


def probe(life: Life, tell: Tell) -> None:
    """Put one small object after the other, and tell which were acknowledged."""
    store = _store(life)
    number = 0
    while True:
        number += 1
        name = f"{life.seed}-{number}"
        try:
            obstore.put(store, name, f"probe {name}".encode())
        except (BaseError, OSError):
            time.sleep(0.05)
            continue
        tell("probed", name=name)
        time.sleep(0.02)


def count_probes(life: Life, tell: Tell) -> None:
    """Tell which objects are there, whole."""
    store = _store(life)
    found = []
    for page in obstore.list(store):
        for entry in page:
            name = entry["path"]
            if bytes(obstore.get(store, name).bytes()) == f"probe {name}".encode():
                found.append(name)
    tell("probes", names=found)

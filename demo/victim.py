"""The processes that the tour kills: `python -m demo.victim`, told what to do by a line of JSON.

["write", url, first batch]                    reviews, batch after batch, until killed
["compact", url, namespace, segment bytes]     dies between upload and publication
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys

import pyarrow as pa

import reef
from reef.store import CountingStore, open_store
from reef.store.contract import Data

REVIEWS = "reviews"
BATCH_ROWS = 200
_FOLD_OBJECTS = 20
_UPLOADS = 2


def write(url: str, first: int) -> None:
    """Write batches for ever, and print a line for each only after its receipt is there."""
    options = reef.Options(fold_objects=_FOLD_OBJECTS)
    namespace = reef.connect(url, options=options).namespace(REVIEWS)
    for batch in itertools.count(first):
        receipt = namespace.write(upserts=reviews(batch))
        sys.stdout.write(f"{batch} {receipt.lsn}\n")
        sys.stdout.flush()


def reviews(batch: int) -> list[dict[str, object]]:
    """The documents of a batch: what they should be can be told from its number."""
    return [
        {
            "id": f"review-{batch:06d}-{row:03d}",
            "batch": batch,
            "film": f"film-{(batch * 7919 + row) % 100_000:06d}",
            "stars": 1 + (batch + row) % 5,
        }
        for row in range(BATCH_ROWS)
    ]


class DeadlyStore(CountingStore):
    """A store that does not survive its second segment."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url))
        self._uploads = 0

    def put(self, key: str, data: Data) -> str:
        """Pass it on; after the last segment that may be, die as a power cut would have it."""
        version = super().put(key, data)
        self._uploads += key.endswith(".seg")
        if self._uploads == _UPLOADS:
            os.kill(os.getpid(), signal.SIGKILL)
        return version


def compact(url: str, namespace: str, segment_bytes: int) -> None:
    """Begin a compaction that will never be published."""
    options = reef.Options(segment_bytes=segment_bytes)
    reef.connect(DeadlyStore(url), options=options).namespace(namespace, "r").compact(full=True)


def main() -> None:
    """Get ready, wait for the line, do it. If the tour is gone, there is nothing to do."""
    # The first array makes Arrow look for other libraries, which takes a while.
    pa.array([0])
    line = sys.stdin.readline()
    if line:
        what, *arguments = json.loads(line)
        if what == "write":
            write(*arguments)
        else:
            compact(*arguments)


if __name__ == "__main__":
    main()

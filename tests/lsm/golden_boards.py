"""Pin boards as values; `golden_pins/` holds them as version 1 wrote them.

`python -m lsm.golden_boards` (from `tests`) writes the files that are not there yet, and never one
that is: what was stored must keep its meaning.
"""

from __future__ import annotations

from pathlib import Path

from reef.lsm.retention.pinboard import PINS, PinnedState, Pins

GOLDEN = Path(__file__).parent / "golden_pins"

BOARDS: dict[str, Pins] = {
    "smallest": Pins(1, "movies", 1_700_000_000.25, "p", "0123456789abcdef"),
    "whole": Pins(
        generation=7,
        namespace="movies",
        created_at=1_700_000_001.5,
        publisher="01hzyx0000000000000000000a",
        nonce="0123456789abcdef",
        previous="fedcba9876543210",
        floor=5,
        pins={
            "01hzyx0000000000000000000b": PinnedState(5, 92, "00112233aabbccdd", True, 600.0, 6),
            "mærke": PinnedState(3, 17, "8899aabb00112233", False, None, 2),
        },
    ),
}


def make() -> None:
    """Write what is not there yet."""
    for name, board in BOARDS.items():
        path = GOLDEN / f"version-1-{name}.json"
        if not path.exists():
            path.write_bytes(PINS.codec.encode(board))


if __name__ == "__main__":
    make()

"""Chapter five: a mistake, and the way back."""

from __future__ import annotations

import time
from collections import Counter

from demo.drawing import duration
from demo.tour import Tour

_FILTER = "category = 'western'"


def regret(tour: Tour) -> None:
    """Delete a category by mistake, read the past, write it back."""
    stage, namespace = tour.stage, tour.ns
    stage.chapter(
        "A mistake, and the way back",
        "Objects are never changed in place, so the past stays readable for the retention (an hour"
        " here), even after it was folded and merged away.",
    )
    before = namespace.lsn
    lost = list(namespace.scan(filter=_FILTER).documents())
    total = namespace.count()
    stage.code(f'films.write(delete_where="{_FILTER}")      # oh no')
    receipt = namespace.write(delete_where=_FILTER)
    tour.facts["deleted"] = receipt.deleted
    while namespace.index() is not None:
        pass
    left = namespace.count(_FILTER)
    stage.claim(
        receipt.deleted == len(lost) > 0 and left == 0 and namespace.count() == total - len(lost),
        f"{receipt.deleted:,} westerns are gone, and the loss is folded into the tree",
    )
    stage.code(
        f"past = films.at(lsn={before})",
        f'westerns = past.scan(filter="{_FILTER}").documents()',
        "films.write(upserts=list(westerns))",
    )
    began = time.perf_counter()
    past = namespace.at(lsn=before)
    remembered = list(past.scan(filter=_FILTER).documents())
    seconds = time.perf_counter() - began
    stage.claim(
        remembered == lost,
        f"the state after log slot {before} still has all {len(remembered):,} of them"
        f" ({duration(seconds)})",
    )
    namespace.write(upserts=remembered)
    while namespace.index() is not None:
        pass
    back = list(namespace.scan(filter=_FILTER).documents())
    tour.facts["restored"] = len(back)
    stage.claim(
        back == lost and namespace.count() == total,
        f"and they are back, equal in every attribute: {namespace.count():,} films",
    )
    kinds = Counter(change.kind for change in namespace.changes(after=before))
    told = ", ".join(f"{count:,} {kind}s" for kind, count in kinds.items())
    tour.facts["changes"] = dict(kinds)
    stage.claim(
        kinds == {"delete": len(lost), "upsert": len(lost)},
        f"films.changes(after={before}) tells the whole story to whoever follows it: {told}",
    )

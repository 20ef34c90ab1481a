"""A namespace driven at random against a dictionary.

`REEF_EXAMPLES` in the environment asks for more examples than a run of all tests has time for.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import reef
from reef import Options, Settings
from reef.documents import Database, Namespace
from reef.store import MemoryStore
from support.faults import Clock

State = dict[str, dict[str, Any]]

ids = st.sampled_from(["a", "b", "ba", "bb", "c", "é", "z", "z" * 40])
bounds = st.none() | st.sampled_from(["", "a", "b", "bZ", "c", "zz", "\U0001f600"]).filter(bool)
values = {
    "n": st.none() | st.integers(-3, 3),
    "s": st.none() | st.sampled_from(["", "x", "yy"]),
    "f": st.none() | st.sampled_from([0.5, -1.0]),
    "b": st.none() | st.booleans(),
}
attributes = st.fixed_dictionaries({}, optional=values)
rows = st.lists(st.builds(lambda id, row: {"id": id, **row}, ids, attributes), max_size=5)
SCHEMA = {"id": "string", "n": "int64", "s": "string", "f": "float64", "b": "bool"}
FILTERS: dict[str, Any] = {
    "n >= 1": lambda row: row.get("n") is not None and row["n"] >= 1,
    "n = 0 or s = 'x'": lambda row: row.get("n") == 0 or row.get("s") == "x",
    "s is null": lambda row: row.get("s") is None,
    "n is not null and b = true": lambda row: row.get("n") is not None and row.get("b") is True,
    "n < 0": lambda row: row.get("n") is not None and row["n"] < 0,
    "id >= 'b' and n >= -1": lambda row: (
        row["id"] >= "b" and row.get("n") is not None and row["n"] >= -1
    ),
}
filters = st.none() | st.sampled_from(sorted(FILTERS))
projections = st.none() | st.lists(st.sampled_from(["id", "n", "s", "f", "b"]), unique=True)


class Machine(RuleBasedStateMachine):
    """Every rule does the same to both; the invariant compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.store = MemoryStore(self.clock.environment())
        options = Options(fan_in=2, most_inputs=3, segment_bytes=2_000, fold_bytes=4_000)
        self.database = Database(self.store, options, self.clock.environment())
        self.database.create("n", schema=SCHEMA, settings=Settings(retention=1_000, grace=100))
        self.writer = self.database.namespace("n", maintain=False)
        self.reader = self.database.namespace("n", "r")
        self.model: State = {}
        # What was readable after a slot, and what a generation's segments hold.
        self.after: dict[int, State] = {0: {}, self.writer.lsn: {}}
        self.moments: list[tuple[float, int, State]] = []
        self.keys: dict[str, reef.Receipt] = {}

    def committed(self, receipt: reef.Receipt, model: State) -> None:
        self.model = model
        self.after[self.writer.lsn] = model
        assert receipt.lsn <= self.writer.lsn

    @staticmethod
    def upserted(model: State, batch: list[dict[str, Any]]) -> State:
        return {**model, **{row["id"]: row for row in batch}}

    @staticmethod
    def patched(model: State, batch: list[dict[str, Any]]) -> State:
        newest = {row["id"]: row for row in batch}
        return {id: {**row, **newest.get(id, {})} for id, row in model.items()}

    @staticmethod
    def without(model: State, doomed: list[str]) -> State:
        return {id: row for id, row in model.items() if id not in doomed}

    @rule(upserts=rows, patches=rows, deletes=st.lists(ids, max_size=2))
    def write(
        self, upserts: list[dict[str, Any]], patches: list[dict[str, Any]], deletes: list[str]
    ) -> None:
        if not upserts and not patches and not deletes:
            with pytest.raises(reef.InvalidInput):
                self.writer.write(upserts, patches, deletes)
            return
        receipt = self.writer.write(upserts, patches, deletes)
        full = self.upserted(self.model, upserts)
        assert receipt.upserted == len({row["id"] for row in upserts})
        assert receipt.patched == len({row["id"] for row in patches} & set(full))
        assert receipt.missing == len({row["id"] for row in patches} - set(full))
        assert receipt.deleted == len(set(deletes))
        self.committed(receipt, self.without(self.patched(full, patches), deletes))

    @rule(upserts=rows.filter(bool), kind=st.sampled_from(["absent", "exists", "equal"]))
    def write_if(self, upserts: list[dict[str, Any]], kind: str) -> None:
        condition, holds = {
            "absent": (reef.if_absent(), lambda row: row is None),
            "exists": (reef.if_exists(), lambda row: row is not None),
            "equal": (reef.if_equal(n=1), lambda row: row is not None and row.get("n") == 1),
        }[kind]
        refused = {row["id"] for row in upserts if not holds(self.model.get(row["id"]))}
        if refused:
            with pytest.raises(reef.ConditionFailed) as caught:
                self.writer.write(upserts, condition=condition)
            assert set(caught.value.ids) == refused
        receipt = self.writer.write(upserts, condition=condition, on_conflict="skip")
        assert set(receipt.rejected) == refused
        kept = [row for row in upserts if row["id"] not in refused]
        self.committed(receipt, self.upserted(self.model, kept))

    @rule(filter=st.sampled_from(sorted(FILTERS)))
    def delete_where(self, filter: str) -> None:
        doomed = [id for id, row in self.model.items() if FILTERS[filter](row)]
        receipt = self.writer.write(delete_where=filter)
        assert receipt.deleted == len(doomed)
        self.committed(receipt, self.without(self.model, doomed))

    @rule(key=st.sampled_from(["k1", "k2", "k3"]), id=ids, n=st.integers(0, 3))
    def write_once(self, key: str, id: str, n: int) -> None:
        receipt = self.writer.write([{"id": id, "n": n}], idempotency_key=key)
        if key in self.keys:
            assert receipt == self.keys[key]
            return
        self.keys[key] = receipt
        self.committed(receipt, self.upserted(self.model, [{"id": id, "n": n}]))

    @rule(batch=rows.filter(bool), truncate=st.booleans(), by_reader=st.booleans())
    def load(self, batch: list[dict[str, Any]], truncate: bool, by_reader: bool) -> None:
        handle = self.reader if by_reader else self.writer
        receipt = handle.load(batch, truncate=truncate)
        assert receipt.upserted == len({row["id"] for row in batch})
        self.model = self.upserted({} if truncate else self.model, batch)
        self.after[receipt.lsn] = self.model
        if by_reader:
            # The writer meets it with its next commit; that is when it sees it.
            self.writer.write(deletes=["nobody"])
            self.after[self.writer.lsn] = self.model

    @rule()
    def fold(self) -> None:
        self.writer.index()

    @rule()
    def fold_everything(self) -> None:
        while self.writer.index() is not None:
            pass

    @rule()
    def fold_elsewhere(self) -> None:
        self.reader.index()

    @rule(full=st.booleans(), by_reader=st.booleans())
    def compact(self, full: bool, by_reader: bool) -> None:
        (self.reader if by_reader else self.writer).compact(full=full)

    @rule(by_reader=st.booleans(), seconds=st.sampled_from([0, 60, 600, 5_000]))
    def collect(self, by_reader: bool, seconds: int) -> None:
        self.clock.advance(seconds)
        (self.reader if by_reader else self.writer).gc(apply=True)

    @rule()
    def reopen(self) -> None:
        old = self.writer
        self.writer = self.database.namespace("n", maintain=False)
        with pytest.raises(reef.Fenced):
            old.write(deletes=["a"])
        self.after[self.writer.lsn] = self.model

    @rule()
    def open_another_reader(self) -> None:
        self.reader = self.database.namespace("n", "r")

    @rule(
        start=bounds,
        stop=bounds,
        filter=filters,
        columns=projections,
        reverse=st.booleans(),
        limit=st.none() | st.integers(0, 5),
        by_reader=st.booleans(),
    )
    def scan(
        self,
        start: str | None,
        stop: str | None,
        filter: str | None,
        columns: list[str] | None,
        reverse: bool,
        limit: int | None,
        by_reader: bool,
    ) -> None:
        handle = self.writer
        if by_reader:
            self.reader.refresh()
            handle = self.reader
        scan = handle.scan(
            start=start, stop=stop, filter=filter, columns=columns, reverse=reverse, limit=limit
        )
        expected = [
            row
            for id, row in sorted(self.model.items(), reverse=reverse)
            if (start is None or id >= start)
            and (stop is None or id < stop)
            and (filter is None or FILTERS[filter](row))
        ][:limit]
        wanted = ["id", "n", "s", "f", "b"] if columns is None else columns
        found = list(scan.documents())
        assert found == [{k: row[k] for k in row if k in wanted or k == "id"} for row in expected]
        table = scan.to_table()
        assert table.num_rows == len(expected)
        assert set(table.column_names) == set(wanted)
        for name in wanted:
            assert table[name].to_pylist() == [row.get(name) for row in expected]

    @precondition(lambda self: len(self.after) > 1)
    @rule(data=st.data())
    def travel_to_a_slot(self, data: st.DataObject) -> None:
        lsn = data.draw(st.sampled_from(sorted(self.after)))
        try:
            then = self.writer.at(lsn=lsn)
        except reef.PastRetention:
            assert self.clock.now() - 1_700_000_000 >= 1_000
            return
        self.same(then, self.after[lsn])
        assert then.lsn == lsn

    @rule(data=st.data())
    def travel_to_a_generation(self, data: st.DataObject) -> None:
        generation = data.draw(st.integers(1, self.writer.generation))
        try:
            then = self.reader.at(generation=generation)
        except reef.PastRetention:
            assert self.clock.now() - 1_700_000_000 >= 1_000
            return
        known = max((lsn for lsn in self.after if lsn <= then.lsn), default=0)
        try:
            self.same(then, self.after[known])
        except reef.PastRetention:
            assert self.clock.now() - 1_700_000_000 >= 1_000

    @rule()
    def note_the_time(self) -> None:
        self.clock.advance(1)
        self.moments.append((self.clock.now(), self.writer.lsn, self.model))
        self.clock.advance(1)

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def travel_to_a_moment(self, data: st.DataObject) -> None:
        from datetime import UTC, datetime

        moment, _, model = data.draw(st.sampled_from(self.moments))
        try:
            then = self.reader.at(time=datetime.fromtimestamp(moment, UTC))
            self.same(then, model)
        except reef.PastRetention:
            assert self.clock.now() - moment >= 998

    @rule()
    def follow_the_changes(self) -> None:
        """The feed applied to nothing gives what there is."""
        try:
            feed = list(self.reader.changes())
        except reef.PastRetention:
            assert self.clock.now() - 1_700_000_000 >= 1_000
            return
        state: State = {}
        for change in feed:
            if change.kind == "truncate":
                state = {}
            elif change.kind == "delete":
                state = self.without(state, [str(change.id)])
            else:
                assert change.document is not None
                merge = self.upserted if change.kind == "upsert" else self.patched
                state = merge(state, [change.document])
        assert state == self.model

    @rule()
    def verify(self) -> None:
        report = self.writer.verify(deep=True)
        assert report.sound, report.problems

    def same(self, handle: Any, model: State) -> None:
        assert {row["id"]: row for row in handle.scan().documents()} == model
        names = ["a", "b", "ba", "bb", "c", "é", "z", "z" * 40, "nobody"]
        assert handle.get_many(names) == [model.get(id) for id in names]
        assert handle.count() == len(model)

    @invariant()
    def the_writer_agrees(self) -> None:
        self.same(self.writer, self.model)

    @rule()
    def the_reader_agrees(self) -> None:
        self.reader.refresh()
        self.same(self.reader, self.model)

    def teardown(self) -> None:
        fresh: Namespace = self.database.namespace("n", "r")
        self.same(fresh, self.model)
        assert fresh.verify(deep=True).sound
        self.store.close()


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=int(os.environ.get("REEF_EXAMPLES", "60")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

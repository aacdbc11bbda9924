"""The view `jobs`: its rows are the fold of their streams, wherever batches are cut; what is asked of it."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.jobs import Batch, Job, OpenBatch, OpenJob
from projections import Projector, rebuild, roll_back, views_named
from projections.engine.check import ViewCheck
from projections.engine.copies import Copies, projecting
from projections.engine.refold import refold
from projections.jobs.job_list import JobList
from projections.time_travel import as_of
from projections.verify import verify
from projections.verify.difference import Difference
from tests.jobs.history import history, record
from tests.views.histories import START, Feeding, Row, cuttings

JOBS = KNOWN.views[JobList.name]
FOLLOWED = views_named(["jobs", "work", "progress", "in_state"])
TABLES = [table for view in FOLLOWED for table in view.table_names]
Connection = psycopg.Connection[Any]
Tables = dict[str, list[dict[str, Any]]]


# The law: a row is the fold of its stream.


class FeedingAll(Feeding):
    """The same of a view of several tables."""

    def fill_all(self, cuts: list[int]) -> Tables:
        """The rows of all tables, filled in batches which end at these positions."""
        for table in self.tables:
            self.connection.execute(sql.SQL("DELETE FROM {}").format(table))
        for after, upto in itertools.pairwise([0, *cuts]):
            with self.connection.transaction():
                self.applier.fill(after, upto)
        assert self.applier.parked == 0
        text = "SELECT to_jsonb(t) - 'copy' FROM {} t ORDER BY 1"
        found = [self.connection.execute(sql.SQL(text).format(table)).fetchall() for table in self.tables]
        return {name: [row for (row,) in rows] for name, rows in zip(JOBS.table_names, found, strict=True)}


def lived(seed: int, jobs: int) -> tuple[list[Row], dict[str, Job | Batch]]:
    """A history as rows of a log that was never recorded, and what its streams are in the end."""
    rows, states, at = list[Row](), dict[str, Job | Batch](), START
    first: dict[str, Any] = {}
    for work in history(Random(seed), jobs):
        if first.setdefault(work.name, work) is not work:
            continue
        at += timedelta(milliseconds=1500)
        for nth, event in enumerate(work.news, work.version + 1):
            body = json.loads(event.body())
            rows.append(Row(len(rows) + 1, at, nth, work.name, event.topic, body, {"actor": "mina"}))
        begins = {event.topic for event in work.news} & {"job.dispatching", "job.redriven", "job.reopened"}
        work.settle(at)
        states[work.name] = work.state
        if begins:  # its batches that failed before are of a set that is over: no dead letters
            for name in [name for name in states if name.startswith(f"batch/{work.key[0]}/")]:
                states[name] = replace(states[name], discarded=True)
    return rows, states


SAME = (
    "created_at", "due_at", "started_at", "finished_at", "priority", "attempt", "dispatched", "discarded",
    "status", "id", "queue", "operation", "parent", "worker", "dedup_key", "error_code", "error_message",
    "description", "findings", "tags", "progress_current", "progress_total",
)  # fmt: skip
TIMES = ("created_at", "due_at", "started_at", "finished_at")


def shown(job: Job) -> dict[str, Any]:
    """The row of a job, by `evolve` of the domain."""
    return {name: getattr(job, name) for name in SAME} | {"tags": list(job.tags)}


def read_back(row: dict[str, Any]) -> dict[str, Any]:
    """The same of a row as JSON has it."""
    times = {name: row[name] and datetime.fromisoformat(row[name]) for name in TIMES}
    return {name: row[name] for name in SAME} | times


def dead(states: dict[str, Job | Batch]) -> dict[str, tuple[Any, ...]]:
    """Dead letters by `evolve`."""
    return {
        name: (state.operation, state.queue, state.error_code, state.error_message)
        for name, state in states.items()
        if state.status == "failed" and not state.discarded and not superseded(state, states)
    }


def superseded(state: Job | Batch, states: dict[str, Job | Batch]) -> bool:
    """Whether it is a batch of a round before the present one of its job."""
    job = states.get(f"job/{state.job}") if isinstance(state, Batch) else None
    return isinstance(job, Job) and isinstance(state, Batch) and state.under < job.rounds


def check_rows(tables: Tables, states: dict[str, Job | Batch]) -> None:
    """That tables are what the states of their streams say."""
    jobs = {name: shown(state) for name, state in states.items() if isinstance(state, Job)}
    assert {row["stream"]: read_back(row) for row in tables["jobs"]} == jobs
    kept = {name: list(state.children) for name, state in states.items() if isinstance(state, Job)}
    assert {row["stream"]: row["state"]["children"] for row in tables["jobs"]} == kept
    found = {
        row["stream"]: (row["operation"], row["queue"], row["error_code"], row["message"])
        for row in tables["dead_letters"]
    }
    assert found == dead(states)


@pytest.fixture
def copies(log: Ledger) -> Iterator[Copies]:
    with projecting(log) as connection:
        yield Copies(connection, log.schema)


def law(copies: Copies, examples: int) -> Callable[[], None]:
    """A property to be checked: however a history is cut, the rows are the fold of its streams."""
    feeding = FeedingAll(copies, JOBS)

    @settings(max_examples=examples, deadline=None, database=None)
    @given(seed=st.integers(0, 2**32), data=st.data())
    def property_(seed: int, data: st.DataObject) -> None:
        rows, states = lived(seed, jobs=6)
        feeding.rows(rows)
        at_once = feeding.fill_all([len(rows)])
        assert feeding.fill_all(data.draw(cuttings(len(rows)))) == at_once
        check_rows(at_once, states)

    return property_


def test_rows_are_the_fold_of_their_streams_wherever_batches_are_cut(copies: Copies) -> None:
    law(copies, 8)()


@pytest.mark.slow
def test_rows_are_the_fold_of_their_streams_for_long(copies: Copies, minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    check = law(copies, 200)
    while time.monotonic() < until:
        check()


# The same in a ledger: however the views came to where they are.


def rows_of(connection: Connection, schema: str = "ledger_views") -> dict[str, list[str]]:
    """All rows of the views about jobs, each as text, sorted."""
    text = "SELECT (to_jsonb(t) - 'copy')::text FROM {} t"
    found = {
        name: connection.execute(sql.SQL(text).format(sql.Identifier(schema, name))).fetchall()
        for name in TABLES
    }
    return {name: sorted(row for (row,) in rows) for name, rows in found.items()}


def states_of(log: Ledger) -> dict[str, Job | Batch]:
    """All jobs and batches, folded from their first facts by `evolve`."""
    found: dict[str, Any] = {}
    for event in log.log(0, log.bound(), 10**6):
        category, *key = event.stream.split("/")
        kind: Any = OpenJob if category == "job" else OpenBatch
        found.setdefault(event.stream, kind(*key)).replay(event.event, event.recorded_at)
    return {name: work.state for name, work in found.items()}


def differences(log: Ledger) -> list[Difference]:
    """What a check of heads and of the views finds."""
    found: list[Difference] = []
    verify(log, processes=1, checks=[ViewCheck(view) for view in FOLLOWED], found=found.append)
    return found


def test_views_of_jobs_come_to_the_same_rows_on_every_way(log: Ledger, connection: Connection) -> None:
    chance = Random(22)
    record(log, history(chance, jobs=4), chance)
    middle = log.bound()
    Projector(log, FOLLOWED, batch=7).catch_up()
    then = rows_of(connection)
    record(log, history(chance, jobs=4), chance)
    Projector(log, FOLLOWED, batch=3).catch_up()
    now = rows_of(connection)
    states = states_of(log)
    check_rows({name: [json.loads(row) for row in rows] for name, rows in now.items()}, states)

    past = as_of(log, position=middle, views=FOLLOWED, batch=11)
    assert rows_of(connection, past.schema) == then
    assert not differences(log)
    with projecting(log) as own:
        copies = Copies(own, log.schema)
        for view in FOLLOWED:
            if view.forget:
                assert refold(copies, view, 1, category="job") > 0
                assert refold(copies, view, 1, prefix="batch/") > 0
    assert rows_of(connection) == now
    for view in FOLLOWED[:1]:
        assert rebuild(log, view, batch=53).differences == ()
    assert rows_of(connection) == now
    for view in FOLLOWED[:1]:
        assert roll_back(log, view).copy == 1
    assert rows_of(connection) == now

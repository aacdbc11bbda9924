"""The whole ledger as of a position: equal to a plain fold of the log, whatever happens meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from ledger import BadInput, Body, Ledger
from ledger.domain.known import KNOWN
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from projections.engine.projector import Projector
from projections.engine.view import View
from projections.time_travel import as_of
from projections.time_travel.make import Making
from tests.time_travel.oracle import IN_STATE, SHIPPED, by_hand, check, history, rows
from tests.views.lamps import lamps

Connection = psycopg.Connection[Any]


def test_at_any_position_it_is_what_a_plain_fold_says(log: Ledger, connection: Connection) -> None:
    history(log, 12)
    announce_statuses(log, {"torch.lit": TopicStatus("lit")})
    end = log.bound()
    for position in (0, 1, *sorted(random.Random(3).sample(range(2, end), 3)), end):
        steps: list[Making] = []
        past = as_of(log, position=position, batch=17, progress=steps.append)
        assert (past.schema, past.whole, past.new) == (f"ledger_as_of_{position}", True, True)
        known, declared = by_hand(log, position), rows(connection, past.schema, "in_state")
        torches = [row for row in declared if row[-1] == "torch/a"]
        connection.execute("SET ROLE ledger_projector")
        connection.execute(
            f"DELETE FROM {past.schema}.in_state WHERE stream = 'torch/a'"
        )  # unknown to our oracle
        connection.execute(f"UPDATE {past.schema}.heads SET status = NULL WHERE stream = 'torch/a'")
        connection.execute("RESET ROLE")
        assert bool(torches) == ("torch/a" in known[1])
        check(log, connection, past)
        done = [step.done for step in steps if step.what == "events"]
        assert done == sorted(done)
        assert not done or done[-1] <= position


def test_all_shipped_views_are_what_a_follower_showed_at_the_position(
    log: Ledger, connection: Connection
) -> None:
    history(log, 8)
    position = log.bound() * 2 // 3
    Projector(log, SHIPPED).catch_up(position)
    tables = [table for view in SHIPPED for table in view.table_names]
    shown = {table: rows(connection, "ledger_views", table) for table in tables}
    Projector(log, SHIPPED).catch_up()
    now = {table: rows(connection, "ledger_views", table) for table in tables}
    past = as_of(log, position=position, batch=11)
    assert {table: rows(connection, past.schema, table) for table in tables} == shown != now
    assert {table: rows(connection, "ledger_views", table) for table in tables} == now
    connection.execute(f"SET search_path TO {past.schema}")
    ((tree,),) = connection.execute("SELECT lsm_tree('brain')").fetchall()
    assert tree is not None


def test_a_time_means_the_last_position_before_what_came_later(log: Ledger, connection: Connection) -> None:
    log.append("lamp/a", Body("lamp.made", 1, "{}"))
    between = log.read("lamp/a")[0].recorded_at
    history(log, 2)
    past = as_of(log, time=between)
    assert (past.position, past.time, past.beyond) == (1, between, False)
    assert connection.execute(f"SELECT position, asked_for FROM {past.schema}.as_of").fetchall() == [
        (1, between)
    ]
    early = as_of(log, time=between - timedelta(days=1))
    assert (early.position, early.events) == (0, 0)
    late = as_of(log, time=datetime.now(UTC) + timedelta(days=1))
    assert (late.position, late.beyond) == (log.bound(), True)
    assert as_of(log, position=10**9).position == as_of(log).position == log.bound()
    with pytest.raises(BadInput, match="must have its offset"):
        as_of(log, time=datetime(2026, 1, 1))  # noqa: DTZ001


def test_an_open_append_is_not_in_it(log: Ledger, connect: Callable[..., Connection]) -> None:
    lamps(log, 2)
    user = connect()
    with log.join(user) as joined:
        joined.append("lamp/open", Body("lamp.made", 1, "{}"))
    lamps(log, 4)
    past = as_of(log, views=[IN_STATE])
    user.commit()
    assert (past.position, past.streams) == (4, 2)
    assert as_of(log, views=[IN_STATE]).position == log.bound() > 4


def test_a_stream_whose_event_fails_is_left_out_and_named(log: Ledger, connection: Connection) -> None:
    class Inverse(View):
        name = "inverse"
        tables = "CREATE TABLE {inverse} (stream text, value integer)"
        statements = ("INSERT INTO {inverse} SELECT stream, 1 / (data->>'value')::integer FROM {batch} b",)

    view = KNOWN.views.pop("inverse")
    for value in (1, 0, 1):
        log.append("a/1", Body("t", 1, f'{{"value": {value}}}'))
        log.append("a/2", Body("t", 1, '{"value": 1}'))
    past = as_of(log, views=[view])
    assert past.parked == 1
    assert connection.execute(f"SELECT view, stream, position FROM {past.schema}.parked").fetchall() == [
        ("inverse", "a/1", 3)
    ]
    assert connection.execute(f"SELECT stream FROM {past.schema}.inverse").fetchall() == [
        ("a/1",), ("a/2",), ("a/2",), ("a/2",)
    ]  # fmt: skip


def test_a_state_that_cannot_be_folded_is_left_open(log: Ledger, connection: Connection) -> None:
    log.append("lamp/bad", Body("lamp.made", 1, '{"watts": "many"}'))
    log.append("lamp/a", Body("lamp.made", 1, "{}"))
    log.append("lamp/", Body("lamp.made", 1, "{}"))
    past = as_of(log, views=[IN_STATE])
    found = connection.execute(
        f"SELECT stream, version, state IS NULL FROM {past.schema}.heads ORDER BY 1"
    ).fetchall()
    assert (past.unfolded, [row for row in found if row[0] != "lamp/"]) == (
        past.unfolded, [("lamp/a", 1, False), ("lamp/bad", 1, True)]
    )  # fmt: skip
    assert past.unfolded >= 1


def test_it_holds_while_writers_write(log: Ledger, connection: Connection) -> None:
    over = threading.Event()

    def write() -> None:
        seed = 0
        while not over.is_set():
            seed += 1
            history(log, 1, seed)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        made = [as_of(log, views=[IN_STATE]) for _ in range(3)]
    finally:
        over.set()
        for writer in writers:
            writer.join()
    for past in made:
        check(log, connection, past)
    assert len({past.position for past in made}) > 1

"""A million payments, a thousand of them in the state asked for, kept in both ways: for `bench machines`."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

import ledger
from ledger.machines import From, Machine, State
from projections.engine.rebuild import rebuild
from projections.machines import InState
from projections.views.in_state import InState as InStateView
from tests.benchmarks import article

WANTED = 1000
"""Payments that were submitted and not paid."""


class BenchPayment(Machine, name="bench_payment"):
    """pending → submitted → paid."""

    PENDING = State("pending", initial=True)
    SUBMITTED = State("submitted")
    PAID = State("paid")
    table = (From(PENDING).To(SUBMITTED), From(SUBMITTED).To(PAID))


PAYMENTS = """
CREATE TABLE payments (id text PRIMARY KEY, amount bigint NOT NULL, currency text NOT NULL);
INSERT INTO payments SELECT 'PM' || n, n * 7 % 100000, 'GBP' FROM generate_series(1, {objects}) n;
"""
# Each was submitted, and all but each so many-th were paid.
TRANSITIONS = """
INSERT INTO transitions (payment_id, to_state, most_recent, sort_key)
SELECT 'PM' || n, 'submitted', n % {every} = 0, 10 FROM generate_series(1, {objects}) n;
INSERT INTO transitions (payment_id, to_state, most_recent, sort_key)
SELECT 'PM' || n, 'paid', true, 20 FROM generate_series(1, {objects}) n WHERE n % {every} <> 0;
"""
EVENTS = """
INSERT INTO ledger.events (position, recorded_at, version, stream, topic, data, meta)
SELECT nextval('ledger.positions'), clock_timestamp(), 1, 'bench_payment/PM' || n, 'bench_payment.moved',
       '{{"definition": 1, "from_state": "pending", "metadata": {{}}, "to_state": "submitted"}}', '{{}}'
  FROM generate_series(1, {objects}) n;
INSERT INTO ledger.events (position, recorded_at, version, stream, topic, data, meta)
SELECT nextval('ledger.positions'), clock_timestamp(), 2, 'bench_payment/PM' || n, 'bench_payment.moved',
       '{{"definition": 1, "from_state": "submitted", "metadata": {{}}, "to_state": "paid"}}', '{{}}'
  FROM generate_series(1, {objects}) n WHERE n % {every} <> 0;
"""


def fill(dsn: str, owner: str, objects: int) -> None:
    """Put payments and their moves in a ledger and in the article's table; build the view.

    owner: the DSN of who may write events without the append.
    """
    with ledger.connect(dsn, create=False) as log:
        BenchPayment(log, "first").move(
            "submitted"
        )  # what a process does that moves one: it defines the machine
        BenchPayment(log, "first").move("paid")
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("SET ROLE pledger")
            for script in (PAYMENTS, TRANSITIONS, EVENTS):
                print(f"{script.split('(')[0].strip()} …", file=sys.stderr, flush=True)
                if script is EVENTS:
                    connection.execute("RESET ROLE")
                connection.execute(script.format(objects=objects, every=max(1, objects // WANTED)).encode())
            connection.execute(article.INDEX_OF_STATES)
        rebuild(log, InStateView())
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def ours() -> sql.Composed:
    """The user's query with our condition in it."""
    return sql.SQL("SELECT p.* FROM payments p WHERE {}").format(
        InState(BenchPayment, "submitted").where(key=sql.Identifier("p", "id"))
    )


def in_state(dsn: str, owner: str, objects: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """The time of our query by that of the article's, in turns; both prepared, on one connection."""
    fill(dsn, owner, objects)
    times: dict[str, list[float]] = {"ours": [], "article": []}
    with psycopg.connect(dsn, autocommit=True) as connection:
        asked = ours().as_bytes(connection)
        ask: dict[str, Callable[[], list[Any]]] = {
            "ours": lambda: connection.execute(asked, prepare=True).fetchall(),
            "article": lambda: connection.execute(article.IN_STATE, ["submitted"], prepare=True).fetchall(),
        }
        found = {name: sorted(query()) for name, query in ask.items()}
        if found["ours"] != found["article"]:
            raise AssertionError(f"the two find {len(found['ours'])} and {len(found['article'])} payments")
        for number in range(rounds * 10 + 6):
            for name, query in ask.items():
                begin = time.perf_counter()
                query()
                if number >= 6:  # by then the server has settled on its plans
                    times[name].append(time.perf_counter() - begin)
    by_theirs = statistics.median(a / b for a, b in zip(times["ours"], times["article"], strict=True))
    return {"in_state_vs_article": round(by_theirs, 3)}, {
        "in_state_objects": objects,
        "in_state_found": len(found["ours"]),
    } | {f"in_state_{name}_ms": round(statistics.median(taken) * 1e3, 2) for name, taken in times.items()}

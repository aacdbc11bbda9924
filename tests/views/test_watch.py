"""How views are, as it is told: each state, the lag, the rate, and the same for Prometheus."""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

import ledger
from ledger import Ledger, ViewFailed
from projections.engine import watch as watching
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.view import View
from projections.engine.watch import State, ViewState, watch
from projections.metrics import LedgerMetrics, metrics
from projections.metrics_server import serving
from tests.faults.conftest import eventually
from tests.lamp import LampMade
from tests.views.views_of_tests import ADD_WATTS, Declare, declare, summed

assert declare
Connection = psycopg.Connection[Any]


def seen(log: Ledger, view: View, **more: Any) -> ViewState:
    (state,) = watch(log, [view], **more)
    return state


def sample(text: str, name: str, **labels: str) -> float:
    """The value of one sample."""
    (value,) = [
        s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name == name and labels.items() <= s.labels.items()
    ]
    return value


def test_the_life_of_a_view(log: Ledger, connection: Connection, declare: Declare) -> None:
    view = declare()
    state = seen(log, view)
    assert (state.state, state.copy, state.position, state.lag_events) == (State.NOT_MADE, None, None, None)
    log.append("lamp/a", LampMade(), LampMade())
    Projector(log, [view]).catch_up()
    eventually(lambda: seen(log, view).followers == 0)  # its session ends a little later
    state = seen(log, view)
    assert (state.state, state.copy, state.position, state.events) == (State.LIVE, 1, 2, 2)
    assert (state.lag_events, state.lag_seconds, state.followers, state.rate) == (0, 0.0, 0, None)
    with connection.transaction(force_rollback=True), log.join(connection) as joined:
        joined.append("lamp/gone", LampMade())
    assert seen(log, view).lag_events == 0
    log.append("lamp/a", LampMade())
    state = seen(log, view)
    assert (state.state, state.lag_events) == (State.STOPPED, 1)
    assert state.lag_seconds is not None
    assert state.lag_seconds > 0
    assert seen(log, declare(statements=(ADD_WATTS + " ",))).state is State.OTHER_DEFINITION
    connection.execute("UPDATE ledger.views SET inline = true")
    state = seen(log, view)
    assert (state.state, state.position, state.lag_events) == (State.INLINE, None, None)


def test_one_that_is_followed_is_behind_and_not_stopped(
    log: Ledger, connection: Connection, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "BEHIND", 0.05)
    view = declare()
    with Projector(log, [view]) as one, Projector(log, [view]) as two:
        eventually(lambda: [seen(log, view)][0].followers == 2)
        with connection.transaction():
            connection.execute("LOCK TABLE ledger_views.watts_1 IN EXCLUSIVE MODE")
            log.append("lamp/a", LampMade())
            eventually(lambda: seen(log, view).state is State.BEHIND)
        assert one.wait_for(1)
        assert two.wait_for(1)
        eventually(lambda: seen(log, view).state is State.LIVE)
    eventually(lambda: seen(log, view).followers == 0)


def test_one_that_fails_says_why_until_it_goes_on(
    log: Ledger, connection: Connection, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    view = declare(statements=("SELECT ledger_views.later() FROM {batch} b",))
    log.append("lamp/a", LampMade())
    with pytest.raises(ViewFailed):
        Projector(log, [view]).catch_up()
    state = seen(log, view)
    assert (state.state, state.error) == (State.STOPPED, "function ledger_views.later() does not exist")
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_projector")
        connection.execute("CREATE FUNCTION ledger_views.later() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    Projector(log, [view]).catch_up()
    assert (seen(log, view).state, seen(log, view).error) == (State.LIVE, None)


def test_copies_that_are_built_are_named(log: Ledger, declare: Declare) -> None:
    view = declare()
    with projecting(log) as connection:
        copies = Copies(connection, log.schema)
        copies.begin(view)
        state = seen(log, view)
        assert (state.state, state.building) == (State.BUILDING, (1,))
        copies.followed(view)
        state = seen(log, view)
        assert (state.state, state.building, state.copy) == (State.LIVE, (1,), 2)


def test_a_long_lag_is_not_counted(log: Ledger, declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    view = declare()
    Projector(log, [view]).catch_up()
    log.append("lamp/a", *[LampMade()] * 20)
    assert seen(log, view).lag_events == 20
    monkeypatch.setattr(watching, "COUNTED", 5)
    assert seen(log, view).lag_events == 20


def test_the_rate_is_that_of_the_time_it_was_watched(log: Ledger, declare: Declare) -> None:
    view = declare()
    Projector(log, [view]).catch_up()
    assert seen(log, view, seconds=0.05).rate == 0
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            log.append("lamp/a", *[LampMade()] * 10)

    writer = threading.Thread(target=write)
    with Projector(log, [view]):
        writer.start()
        try:
            eventually(lambda: (seen(log, view, seconds=0.1).rate or 0) > 100)
        finally:
            stop.set()
            writer.join()


def test_a_reader_may_look(log: Ledger, dsn: str, connection: Connection, declare: Declare) -> None:
    view = declare()
    log.append("lamp/a", LampMade())
    Projector(log, [view]).catch_up()
    with ledger.connect(f"{dsn} options='-c role=ledger_reader'", create=False) as reading:
        assert seen(reading, view).state is State.LIVE
        assert sample(metrics(reading), "pledger_view_position", view="watts") == 1


def test_metrics_say_the_same(log: Ledger, declare: Declare) -> None:
    view = declare(apply=lambda self, batch: summed(batch))
    assert sample(metrics(log), "pledger_view_state", view="watts", state="not made") == 1
    log.append("lamp/bad", LampMade(watts=-1))
    log.append("lamp/a", LampMade())
    Projector(log, [view]).catch_up()
    log.append("lamp/a", LampMade(), LampMade())
    text = metrics(log)
    told = {
        name: sample(text, f"pledger_view_{name}", view="watts", schema="ledger")
        for name in ("position", "copy", "lag_events", "parked", "followers", "events_total")
    }
    assert told == {
        "position": 2, "copy": 1, "lag_events": 2, "parked": 1, "followers": 0, "events_total": 2,
    }  # fmt: skip
    assert sample(text, "pledger_view_lag_seconds", view="watts") > 0
    assert sample(text, "pledger_view_state", view="watts", state="stopped") == 1
    assert sample(text, "pledger_view_state", view="watts", state="live") == 0
    assert sample(text, "pledger_log_position") == 4
    for line in text.splitlines():
        assert line.startswith(("# HELP pledger_", "# TYPE pledger_", "pledger_"))


def test_they_are_served_and_say_when_the_ledger_cannot_be_read(dsn: str, declare: Declare) -> None:
    declare()
    with ledger.connect(dsn, timeout=0.1) as log, serving(LedgerMetrics(log), 0) as port:
        at = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(at, timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            text = answer.read().decode()
        assert sample(text, "pledger_up") == 1
        assert sample(text, "pledger_view_state", view="watts", state="not made") == 1
        log.schema = "nowhere"
        with urllib.request.urlopen(at, timeout=60) as answer:
            text = answer.read().decode()
        assert sample(text, "pledger_up") == 0
        assert "pledger_view" not in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(at, timeout=10)

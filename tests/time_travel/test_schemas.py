"""The schema of a past: who may make, read and drop it, when it is made anew; whole or not there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import ledger
from ledger import BadInput, Body, Ledger, LedgerBusy, NoPermission
from ledger.domain.known import KNOWN
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from projections.engine.view import View
from projections.time_travel import Past, as_of, drop, pasts
from tests.time_travel.oracle import IN_STATE, check
from tests.views.lamps import lamps

Connection = psycopg.Connection[Any]


def test_it_stays_what_it_was_and_is_made_anew_only_for_a_reason(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    first = as_of(log, position=4, views=["in_state"])
    lamps(log, 5)
    again = as_of(log, position=4, views=["in_state"])
    assert first.new
    assert not again.new
    assert again.made_at == first.made_at
    more = as_of(log, position=4, views=["in_state", "activity"])
    assert more.new
    assert more.views == ("activity", "in_state")
    assert not as_of(log, position=4, views=["in_state"]).new
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    announce_statuses(log, {"torch.lit": TopicStatus("lit")})
    assert as_of(log, position=4, views=["in_state"]).new


def test_a_reader_reads_it_and_nobody_else_may_write_it(log: Ledger, only: Callable[[str], str]) -> None:
    lamps(log, 3)
    past = as_of(log)
    with psycopg.connect(only("ledger_reader"), autocommit=True) as reader:
        reader.execute(f"SET search_path TO {past.schema}")
        assert reader.execute("SELECT count(*) FROM in_state JOIN heads USING (stream)").fetchall() == [(3,)]
        assert len(reader.execute("SELECT * FROM streams_in('lamp', 'on')").fetchall()) == 3
        assert reader.execute("SELECT max(position) FROM events").fetchall() == [(past.position,)]
        for change in ("DELETE FROM heads", "CREATE TABLE mine ()", "SELECT ledger.drop_as_of(6)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(change)
        assert [one.position for one in pasts(log)] == [past.position]


def test_a_projector_alone_makes_and_drops_it(
    log: Ledger, only: Callable[[str], str], connection: Connection
) -> None:
    lamps(log, 3)
    with pytest.raises(NoPermission), ledger.connect(only("ledger_reader")) as reader:
        as_of(reader)
    with ledger.connect(only("ledger_projector")) as projector:
        with pytest.raises(NoPermission, match=r"GRANT CREATE ON DATABASE .* TO ledger_owner"):
            as_of(projector)  # the database was copied from another one, which loses what was granted
        as_of(log)
        assert drop(projector, log.bound())
        assert as_of(projector).new


def test_dropping_waits_only_shortly_for_a_reader(log: Ledger, connect: Callable[..., Connection]) -> None:
    lamps(log, 3)
    past = as_of(log)
    reader = connect()
    reader.execute(f"SELECT * FROM {past.schema}.in_state")
    with pytest.raises(LedgerBusy, match="the ledger as of 6 is being read"):
        drop(log, 6, timeout=0.1)
    assert pasts(log) == [past.__class__(**{**as_dict(past), "new": False})]
    reader.rollback()
    assert drop(log, 6)
    assert not drop(log, 6)
    assert pasts(log) == []


def as_dict(past: Past) -> dict[str, Any]:
    return {name: getattr(past, name) for name in past.__dataclass_fields__}


def test_a_view_cannot_take_the_names_of_a_past(log: Ledger) -> None:
    class Events(View):
        name = "my_events"
        tables = "CREATE TABLE {events} (stream text)"
        statements = ("INSERT INTO {events} SELECT stream FROM {batch} b",)

    with pytest.raises(BadInput, match="has a table events, and so has every past"):
        as_of(log, views=[KNOWN.views.pop("my_events")])


def test_a_long_schema_and_its_neighbour(dsn: str, admin_dsn: str) -> None:
    from ledger.log.install import init

    name = "l" * 40
    with psycopg.connect(dsn, autocommit=True) as user:
        init(user, name)
    with ledger.connect(dsn, schema=name) as log, ledger.connect(dsn) as other:
        log.append("lamp/a", Body("lamp.made", 1, "{}"))
        past = as_of(log)
        assert past.schema == f"{name}_as_of_1"
        assert pasts(other) == []
        assert not drop(other, 1)
        assert drop(log, 1)


MAKE = """
import sys, ledger, tests.lamp, projections.views.in_state
from projections.time_travel import as_of
def tell(step):
    print(step.done, flush=True)
    if step.done >= int(sys.argv[2]):
        sys.stdin.readline()
as_of(ledger.connect(sys.argv[1]), batch=20, progress=tell)
"""


@pytest.mark.parametrize("until", [20, 60, 101])
def test_killed_half_way_it_never_looks_whole(
    log: Ledger, connection: Connection, dsn: str, until: int
) -> None:
    lamps(log, 50)
    command = [sys.executable, "-c", MAKE, dsn, str(until)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        if until <= 100:
            while int(child.stdout.readline()) < until:
                pass
        else:
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    left = pasts(log)
    if until <= 100:
        assert [(past.position, past.whole, past.events) for past in left] == [(100, False, 0)]
        with pytest.raises(psycopg.Error):
            connection.execute("SET ROLE ledger_reader; SELECT * FROM ledger_as_of_100.heads")
        connection.execute("RESET ROLE")
    past = as_of(log, views=[IN_STATE])
    assert past.whole
    assert time.monotonic() < deadline
    check(log, connection, past)

"""Whole applications of the `eventsourcing` library: aggregates, snapshots, systems, projections."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from eventsourcing.domain import Aggregate
from eventsourcing.persistence import IntegrityError, Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.system import MultiThreadedRunner, NewMultiThreadedRunner, SingleThreadedRunner, System

import ledger
from ledger.embedded import Embedded
from ledger.store.recorders import LedgerTrackingRecorder
from tests.contracts.savings import Account, Savings, Total, Totals

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def savings() -> Iterator[Savings]:
    with Savings() as opened:
        yield opened


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_an_application_finds_its_aggregates_again(savings: Savings) -> None:
    account_id = savings.open("mina")
    for amount in range(1, 25):
        savings.put_in(account_id, amount)
    with Savings() as again:
        account: Account = again.repository.get(account_id)
        assert (account.owner, account.balance, account.version) == ("mina", 300, 25)
        early: Account = again.repository.get(account_id, version=4)
        assert early.balance == 6
        assert again.snapshots is not None
        assert [snapshot.originator_version for snapshot in again.snapshots.get(account_id)] == [10, 20]


def test_a_stale_aggregate_is_refused(savings: Savings) -> None:
    account_id = savings.open("mina")
    first, second, third = (savings.repository.get(account_id) for _ in range(3))
    for amount, stale in enumerate((first, second, third)):
        stale.put_in(amount)
    savings.save(first)
    with pytest.raises(IntegrityError):
        savings.save(second)
    with pytest.raises(IntegrityError):
        savings.save(Account("other"), third)
    assert [n.originator_version for n in savings.recorder.select_notifications(None, 10)] == [1, 2]


def test_encrypted_and_compressed_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    from eventsourcing.cipher import AESCipher

    monkeypatch.setenv("CIPHER_KEY", AESCipher.create_key(16))
    monkeypatch.setenv("COMPRESSOR_TOPIC", "zlib")
    with Savings() as savings:
        account_id = savings.open("mina")
        savings.put_in(account_id, 5)
        assert savings.repository.get(account_id).balance == 5
        assert not any(b"mina" in event.state for event in savings.recorder.select_events(account_id))


def test_applications_of_one_database_do_not_see_each_other(savings: Savings, dsn: str) -> None:
    with Totals() as totals:
        totals.save(Total("mine"))
        savings.open("mina")
        assert [n.id for n in totals.recorder.select_notifications(None, 10)] == [1]
        assert [n.id for n in savings.recorder.select_notifications(None, 10)] == [1]
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ledger%'").fetchall()
    ledgers = {"ledger", "ledger_savings", "ledger_totals"}
    assert {name for (name,) in found} == ledgers | {
        f"{name}_{what}" for name in ledgers for what in ("views", "effects")
    }


def test_an_applications_log_is_a_ledger(savings: Savings, dsn: str) -> None:
    account_id = savings.open("mina")
    with ledger.connect(dsn, schema="ledger_savings") as log:
        (event,) = log.read(str(account_id))
    assert event.raw is not None
    assert (event.position, event.version, event.data) == (1, 1, None)
    assert event.meta.actor
    assert event.topic.endswith("savings:Account.Opened")


@pytest.mark.parametrize("runner_class", [SingleThreadedRunner, MultiThreadedRunner, NewMultiThreadedRunner])
def test_a_system_processes_each_event_once(runner_class: Any) -> None:
    with runner_class(System(pipes=[[Savings, Totals]])) as runner:
        savings, totals = runner.get(Savings), runner.get(Totals)
        account_id = savings.open("mina")
        for amount in range(1, 21):
            savings.put_in(account_id, amount)
        eventually(lambda: totals.recorder.has_tracking_id("Savings", 21))
        assert totals.total() == 210
        assert totals.recorder.max_tracking_id("Savings") == 21


class Sums(LedgerTrackingRecorder):
    """What was put in, in a table of its own."""

    def create_table(self) -> None:
        with self.ledger.pool.connection() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS sums (owner uuid PRIMARY KEY, amount bigint)")

    def add(self, owner: UUID, amount: int, tracking: Tracking) -> None:
        with self.processing(tracking) as connection:
            connection.execute(
                "INSERT INTO sums AS s VALUES (%s, %s)"
                " ON CONFLICT (owner) DO UPDATE SET amount = s.amount + excluded.amount",
                [owner, amount],
            )

    def of(self, owner: UUID) -> int:
        with self.ledger.reader() as connection:
            row = connection.execute("SELECT amount FROM sums WHERE owner = %s", [owner]).fetchone()
        return row[0] if row else 0


class SumsProjection(Projection[Sums]):
    name = "sums"

    def process_event(self, domain_event: Aggregate.Event, tracking: Tracking) -> None:
        if isinstance(domain_event, Account.PutIn):  # type: ignore[attr-defined]
            self.view.add(domain_event.originator_id, domain_event.amount, tracking)
        else:
            self.view.insert_tracking(tracking)


def test_a_projection_goes_on_where_it_stopped(savings: Savings) -> None:
    account_id = savings.open("mina")
    for _ in range(3):
        savings.put_in(account_id, 1, 2)
        with ProjectionRunner(
            application_class=Savings, projection_class=SumsProjection, view_class=Sums
        ) as runner:
            savings.put_in(account_id, 3)
            runner.wait(savings.recorder.max_notification_id(), timeout=60)
            assert runner.view.of(account_id) == savings.repository.get(account_id).balance
            with pytest.raises(IntegrityError):
                runner.view.add(account_id, 100, Tracking("Savings", 2))


IN_A_FRESH_PROCESS = """
import logging
import sys

import ledger
assert not any(name.startswith("eventsourcing") for name in sys.modules), "ledger loads the library"
before = [logging.getLogger(name).level for name in ("psycopg", "psycopg.pool")]
from tests.contracts.savings import Savings

with Savings() as savings:
    savings.put_in(savings.open("mina"), 7)
    print([notification.id for notification in savings.recorder.select_notifications(1, 10)])
assert [logging.getLogger(name).level for name in ("psycopg", "psycopg.pool")] == before
assert "eventsourcing.postgres" not in sys.modules
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for an embedded server that the test starts."""
    path = Path(tempfile.gettempdir()) / f"ledger-library-{os.getpid()}"
    yield path
    Embedded(path).stop()
    shutil.rmtree(path)


def ids_in_a_fresh_process(dsn: str) -> str:
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    given = {"PERSISTENCE_MODULE": "ledger.store", "LEDGER_DSN": dsn, "PYTHONPATH": path}
    command = [sys.executable, "-c", IN_A_FRESH_PROCESS]
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, timeout=120)
    return done.stdout or done.stderr


def test_a_dsn_is_enough(dsn: str) -> None:
    assert ids_in_a_fresh_process(dsn) == "[1, 2]\n"


def test_an_embedded_server_is_a_dsn(home: Path) -> None:
    assert ids_in_a_fresh_process(f"embedded:{home}") == "[1, 2]\n"
    assert ids_in_a_fresh_process(f"embedded:{home}") == "[1, 2, 3, 4]\n"

"""Locks: none is left behind by an interruption, none is one too many, and none waits in a circle."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import ledger
from ledger import ANY, EXISTS, NEW, Append, Exact, Guard, Ledger, LedgerBusy, Refused, ServerUnavailable
from ledger.embedded import Embedded
from ledger.log.append import body_of
from ledger.log.install import init
from tests.faults.readers import check_order
from tests.faults.schedules import advisory_locks, as_owner, deadlocks, look, put
from tests.lamp import LampMade, LampRead

Connection = psycopg.Connection[Any]
BODY = body_of(LampRead())


def run_threads(works: list[Callable[[], None]]) -> None:
    """Run them all at once; raise what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# Interruptions


TRIES, CUT = 300, 50
"""Appends that a campaign must try, and interrupt."""


class Interrupted:
    """Pool that append without end, each in its own way, while others interrupt them at random."""

    def __init__(self, log: Ledger, dsn: str, seconds: float) -> None:
        self.log, self.dsn, self.end = log, dsn, time.monotonic() + seconds
        self.dice = random.Random()
        self.connections = [self.connected() for _ in range(6)]
        self.tries = self.cut = self.ended = self.stuck = 0

    def connected(self) -> Connection:
        """A connection on which waiting for a lock that was not released fails after 3 s."""
        return psycopg.connect(self.dsn, autocommit=True, options="-c lock_timeout=3s")

    def going(self) -> bool:
        """For its time, and on a slow machine until it was enough."""
        enough = self.tries > TRIES and self.cut > CUT
        return time.monotonic() < (self.end if enough else self.end + 60)

    def append(self, nth: int) -> None:
        """Singles and blocks; some in savepoints; some with time-outs."""
        while self.going():
            connection = self.connections[nth]
            self.tries += 1
            try:
                if nth % 3 == 0:
                    name = self.dice.choice(["statement_timeout", "lock_timeout"])
                    connection.execute(f"SET {name} = '{self.dice.randint(1, 4)}ms'")  # type: ignore[call-overload]
                if nth % 3 == 1:
                    self.in_savepoints(connection, nth)
                else:
                    put(self.log, connection, f"lamp/{nth % 2}", 1 + nth % 2 * 20)
            except (psycopg.Error, ServerUnavailable) as error:
                self.cut += 1
                self.stuck += nth % 3 > 0 and "lock timeout" in str(error)
                if connection.closed:
                    self.ended += 1
                    self.connections[nth] = self.connected()

    def in_savepoints(self, connection: Connection, nth: int) -> None:
        with connection.transaction():
            for count in (1, 7):
                try:
                    put(self.log, connection, f"lamp/own{nth}", count)
                except LedgerBusy:
                    self.cut += 1

    def cancel(self) -> None:
        """Often twice within microseconds: the second meets what the first left. Rarely, end it."""
        query = "SELECT pg_cancel_backend(%(pid)s), pg_sleep(random() * 0.0001), pg_cancel_backend(%(pid)s)"
        with psycopg.connect(self.dsn, autocommit=True) as other:
            while self.going():
                pid = self.dice.choice(self.connections).info.backend_pid
                other.execute(query, {"pid": pid})
                if self.dice.random() < 0.002:
                    other.execute("SELECT pg_terminate_backend(%s)", [pid])

    def run(self) -> None:
        appends = [lambda nth=nth: self.append(nth) for nth in range(len(self.connections))]  # type: ignore[misc]
        run_threads([*appends, self.cancel, self.cancel])

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def interrupt(log: Ledger, dsn: str, database: str, seconds: float) -> Interrupted:
    """Interrupt appends for a while; afterwards no lock is held, though every connection still lives."""
    campaign = Interrupted(log, dsn, seconds)
    try:
        campaign.run()
        with psycopg.connect(dsn, autocommit=True) as free:
            assert advisory_locks(free, database) == []
            assert campaign.stuck == 0
            free.execute("SET lock_timeout = '5s'")
            put(log, free, "lamp/after", 10)
    finally:
        campaign.close()
    check_order(
        [row for at in range(0, log.bound(), 1000) for row in log.log(at, min(at + 1000, log.bound()))]
    )
    return campaign


def test_interruptions_leave_no_lock_behind(log: Ledger, dsn: str, database: str) -> None:
    campaign = interrupt(log, dsn, database, 2)
    assert campaign.tries > TRIES
    assert campaign.cut > CUT


@pytest.mark.slow
def test_minutes_of_interruptions(log: Ledger, dsn: str, database: str, minutes: float) -> None:
    campaign = interrupt(log, dsn, database, 60 * minutes)
    print(f"\nlocks: {campaign.tries} tries, {campaign.cut} interrupted, {campaign.ended} connections ended")
    assert campaign.tries > 2000


# Two ledgers


def test_two_ledgers_of_one_database_do_not_hold_each_other(
    log: Ledger, dsn: str, connection: Connection, connect: Callable[..., Connection]
) -> None:
    init(connection, "second")
    with ledger.connect(dsn, schema="second") as second:
        assert second.identity.lock_class != log.identity.lock_class
        holder = connect()
        put(log, holder)
        last = second.append("lamp/a", LampRead()).last_position
        assert (log.bound(), second.bound()) == (0, last)
        put(second, holder, "lamp/b")
        second.append("lamp/c", LampRead())
        assert (log.bound(), second.bound()) == (0, last)
        holder.commit()
        assert (look(log), look(second)) == ([1], [1, 2, 3])


def test_ledgers_with_the_same_lock_class_delay_each_other_and_skip_nothing(
    log: Ledger, dsn: str, connection: Connection, connect: Callable[..., Connection]
) -> None:
    """A restore, or a ledger dropped and another made, can bring two of one class into one database."""
    init(connection, "second")
    as_owner(connection, "UPDATE identity SET lock_class = %s", log.identity.lock_class, schema="second")
    init(connection, "second")
    with ledger.connect(dsn, schema="second") as second:
        for _ in range(5):
            log.append("lamp/a", LampRead())
        holder = connect()
        put(log, holder, "lamp/a")
        put(second, holder, "lamp/late")
        second.append("lamp/quick", LampRead())
        seen = look(second)
        holder.commit()
        assert seen + look(second, max(seen, default=0)) == [1, 2]


def test_a_new_ledger_takes_a_class_that_no_other_has(log: Ledger, dsn: str, connection: Connection) -> None:
    init(connection, "second")
    init(connection, "third")
    as_owner(connection, "DROP SCHEMA second CASCADE", schema="second")
    init(connection, "fourth")
    classes = [log.identity.lock_class]
    for schema in ("third", "fourth"):
        with ledger.connect(dsn, schema=schema) as opened:
            classes.append(opened.identity.lock_class)
    assert len(set(classes)) == 3


def test_an_open_append_in_another_database_holds_nobody(
    log: Ledger, postgres: Embedded, connect: Callable[..., Connection]
) -> None:
    put(log, connect())
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE neighbour")
        with ledger.connect(postgres.dsn("neighbour"), create=True) as neighbour:
            assert neighbour.identity.lock_class == log.identity.lock_class
            last = neighbour.append("lamp/a", LampRead()).last_position
            assert (log.bound(), neighbour.bound()) == (0, last)
        admin.execute("DROP DATABASE neighbour WITH (FORCE)")


# Many appends in one transaction


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_appends_of_one_transaction_share_their_marks(
    log: Ledger, connection: Connection, database: str, connect: Callable[..., Connection], count: int
) -> None:
    call = "ledger.append_one('lamp/' || n % 100, n / 100, 'lamp.read', 1::smallint, '{}', NULL, '{}', true)"
    user = connect()
    done = user.execute(
        f"SELECT count(*) FROM generate_series(0, {count - 1}) n, {call} WHERE outcome = 'recorded'"
    )  # type: ignore[call-overload]
    assert done.fetchone() == (count,)
    assert len(advisory_locks(connection, database)) <= 2  # that of the first append, and that of all others
    user.commit()
    assert log.bound() == count
    assert len(log.log(count - 1000, count)) == 1000


def test_a_join_collects_many_appends(log: Ledger, connection: Connection, database: str) -> None:
    with connection.transaction(), log.join(connection) as joined:
        for n in range(1000):
            joined.append(f"lamp/{n}", LampRead())
        assert advisory_locks(connection, database) == []
    assert joined.appended is not None
    assert (joined.appended.first_position, joined.appended.last_position) == (1, 1000)
    assert len(look(log)) == 1000


# Deadlocks


def quarrel(log: Ledger, seed: int, seconds: float, commands: dict[str, int]) -> None:
    """Appends to some of few streams, in every way; a refusal is an answer too."""
    dice, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        appends = []
        for stream in dice.sample("abcde", dice.randint(1, 4)):
            head = log.head(stream)
            version = head.version if head else 0
            expected = dice.choice([NEW, ANY, ANY, EXISTS, Exact(version), Guard(frozenset({"made"}))])
            count = dice.choice([0, 1, 1, 3])
            bodies = [body_of(dice.choice([LampRead(), LampMade()]))] * count
            appends.append(Append(stream, bodies, expected, status="made", head=dice.random() < 0.6))
        if not any(append.events for append in appends):
            continue
        command = f"command {dice.randrange(200)}" if dice.random() < 0.3 else None
        try:
            done = log.append_all(appends, command=command)
        except Refused:
            continue
        if command:
            assert commands.setdefault(command, done.first_position) == done.first_position


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_appends_of_many_streams_never_wait_in_a_circle(
    log: Ledger, connection: Connection, database: str, seconds: float
) -> None:
    commands: dict[str, int] = {}
    seed = random.randrange(2**20)
    works = [lambda n=n: quarrel(log, seed + n, seconds, commands) for n in range(8)]  # type: ignore[misc]
    run_threads(works)
    rows = [row for at in range(0, log.bound(), 1000) for row in log.log(at, min(at + 1000, log.bound()))]
    check_order(rows)
    assert {row.stream for row in rows} == set("abcde")
    recorded = connection.execute("SELECT command, first_position FROM ledger.commands").fetchall()
    assert dict(recorded) == commands
    firsts = {row.meta.command for row in rows if row.meta.command}
    assert firsts == set(commands)
    log.close()
    assert deadlocks(connection, database) == 0

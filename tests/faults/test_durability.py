"""What was acknowledged is in the log, what was refused is not: whatever happens at the commit.

The server says how a commit went after it has said what the statement returned. The kills of test_crash did
not show that: a server that dies of SIGKILL says nothing more, so a client never sees the row of a commit
that fails. A backend that is told to end (SIGTERM, or SIGQUIT when another one dies or the server is stopped
at once) sends what it has, the row included, and then that it ends. So does the server where a constraint is
deferred to the commit, and where a serializable transaction loses there.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import ledger
from ledger import ANY, NEW, AppendUncertain, EffectFailed, Exact, Ledger, LedgerBusy
from ledger.embedded import Embedded
from ledger.log.install import init
from ledger.machines import From, Machine, State
from tests.faults.appenders import Faults, appending, judge
from tests.faults.conftest import eventually
from tests.faults.crashes import Proxy, kill
from tests.faults.schedules import as_owner
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]
_numbers = count(1)

# An inline effect whose own constraints are looked at when the append commits.
DEFERRED = """
CREATE TABLE public.allowed (word text PRIMARY KEY);
INSERT INTO public.allowed VALUES ('');
CREATE TABLE public.seen (
    position bigint PRIMARY KEY,
    mark     text CONSTRAINT seen_mark REFERENCES public.allowed DEFERRABLE INITIALLY DEFERRED,
    value    text
);
GRANT SELECT, INSERT ON public.seen TO PUBLIC;
GRANT SELECT ON public.allowed TO PUBLIC;
CREATE FUNCTION public.note_seen(p_first bigint, p_last bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO public.seen
    SELECT position, CASE WHEN data->>'value' LIKE '%!' THEN 'wrong' ELSE '' END, data->>'value'
      FROM ledger.events WHERE position BETWEEN p_first AND p_last
$$;
"""
ATTACH = "SELECT ledger.attach_effect('seen', 'public.note_seen')"
UNIQUE = "ALTER TABLE public.seen ADD CONSTRAINT seen_once UNIQUE (value) DEFERRABLE INITIALLY DEFERRED"
TRIGGER = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
CREATE CONSTRAINT TRIGGER seen_trigger AFTER INSERT ON public.seen DEFERRABLE INITIALLY DEFERRED
   FOR EACH ROW WHEN (new.value = 'no') EXECUTE FUNCTION public.refuse();
"""


class Switch(Machine, name="switch"):
    ON, OFF = State("on", initial=True), State("off")
    table = (From(ON).To(OFF), From(OFF).To(ON))


@pytest.fixture
def strict(log: Ledger, admin_dsn: str, connection: Connection) -> Ledger:
    """A ledger with an inline effect that lets its commit decide."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for statements in (DEFERRED, UNIQUE, TRIGGER):
            admin.execute(statements)  # type: ignore[call-overload]
    as_owner(connection, ATTACH)
    return log


WAYS: dict[str, Callable[[Ledger, Any], Any]] = {
    "at a version": lambda log, value: log.append("lamp/a", LampRead(value=value), expected=Exact(0)),
    "new": lambda log, value: log.append("lamp/a", LampRead(value=value), expected=NEW),
    "at any version": lambda log, value: log.append("lamp/a", LampRead(value=value), expected=ANY),
    "without a head": lambda log, value: log.append(
        "lamp/a", LampRead(value=value), expected=NEW, head=False
    ),
    "with a command": lambda log, value: log.append("lamp/a", LampRead(value=value), command="once"),
    "several": lambda log, value: log.append("lamp/a", LampRead(), LampRead(value=value)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("value", "what"), [("a!", "seen_mark"), ("twice", "seen_once"), ("no", "deferred constraint trigger")]
)
def test_an_append_that_its_commit_refuses_is_refused(
    strict: Ledger, way: str, value: str, what: str
) -> None:
    strict.append("lamp/before", LampRead(value="twice"))
    with pytest.raises(EffectFailed, match=what):
        WAYS[way](strict, value)
    assert [row.stream for row in strict.log(0, strict.bound())] == ["lamp/before"]
    assert WAYS[way](strict, "good").version > 0


def test_a_move_that_its_commit_refuses_is_refused(strict: Ledger, admin_dsn: str) -> None:
    """The move of one round trip, too; it was acknowledged although it was rolled back."""
    switch = Switch(strict, "a")
    switch.move("off")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("ALTER TABLE public.seen ALTER mark SET DEFAULT 'wrong'")
        admin.execute(
            "CREATE OR REPLACE FUNCTION public.note_seen(p_first bigint, p_last bigint) RETURNS void"
            " LANGUAGE sql AS 'INSERT INTO public.seen (position) SELECT p_first'"
        )
    with pytest.raises(EffectFailed, match="seen_mark"):
        switch.move("on")
    assert [row.version for row in strict.read(switch.stream)] == [1]
    assert Switch(strict, "a").current_state() == "off"


# The connection ends between the row and the word of the commit


@pytest.fixture
def far(proxy: Proxy, log: Ledger) -> Iterator[Ledger]:
    """The ledger of `log`, reached through the proxy, with one connection on which all is prepared."""
    with ledger.connect(proxy.dsn, actor="tester", max_size=1, timeout=3) as far:
        for events in (1, 2):
            far.append(f"warm/{events}", *[LampRead()] * events, expected=NEW)
        yield far


@pytest.mark.parametrize("events", [1, 2])
def test_a_row_without_the_word_of_the_commit_is_no_acknowledgement(
    far: Ledger, log: Ledger, proxy: Proxy, events: int
) -> None:
    proxy.lose("end")
    with pytest.raises(AppendUncertain, match="lamp/a"):
        far.append("lamp/a", *[LampRead()] * events)
    assert (proxy.lost, len(log.read("lamp/a"))) == (1, events)


def test_nothing_was_stored_is_not_said_of_an_attempt_whose_answer_was_lost(
    log: Ledger, proxy: Proxy, connection: Connection
) -> None:
    """The second attempt waits for a lock and gives up; the first one had been committed."""
    lock = "SELECT pg_advisory_lock(ledger.lock_class()::integer, hashtext('once'))"
    patient = make_conninfo(proxy.dsn, options="-c lock_timeout=50")
    with ledger.connect(patient, actor="tester", max_size=1, timeout=3) as far:
        far.append("warm/1", LampRead(), command="warm")
        proxy.lose("answer", then=lambda: connection.execute(lock))
        with pytest.raises(AppendUncertain) as caught:
            far.append("lamp/a", LampRead(), command="once")
    assert not isinstance(caught.value, LedgerBusy)
    assert (proxy.lost, len(log.read("lamp/a"))) == (1, 1)


# The campaign

LOGINS = {
    "plain": "",
    "repeatable": "default_transaction_isolation = 'repeatable read'",
    "serializable": "default_transaction_isolation = 'serializable'",
    "relaxed": "synchronous_commit = 'off'",
    "local": "synchronous_commit = 'local'",
    "both": "default_transaction_isolation = 'serializable'; synchronous_commit = 'off'",
}
"""Roles that appenders come as, and what is set for them."""


@pytest.fixture
def ways(durable: Embedded) -> Iterator[list[str]]:
    """The way into a new ledger for each login; every append has an effect with a deferred constraint."""
    name = f"durability_{next(_numbers)}"
    logins = {login: f"{login}_{name}" for login in LOGINS}
    with psycopg.connect(durable.admin_dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER pledger").format(sql.Identifier(name)))
    with psycopg.connect(durable.dsn(name), autocommit=True) as connection:
        init(connection)
    with psycopg.connect(durable.admin_dsn(name), autocommit=True) as admin:
        for login, role in logins.items():
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x' IN ROLE ledger_writer, ledger_reader")  # type: ignore[call-overload]
            for setting in filter(None, LOGINS[login].split("; ")):
                admin.execute(f"ALTER ROLE {role} SET {setting}")  # type: ignore[call-overload]
        admin.execute(DEFERRED)  # type: ignore[call-overload]
        admin.execute("SET ROLE ledger_owner")
        admin.execute(ATTACH)
    yield [make_conninfo(durable.dsn(name), user=role, password="x") for role in logins.values()]
    with psycopg.connect(durable.admin_dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        for role in logins.values():
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


class Killer:
    """Ends backends and servers while appenders work, and counts what it did."""

    ACTIVE = """
        SELECT pid FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name = 'pledger'
         ORDER BY state <> 'active', random() LIMIT 1
    """

    def __init__(self, server: Embedded, seed: int, pause: float) -> None:
        """pause: seconds between two backends that are ended, on average."""
        self.server, self.dice, self.pause = server, random.Random(seed), pause
        self.kills: Counter[str] = Counter()
        self._admin: Connection | None = None

    def once(self) -> None:
        """One kill, most often of a single connection."""
        act = self.dice.choices(
            [self.end_backend, self.crash_backend, self.stop_at_once, self.crash], [60, 2, 1, 1]
        )[0]
        try:
            act()
        except psycopg.OperationalError:  # the server is coming up again
            self.close()
            time.sleep(0.05)

    def end_backend(self) -> None:
        """SIGTERM to one backend, as an administrator, a proxy or a timeout does it."""
        for (pid,) in self._asked(self.ACTIVE):
            self._asked("SELECT pg_terminate_backend(%s)", pid)
            self.kills["backends ended"] += 1
        time.sleep(self.dice.random() * 2 * self.pause)

    def crash_backend(self) -> None:
        """SIGKILL to one backend: the server sends all others SIGQUIT, and recovers."""
        for (pid,) in self._asked(self.ACTIVE):
            os.kill(pid, 9)
            self.kills["backends killed"] += 1
        self._work_on()

    def stop_at_once(self) -> None:
        """An immediate stop of the server, and its start."""
        self.server.stop(immediate=True)
        self.kills["immediate stops"] += 1
        self.server.acquire()
        self._work_on()

    def crash(self) -> None:
        """SIGKILL to all processes of the server, and its start."""
        kill(self.server)
        self.kills["servers killed"] += 1
        self.server.acquire()
        self._work_on()

    def _work_on(self) -> None:
        """Let the appenders come back, so that there is something to kill."""
        self.close()
        time.sleep(0.5 + self.dice.random())

    def close(self) -> None:
        """Leave the server."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _asked(self, query: str, *values: Any) -> Sequence[Any]:
        if self._admin is None or self._admin.closed:
            self._admin = psycopg.connect(self.server.admin_dsn(), autocommit=True)
        return self._admin.execute(query, values).fetchall()  # type: ignore[call-overload,no-any-return]


def campaign(
    server: Embedded,
    ways: list[str],
    folder: Path,
    seconds: float,
    *,
    pause: float = 0.1,
    enough: float = inf,
    believe: str = "",
) -> tuple[Faults, Counter[str]]:
    """Kill for so long under appenders, or until there were enough kills; what was found, and the figures.

    With a pause of 0 nothing is killed.
    """
    seed = random.randrange(2**20)
    killer = Killer(server, seed, pause)
    with appending(folder, ways, seed=seed, believe=believe) as records:
        eventually(lambda: all(record.exists() and record.stat().st_size for record in records), 60)
        end = time.monotonic() + seconds
        while time.monotonic() < end and killer.kills.total() < enough:
            killer.once() if pause else time.sleep(0.1)
    killer.close()
    server.acquire()
    with psycopg.connect(make_conninfo(ways[0], user="pledger", password=_password(server))) as connection:
        faults, figures = judge(connection, records)
    return faults, figures + killer.kills


def _password(server: Embedded) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(server.dsn())["password"])


def test_what_is_acknowledged_is_stored_and_what_is_refused_is_not(
    durable: Embedded, ways: list[str], tmp_path: Path
) -> None:
    faults, figures = campaign(durable, ways, tmp_path, 60, enough=20)
    assert not any(faults), faults
    assert figures["acknowledged"] > 500
    assert figures["refused"] > 10
    assert figures["uncertain"] > 2
    assert (
        sum(figures[kind] for kind in figures if kind.startswith(("backends", "servers", "immediate"))) > 10
    )


def test_the_campaign_sees_who_believes_the_first_result(
    durable: Embedded, ways: list[str], tmp_path: Path
) -> None:
    """Negative control: the ledger before it judged every result, without any kill."""
    faults, _ = campaign(durable, ways, tmp_path, 0.3, pause=0, believe="first")
    assert faults.missing


@pytest.mark.slow
def test_durability_for_minutes(durable: Embedded, ways: list[str], tmp_path: Path, minutes: float) -> None:
    faults, figures = campaign(durable, ways, tmp_path, 60 * minutes, pause=0.7)
    print(f"\ndurability: {dict(figures)}")
    assert not any(faults), [found[:5] for found in faults]


@pytest.mark.slow
def test_durability_control_with_kills(
    durable: Embedded, ways: list[str], tmp_path: Path, minutes: float
) -> None:
    """Negative control: what ended backends alone lose where the first result is believed, by appender."""
    faults, figures = campaign(durable, [ways[0]] * 4, tmp_path, 60 * min(minutes, 2), believe="first")
    lost = [event for event in faults.missing if not event.value.endswith("!")]
    print(f"\ndurability control: {len(lost)} of {figures['acknowledged']} lost")
    assert lost

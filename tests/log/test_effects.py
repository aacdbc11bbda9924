"""Inline effects: SQL functions that every append calls, which may refuse it by name."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import ledger
from ledger import EffectFailed, Ledger, LedgerError
from ledger.log import install
from ledger.log.append import Append, Body
from ledger.log.appender import send
from tests.lamp import LampMade, LampRead, OpenLamp

Connection = psycopg.Connection[Any]
BODY = Body("t", 1, "{}")
EFFECTS = """
CREATE TABLE public.tally (stream text PRIMARY KEY, events bigint NOT NULL);
GRANT ALL ON public.tally TO PUBLIC;
CREATE FUNCTION public.count_events(p_first bigint, p_last bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO public.tally AS t SELECT stream, count(*) FROM ledger.events
     WHERE position BETWEEN p_first AND p_last GROUP BY stream ORDER BY stream
    ON CONFLICT (stream) DO UPDATE SET events = t.events + excluded.events
$$;
CREATE FUNCTION public.refuse_broken(p_first bigint, p_last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger.events
                WHERE position BETWEEN p_first AND p_last AND data->>'value' = 'bad') THEN
        RAISE 'the value is bad';
    END IF;
END $$;
CREATE FUNCTION public.divide(p_first bigint, p_last bigint) RETURNS void LANGUAGE sql AS
    'SELECT 1 / (p_first - p_first)';
CREATE FUNCTION public.clash(p_first bigint, p_last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE '40001' USING MESSAGE = 'two effects crossed';
END $$;
"""


@pytest.fixture
def owner(connection: Connection, admin_dsn: str) -> Connection:
    """The owner's session, in a database that has some effects."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(EFFECTS)
    connection.execute("SET ROLE ledger_owner")
    return connection


def attach(owner: Connection, name: str, routine: str) -> None:
    owner.execute("SELECT ledger.attach_effect(%s, %s)", (name, routine))


def tally(owner: Connection) -> dict[str, int]:
    return dict(owner.execute("SELECT * FROM public.tally").fetchall())


@pytest.mark.parametrize(
    "appends", [[Append("lamp/a", [BODY])], [Append("lamp/a", [BODY]), Append("b", [BODY])]]
)
def test_an_open_session_holds_the_lock_of_a_view_that_was_attached_since(
    owner: Connection, dsn: str, appends: list[Append]
) -> None:
    """Its plans were made when no effect had a lock; without it an attach would miss its appends."""
    mine = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()"
    held = mine + " AND locktype = 'advisory' AND objsubid = 2"
    with psycopg.connect(dsn, autocommit=True) as session:
        for _ in range(7):
            send(session, "ledger", appends, "{}", None)
        attach(owner, "view tally", "public.count_events")
        with session.transaction():
            send(session, "ledger", appends, "{}", None)
            assert session.execute(held).fetchone() == (1,)


def test_an_effect_sees_every_append_and_commits_with_it(log: Ledger, owner: Connection) -> None:
    log.append("lamp/a", LampRead())
    attach(owner, "tally", "public.count_events")
    log.append("lamp/a", LampRead())
    log.append("lamp/a", LampRead(), expected=2)
    log.append("lamp/b", LampRead(), LampRead(), head=False)
    log.append_all([Append("lamp/c", [Body("t", 1, "{}")]), Append("lamp/b", [Body("t", 1, None, b"raw")])])
    with log.open(OpenLamp, "d") as lamp:
        lamp.make()
        lamp.switch_on()
    assert tally(owner) == {"lamp/a": 2, "lamp/b": 3, "lamp/c": 1, "lamp/d": 2}


def test_an_effect_is_undone_with_the_users_transaction(log: Ledger, owner: Connection, dsn: str) -> None:
    attach(owner, "tally", "public.count_events")
    with psycopg.connect(dsn) as user:
        with log.join(user) as joined:
            joined.append("lamp/a", LampRead())
        user.rollback()
    assert tally(owner) == {}


@pytest.mark.parametrize("events", [1, 3])
@pytest.mark.parametrize("head", [True, False])
def test_an_effect_that_fails_refuses_the_append_and_names_itself(
    log: Ledger, owner: Connection, events: int, head: bool
) -> None:
    attach(owner, "a tally", "public.count_events")
    attach(owner, "no bad values", "public.refuse_broken")
    good, bad = (
        [LampRead(value="good")] * events,
        [LampRead(value="good")] * (events - 1) + [LampRead(value="bad")],
    )
    log.append("lamp/a", *good, expected=0, head=head, command="one")
    for command in (None, "two"):
        with pytest.raises(
            EffectFailed, match="'no bad values' refused the append: the value is bad"
        ) as caught:
            log.append("lamp/a", *bad, expected=events, head=head, command=command)
        assert (caught.value.effect, caught.value.reason) == ("no bad values", "the value is bad")
    assert (len(log.read("lamp/a")), tally(owner)) == (events, {"lamp/a": events})
    assert log.append("lamp/a", *good, expected=events, head=head, command="two").version == 2 * events
    assert not log.append("lamp/z", *good, command="three").repeated


def test_a_refusal_of_many_streams_stores_nothing_of_any(log: Ledger, owner: Connection) -> None:
    attach(owner, "tally", "public.count_events")
    attach(owner, "zero", "public.divide")
    with pytest.raises(EffectFailed, match="'zero' refused the append: division by zero"):
        log.append_all([Append(name, [Body("t", 1, "{}")]) for name in "cab"])
    assert (log.streams(), log.bound() >= 0, tally(owner)) == ([], True, {})
    assert log.head("a") is None


def test_a_refusal_leaves_the_users_transaction_to_be_rolled_back_to_a_savepoint(
    log: Ledger, owner: Connection, dsn: str
) -> None:
    attach(owner, "no bad values", "public.refuse_broken")
    with psycopg.connect(dsn) as user:
        with pytest.raises(EffectFailed), user.transaction(), log.join(user) as joined:
            joined.append("lamp/a", LampRead(value="bad"))
        with log.join(user) as joined:
            joined.append("lamp/a", LampRead(value="good"))
    assert [found.event for found in log.read("lamp/a")] == [LampRead(value="good")]


def test_a_detached_effect_is_called_no_more(log: Ledger, owner: Connection) -> None:
    attach(owner, "zero", "public.divide")
    with pytest.raises(EffectFailed):
        log.append("lamp/a", LampRead())
    assert owner.execute("SELECT ledger.detach_effect('zero')").fetchone() == (True,)
    assert owner.execute("SELECT ledger.detach_effect('zero')").fetchone() == (False,)
    assert log.append("lamp/a", LampRead()).version == 1


def test_an_effect_attached_again_is_replaced(log: Ledger, owner: Connection) -> None:
    attach(owner, "one", "public.divide")
    attach(owner, "one", "public.count_events")
    log.append("lamp/a", LampRead())
    assert tally(owner) == {"lamp/a": 1}


def test_effects_run_in_the_order_of_their_names(log: Ledger, owner: Connection) -> None:
    attach(owner, "b", "public.divide")
    attach(owner, "a", "public.refuse_broken")
    with pytest.raises(EffectFailed, match="'a' refused"):
        log.append("lamp/a", LampRead(value="bad"))
    with pytest.raises(EffectFailed, match="'b' refused"):
        log.append("lamp/a", LampRead(value="good"))


@pytest.mark.parametrize(
    "routine", ["public.nothing", "nothing at all", "", "public.count_events(bigint)", "x'; --"]
)
def test_only_what_is_there_can_be_attached(log: Ledger, owner: Connection, routine: str) -> None:
    with pytest.raises(psycopg.Error):
        attach(owner, "wrong", routine)
    assert log.append("lamp/a", LampRead()).version == 1


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a\\b", "%s %I", "é; DROP TABLE x", "$$"])
def test_an_effect_may_have_any_name(log: Ledger, owner: Connection, name: str) -> None:
    attach(owner, name, "public.divide")
    with pytest.raises(EffectFailed) as caught:
        log.append("lamp/a", LampRead())
    assert caught.value.effect == name


def test_an_effect_whose_function_is_gone_names_itself(
    log: Ledger, owner: Connection, admin_dsn: str
) -> None:
    attach(owner, "lost", "public.divide")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("DROP FUNCTION public.divide")
    with pytest.raises(
        EffectFailed, match=r"'lost' refused the append: function public.divide.* does not exist"
    ):
        log.append("lamp/a", LampRead())


def test_effects_survive_an_installation(log: Ledger, owner: Connection, dsn: str) -> None:
    attach(owner, "tally", "public.count_events")
    with psycopg.connect(dsn, autocommit=True) as user:
        install.init(user)
    log.append("lamp/a", LampRead())
    assert tally(owner) == {"lamp/a": 1}


def test_effects_are_attached_while_appends_go_on(log: Ledger, owner: Connection) -> None:
    def append(number: int) -> None:
        for _ in range(30):
            log.append(f"lamp/{number}", LampRead())

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(append, number) for number in range(3)]
        while not all(one.done() for one in running):
            attach(owner, "tally", "public.count_events")
            owner.execute("SELECT ledger.detach_effect('tally')")
        for one in running:
            one.result()
    assert {info.version for info in log.streams()} == {30}


def test_a_clash_in_an_effect_is_no_refusal_but_may_be_tried_again(dsn: str, owner: Connection) -> None:
    attach(owner, "clash", "public.clash")
    with ledger.connect(dsn, timeout=0.3) as log:
        with pytest.raises(LedgerError) as caught:
            log.append("lamp/a", LampMade())
    assert isinstance(caught.value, ledger.LedgerBusy)

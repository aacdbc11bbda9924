"""Views that appends keep: exact in both directions, whatever the appends are and however they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Append, BadInput, BeingBuilt, Body, EffectFailed, Ledger, LedgerBusy, Refused, ViewFailed
from ledger.domain.known import KNOWN
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from projections.engine import attach as attaching
from projections.engine import inline
from projections.engine.attach import attach, detach
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.view import View
from tests.lamp import LampMade, LampRead, OpenLamp
from tests.views.kept_views import RATIO, TALLIED, TALLY, Tally, counted, swap, tallied
from tests.views.lamps import lamps, states_by_hand

Connection = psycopg.Connection[Any]
IN_STATE = KNOWN.views["in_state"]


def effects(connection: Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM ledger.effects ORDER BY name")]


def states(connection: Connection) -> list[tuple[Any, ...]]:
    wanted = "SELECT stream, status, version, position FROM ledger_views.in_state"
    return sorted(connection.execute(wanted).fetchall())


def test_every_kind_of_append_keeps_it_at_once(log: Ledger, connection: Connection, dsn: str) -> None:
    log.append("lamp/a", LampMade(), LampRead())
    assert attach(log, TALLY)
    assert not attach(log, TALLY)
    assert tallied(connection) == counted(connection)

    log.append("lamp/a", LampRead())
    log.append("lamp/a", LampRead(), expected=3, command="once")
    log.append("lamp/a", LampRead(), expected=3, command="once")
    log.append("lamp/b", LampRead(), LampRead(), head=False)
    log.append("lamp/b", LampRead(), expected=2, head=False)
    log.append_all([Append("lamp/c", [Body("t", 1, "{}")]), Append("lamp/b", [Body("t", 1, None, b"raw")])])
    with log.open(OpenLamp, "d") as lamp:
        lamp.make()
        lamp.switch_on()
    with psycopg.connect(dsn) as user:
        with log.join(user) as joined:
            joined.append("lamp/e", LampMade())
        assert len(user.execute(TALLIED).fetchall()) == 5
        assert len(tallied(connection)) == 4
        user.rollback()
    assert tallied(connection) == counted(connection)
    assert [row[:2] for row in tallied(connection)] == [
        ("lamp/a", 4),
        ("lamp/b", 4),
        ("lamp/c", 1),
        ("lamp/d", 2),
    ]


def test_a_projector_rests_while_appends_keep_it_and_goes_on_afterwards(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 3)
    with Projector(log, [TALLY, IN_STATE]) as projector:
        attach(log, TALLY)
        attach(log, IN_STATE)
        lamps(log, 20)
        assert projector.wait_for(log.bound(), 10)
        assert tallied(connection) == counted(connection)
        assert states(connection) == states_by_hand(log)
        assert detach(log, "tally")
        assert detach(log, IN_STATE)
        assert not detach(log, TALLY)
        assert effects(connection) == []
        lamps(log, 25)
        assert projector.wait_for(log.bound(), 10)
    assert tallied(connection) == counted(connection)
    assert states(connection) == states_by_hand(log)
    told = connection.execute("SELECT position, events FROM ledger.view_copies WHERE view = 'tally'")
    assert told.fetchall() == [(log.bound(), sum(row[1] for row in counted(connection)))]


def test_a_view_that_fails_refuses_the_append_and_parks_the_event_when_it_is_detached(
    log: Ledger, connection: Connection
) -> None:
    attach(log, RATIO)
    log.append("lamp/a", LampRead(value=4))
    with pytest.raises(EffectFailed, match="'view ratio' refused the append: division by zero") as caught:
        log.append("lamp/a", LampRead(value=0))
    assert caught.value.effect == "view ratio"
    log.append("lamp/b", LampRead(value=5))

    detach(log, "ratio")
    log.append("lamp/a", LampRead(value=0))
    log.append("lamp/b", LampRead(value=10))
    Projector(log, [RATIO]).catch_up()
    shown = "SELECT stream, value FROM ledger_views.ratio ORDER BY 1, 2"
    assert connection.execute(shown).fetchall() == [("lamp/a", 25), ("lamp/b", 10), ("lamp/b", 20)]
    assert connection.execute("SELECT stream FROM ledger.view_parked").fetchall() == [("lamp/a",)]
    with pytest.raises(Refused, match="has 1 parked streams"):
        attach(log, RATIO)
    assert effects(connection) == []


def test_a_transaction_with_an_old_snapshot_is_refused_instead_of_missing_the_change(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    user = connect()
    user.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    user.execute("SELECT count(*) FROM ledger.events")
    attach(log, TALLY)
    with pytest.raises(LedgerBusy, match="could not serialize"), log.join(user) as joined:
        joined.append("lamp/a", LampRead())
    user.rollback()
    with log.join(user) as joined:
        joined.append("lamp/a", LampRead())
    user.commit()
    assert tallied(connection) == counted(connection)

    user.execute("SELECT count(*) FROM ledger.events")
    swap(log, TALLY)
    with pytest.raises(LedgerBusy, match="could not serialize"), log.join(user) as joined:
        joined.append("lamp/b", LampRead())
    user.rollback()

    user.execute("SELECT count(*) FROM ledger.events")
    detach(log, TALLY)
    with log.join(user) as joined:
        joined.append("lamp/c", LampRead())
    user.commit()
    Projector(log, [TALLY]).catch_up()
    assert tallied(connection) == counted(connection) != []


def test_an_append_that_is_held_open_makes_attaching_give_up_and_leaves_nothing(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    user = connect()
    with log.join(user) as joined:
        joined.append("lamp/a", LampMade())
    with pytest.raises(LedgerBusy, match="an append stays open"):
        attach(log, TALLY, timeout=0.3)
    assert effects(connection) == []
    user.commit()
    attach(log, TALLY)
    with log.join(user) as joined:
        joined.append("lamp/b", LampMade())
    began = time.monotonic()
    with pytest.raises(LedgerBusy, match="stays locked by an append or a projector"):
        detach(log, TALLY, timeout=0.3)
    log.append("lamp/c", LampMade())
    assert time.monotonic() - began < 20
    user.commit()
    assert detach(log, TALLY)
    Projector(log, [TALLY]).catch_up()
    assert tallied(connection) == counted(connection)


def test_moves_that_are_declared_late_are_learned_while_appends_keep_it(
    log: Ledger, connection: Connection
) -> None:
    attach(log, IN_STATE)
    log.append("torch/a", Body("torch.lit", 1, "{}"))
    log.append("lamp/a", LampMade())
    announce_statuses(log, {"torch.lit": TopicStatus("lit")})
    log.append("torch/b", Body("torch.lit", 1, "{}"))
    assert [row[0] for row in states(connection)] == ["lamp/a", "torch/b"]
    Projector(log, [IN_STATE]).catch_up()
    assert [row[:2] for row in states(connection)] == [
        ("lamp/a", "made"),
        ("torch/a", "lit"),
        ("torch/b", "lit"),
    ]
    detach(log, IN_STATE)
    Projector(log, [IN_STATE]).catch_up()
    assert len(states(connection)) == 3


def test_what_only_an_append_could_not_do_is_refused_when_it_is_attached(
    log: Ledger, connection: Connection
) -> None:
    class Unqualified(View):
        name = "unqualified"
        tables = "CREATE TABLE {unqualified} (stream text)"
        statements = ("INSERT INTO {unqualified} SELECT b.stream FROM {batch} b, lists_of_mine m",)
        inline = True

    KNOWN.views.pop("unqualified")
    with psycopg.connect(log.address.conninfo, autocommit=True) as user:
        user.execute("CREATE TABLE public.lists_of_mine (); GRANT SELECT ON public.lists_of_mine TO PUBLIC")
    with pytest.raises(ViewFailed, match='relation "lists_of_mine" does not exist, when an append runs it'):
        attach(log, Unqualified())
    assert effects(connection) == []
    assert log.append("lamp/a", LampMade()).version == 1


def test_only_a_view_that_says_so_can_be_attached(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tally, "inline", False)
    with pytest.raises(BadInput, match="does not declare `inline = True`"):
        attach(log, TALLY)
    monkeypatch.setattr(Tally, "apply", lambda self, batch: ())
    with pytest.raises(BadInput, match="needs Python"):
        attach(log, TALLY)


def test_two_cannot_attach_one_view_at_once(log: Ledger, connection: Connection) -> None:
    connection.execute("SET ROLE ledger_projector")
    connection.execute("SELECT pg_advisory_lock(ledger.lock_class()::integer + 196608, hashtext('tally'))")
    with pytest.raises(BeingBuilt):
        attach(log, TALLY)
    with pytest.raises(BeingBuilt):
        detach(log, TALLY)


@pytest.mark.parametrize("step", ["_outlive_writers", "_begin"])
def test_attaching_that_is_broken_off_leaves_a_follower(
    log: Ledger, connection: Connection, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attaching, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        attach(log, TALLY)
    monkeypatch.undo()
    assert effects(connection) == []
    log.append("lamp/a", LampMade())
    Projector(log, [TALLY]).catch_up()
    assert tallied(connection) == counted(connection)


def test_a_switched_copy_is_kept_by_appends_at_once(log: Ledger, connection: Connection) -> None:
    attach(log, TALLY)
    lamps(log, 3)
    number = swap(log, TALLY)
    lamps(log, 6)
    assert tallied(connection) == counted(connection)
    with projecting(log) as other:
        inline.make_effect(Copies(other, "ledger"), TALLY, number)
    lamps(log, 6)
    assert tallied(connection) == counted(connection)


def test_a_copy_that_was_not_made_ready_refuses_appends_instead_of_missing_them(
    log: Ledger, connection: Connection
) -> None:
    attach(log, TALLY)
    with projecting(log) as other:
        number = Copies(other, "ledger").begin(TALLY).number
        other.execute("UPDATE ledger.views SET live = %s WHERE name = 'tally'", (number,))
    with pytest.raises(EffectFailed, match="copy 2 of view tally was not made ready"):
        log.append("lamp/a", LampMade())

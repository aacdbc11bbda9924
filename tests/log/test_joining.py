"""Joining: appends that commit with the user's own rows, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from ledger import (
    NEW,
    AlreadyOpen,
    BadBody,
    BadInput,
    CommandReused,
    Guard,
    GuardFailed,
    Ledger,
    MoveNotAllowed,
    ReadOnly,
    StreamConflict,
    acting,
)
from tests.lamp import LampMade, LampRead, OpenLamp

Connection = psycopg.Connection[Any]
Connect = Callable[..., Connection]


def put(connection: Connection, item: str = "lamp") -> None:
    connection.execute("INSERT INTO public.shelf VALUES (%s)", (item,))


def items(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT item FROM public.shelf ORDER BY item").fetchall()]


def test_rows_and_events_commit_together(log: Ledger, user: Connection, connection: Connection) -> None:
    put(user)
    with log.join(user) as joined:
        joined.append("lamp/a", LampMade(), LampRead())
        with joined.open(OpenLamp, "b") as lamp:
            lamp.make(40)
        assert joined.appended is None
    assert joined.appended is not None
    assert joined.appended.versions == {"lamp/a": 2, "lamp/b": 1}
    assert (lamp.version, lamp.state.made_at) == (1, joined.appended.recorded_at)
    assert (log.streams(), items(connection)) == ([], [])
    user.commit()
    assert ([info.version for info in log.streams()], items(connection)) == ([2, 1], ["lamp"])
    assert log.load(OpenLamp, "b").state == lamp.state


def test_rows_and_events_are_rolled_back_together(
    log: Ledger, user: Connection, connection: Connection
) -> None:
    put(user)
    with log.join(user) as joined:
        joined.append("lamp/a", LampMade())
    user.rollback()
    assert (log.streams(), items(connection), log.head("lamp/a")) == ([], [], None)
    assert log.append("lamp/a", LampMade(), expected=NEW).version == 1


def test_an_exception_in_the_block_records_nothing(log: Ledger, user: Connection) -> None:
    put(user)
    with pytest.raises(ZeroDivisionError), log.join(user) as joined:  # noqa: PT012
        joined.append("lamp/a", LampMade())
        1 / 0  # noqa: B018
    user.commit()
    assert (log.streams(), items(user)) == ([], ["lamp"])


def test_a_scope_that_failed_inside_is_left_out(log: Ledger, user: Connection) -> None:
    with log.join(user) as joined:
        joined.append("lamp/a", LampMade())
        with pytest.raises(MoveNotAllowed), joined.open(OpenLamp, "b") as lamp:
            lamp.switch_on()
    user.commit()
    assert [info.stream for info in log.streams()] == ["lamp/a"]


@pytest.mark.parametrize("refusal", ["conflict", "conflict of many", "guard", "command"])
def test_a_refusal_leaves_the_transaction_usable(log: Ledger, user: Connection, refusal: str) -> None:
    log.append("lamp/a", LampMade(), command="used")
    put(user)
    kind: type[Exception]
    with pytest.raises((StreamConflict, GuardFailed, CommandReused)) as caught, log.join(user) as joined:  # noqa: PT012
        if refusal == "conflict":
            kind = StreamConflict
            joined.append("lamp/a", LampRead(), expected=NEW)
        elif refusal == "conflict of many":
            kind = StreamConflict
            joined.append("lamp/b", LampRead())
            joined.append("lamp/a", LampRead(), expected=5)
        elif refusal == "guard":
            kind = GuardFailed
            joined.append("lamp/a", LampRead(), expected=Guard(frozenset({"on"})))
        else:
            kind = CommandReused
            joined.append("lamp/a", LampRead(), command="used")
    assert caught.type is kind
    put(user, "more")
    with log.join(user) as again:
        again.append("lamp/a", LampRead(), expected=1)
    user.commit()
    assert (items(user), [info.version for info in log.streams()]) == (["lamp", "more"], [2])


def test_a_connection_in_autocommit_must_have_a_transaction(log: Ledger, connection: Connection) -> None:
    with pytest.raises(
        BadInput,
        match=r"in autocommit mode and has no transaction to join: put the join inside `with "
        r"connection.transaction",
    ):
        with log.join(connection):
            pass
    with connection.transaction(), log.join(connection) as joined:
        joined.append("lamp/a", LampMade())
    assert log.load(OpenLamp, "a").version == 1


def test_a_transaction_that_ends_inside_the_block_is_noticed(log: Ledger, connection: Connection) -> None:
    connection.execute("BEGIN")
    with pytest.raises(BadInput, match="in autocommit mode and has no transaction to join"):  # noqa: PT012
        with log.join(connection) as joined:
            joined.append("lamp/a", LampMade())
            connection.execute("COMMIT")
    assert log.streams() == []


def test_a_transaction_that_has_failed_is_refused(log: Ledger, user: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        user.execute("SELECT 1/0")
    with pytest.raises(BadInput, match=r"has failed: roll it back"), log.join(user):
        pass
    user.rollback()
    with pytest.raises(BadInput, match=r"has failed: roll it back"), log.join(user) as joined:  # noqa: PT012
        joined.append("lamp/a", LampMade())
        with pytest.raises(psycopg.errors.DivisionByZero):
            user.execute("SELECT 1/0")
    user.rollback()
    assert log.streams() == []


def test_a_stream_is_opened_once_in_a_join(log: Ledger, user: Connection) -> None:
    with log.join(user) as joined:
        with joined.open(OpenLamp, "a") as lamp:
            lamp.make()
            with pytest.raises(
                AlreadyOpen, match="lamp/a is already open in this join; use the object that is open"
            ):
                joined.append("lamp/a", LampRead())
        with pytest.raises(AlreadyOpen), joined.open(OpenLamp, "a"):
            pass
        joined.append("lamp/b", LampMade())
        with pytest.raises(AlreadyOpen):
            joined.append("lamp/b", LampRead())
    user.commit()
    assert {info.stream: info.version for info in log.streams()} == {"lamp/a": 1, "lamp/b": 1}


def test_a_command_in_a_join_records_once(log: Ledger, user: Connection) -> None:
    with log.join(user) as first:
        first.append("lamp/a", LampRead(), command="c")
    user.rollback()
    for repeated in (False, True):
        put(user, str(repeated))
        with log.join(user) as joined:
            joined.append("lamp/a", LampRead(), command="c")
        user.commit()
        assert joined.appended is not None
        assert joined.appended.repeated is repeated
    assert (len(log.read("lamp/a")), items(user)) == (1, ["False", "True"])


def test_a_join_carries_the_meta_of_its_context(log: Ledger, user: Connection) -> None:
    with acting(actor="mina", correlation="c-1"), log.join(user) as joined:
        joined.append("lamp/a", LampMade())
        with joined.open(OpenLamp, "b") as lamp:
            lamp.make()
    user.commit()
    assert {found.meta.actor for found in log.log(0, log.bound())} == {"mina"}
    assert log.read("lamp/a")[0].meta.correlation == "c-1"


def test_a_join_of_nothing_records_nothing(log: Ledger, user: Connection) -> None:
    with log.join(user) as joined:
        with joined.open(OpenLamp, "a"):
            pass
    assert joined.appended is None
    with pytest.raises(BadInput, match="nothing to append"), log.join(user) as joined:
        joined.append("lamp/a")


def test_bad_input_in_a_join_leaves_the_transaction_usable(log: Ledger, user: Connection) -> None:
    put(user)
    with pytest.raises(BadBody, match="value: nan"), log.join(user) as joined:
        joined.append("lamp/a", LampRead(value=float("nan")))
    with pytest.raises(BadInput), log.join(user) as joined:
        joined.append("", LampRead())
    user.commit()
    assert (items(user), log.streams()) == (["lamp"], [])


def test_a_read_only_transaction_is_named(log: Ledger, user: Connection) -> None:
    user.read_only = True
    with (
        pytest.raises(ReadOnly, match="connect to the primary, or end read-only mode"),
        log.join(user) as joined,
    ):
        joined.append("lamp/a", LampMade())
    user.rollback()
    assert log.streams() == []


def test_an_append_is_durable_whatever_the_session_says(log: Ledger, user: Connection) -> None:
    for setting, after in (
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply",) * 2,
    ):
        for events in (1, 2):
            user.execute("SELECT set_config('synchronous_commit', %s, false)", (setting,))
            with log.join(user) as joined:
                joined.append(f"lamp/{setting}{events}", *[LampRead()] * events, expected=NEW)
            assert user.execute("SHOW synchronous_commit").fetchone() == (after,)
            user.commit()
            assert user.execute("SHOW synchronous_commit").fetchone() == (setting,)


@pytest.mark.parametrize("events", [1, 3])
def test_a_connection_may_be_set_up_as_the_user_likes(log: Ledger, connect: Connect, events: int) -> None:
    odd = connect(
        row_factory=dict_row,
        cursor_factory=psycopg.ClientCursor,
        client_encoding="LATIN1",
        prepare_threshold=None,
    )
    odd.execute("SET TimeZone = 'Asia/Kolkata'; SET DateStyle = 'German'; SET bytea_output = 'escape'")
    odd.execute("SET standard_conforming_strings = on; SET search_path = pg_temp")
    with log.join(odd) as joined:
        joined.append("lamp/a", *[LampRead(value="é")] * events, expected=NEW)
        with joined.open(OpenLamp, "b") as lamp:
            lamp.make()
    with log.join(odd) as joined, joined.open(OpenLamp, "b") as lamp:
        lamp.switch_on()
    odd.commit()
    assert [found.event for found in log.read("lamp/a")] == [LampRead(value="é")] * events
    assert log.load(OpenLamp, "b").state == lamp.state
    with pytest.raises(BadInput), log.join(odd) as joined:
        joined.append("lamp/c", LampRead(value="🔬"), expected=NEW)


def test_one_append_alone_in_a_join(log: Ledger, user: Connection) -> None:
    """The lean path for a single event at an exact version, with state and status, on a user's connection."""
    for act in ("make", "switch_on"):
        with log.join(user) as joined, joined.open(OpenLamp, "a") as lamp:
            getattr(lamp, act)()
        user.commit()
    head = log.head("lamp/a")
    assert head is not None
    assert (head.version, head.state_version, head.status) == (2, 2, "on")

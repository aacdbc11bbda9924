"""`/events/in`: a pong and the answered close are receipts; no client disturbs another."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, Pong, TextMessage

from gateway.http.bodies import MAX_BODY
from gateway.http.runs import events_in, events_intake
from ledger.embedded import Embedded
from ledger.tokens import Role
from tests.gateway.conftest import eventually
from tests.runs.raw_socket import RawSocket
from tests.runs.sockets.conftest import Served


def reading(lamp: str, value: Any) -> dict[str, Any]:
    return {"lamp": lamp, "value": value}


def text(lamp: str, value: Any) -> TextMessage:
    return TextMessage(data=json.dumps(reading(lamp, value)))


# Receipts


def test_a_pong_comes_after_the_frames_before_it_are_committed(served: Served, lamp: str) -> None:
    one = served.socket()
    one.put(*[text(lamp, n) for n in range(1200)], Ping(payload=b"a"), text(lamp, "later"))
    assert isinstance(one.event(), Pong)
    assert served.read(lamp)[:1200] == [*range(1200)]
    assert one.close() == 1000


def test_the_close_is_answered_after_a_commit(served: Served, lamp: str) -> None:
    one = served.socket()
    one.put(*[text(lamp, n) for n in range(700)], CloseConnection(code=1000))
    assert one.closed() == 1000
    assert served.read(lamp) == [*range(700)]


def test_all_at_once_from_the_first_message_on(served: Served, lamp: str) -> None:
    """A client that does not wait for its welcome gets no receipt earlier either."""
    one = RawSocket(served.url, "/events/in")
    login = TextMessage(data='{"type": "auth", "token": null}')
    one.put(
        Ping(payload=b"0"), login, text(lamp, 1), Ping(payload=b"1"), text(lamp, 2), CloseConnection(1000)
    )
    assert one.closed() == 1000
    assert served.read(lamp) == [1, 2]


def test_pings_without_frames_are_answered_at_once(served: Served) -> None:
    one = RawSocket(served.url, "/events/in")
    one.ping(b"before the login")
    one.log_in()
    one.ping(b"after it")


def test_many_sockets_share_commits_and_each_keeps_its_order(served: Served, lamp: str) -> None:
    begun = len(served.record.commits)
    together = threading.Barrier(30)

    def send(nth: int) -> None:
        one = served.socket()
        together.wait(60)
        for value in range(20):
            one.send(reading(f"{lamp}-{nth}", value))
        assert one.close() == 1000

    threads = [threading.Thread(target=send, args=(nth,)) for nth in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [served.read(f"{lamp}-{nth}") for nth in range(30)] == [[*range(20)]] * 30
    commits = served.record.commits[begun:]
    assert sum(commits) == 600
    assert len(commits) < 300
    assert max(commits) <= events_intake.MOST


def test_frames_are_recorded_within_the_gathering_also_if_nobody_asks(served: Served, lamp: str) -> None:
    one = served.socket()
    one.send(reading(lamp, 1))
    eventually(lambda: served.log.head(f"lamp/{lamp}"))


def test_a_cut_connection_loses_nothing_that_arrived(served: Served, lamp: str) -> None:
    one = served.socket()
    one.put(*[text(lamp, n) for n in range(5)])
    one.socket.close()
    eventually(lambda: len(served.read(lamp)) == 5)


# Frames that are no events


@pytest.mark.parametrize("wrong", ["{", "[]", "null", "", "NaN", '{"value": 1}', "[" * 100_000, b"{}"])
def test_what_is_no_event_ends_its_socket_and_gets_no_receipt(
    wrong: str | bytes, served: Served, lamp: str, caplog: pytest.LogCaptureFixture
) -> None:
    kind = BytesMessage if isinstance(wrong, bytes) else TextMessage
    other, one = served.socket(), served.socket()
    with caplog.at_level(logging.WARNING, "gateway.http"):
        one.put(text(lamp, 1), kind(data=wrong), Ping(payload=b"x"))  # type: ignore[arg-type]
        other.send(reading(lamp, 2))
        event = one.event()
        other.ping()
    assert isinstance(event, CloseConnection), "no pong before it"
    assert event.code == 1007
    assert sorted(map(str, served.read(lamp))) == ["1", "2"]
    assert "sent no event" in caplog.text


def test_a_defect_refuses_its_event_and_no_other(served: Served, lamp: str) -> None:
    one, other = served.socket(), served.socket()
    other.put(*[text(lamp, n) for n in range(3)])
    one.put(text(lamp, "defect"), CloseConnection(code=1000))
    other.ping()
    assert one.closed() == 1007
    assert served.read(lamp) == [0, 1, 2]


def test_a_frame_that_is_too_large_ends_its_socket(served: Served, lamp: str) -> None:
    one = served.socket()
    one.send(reading(lamp, 1))
    one.ping()
    one.put(Message(data="x" * (MAX_BODY + 1)))
    assert one.closed() == 1009
    assert served.socket().close() == 1000


# The ledger is away


@contextmanager
def away(served: Served, postgres: Embedded) -> Iterator[None]:
    """The database refuses connections while the block runs."""
    name = f"sockets_{os.getpid()}"
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        try:
            yield
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))


def test_frames_wait_for_a_ledger_that_is_away(
    served: Served, postgres: Embedded, lamp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pong while nothing can be committed; a socket that waits too long is told to come again."""
    monkeypatch.setattr(events_in, "LOOK", 1000)
    patient = served.socket()
    monkeypatch.setattr(events_in, "LOOK", 0.02)
    monkeypatch.setattr(events_in, "PATIENCE", 0.1)
    hasty = served.socket()
    with away(served, postgres):
        patient.put(text(lamp, "patient"), Ping(payload=b"x"))
        hasty.put(text(lamp, "hasty"), Ping(payload=b"x"))
        assert isinstance(event := hasty.event(), CloseConnection)
        assert event.code == 1013
        patient.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            patient.event()
    patient.socket.settimeout(30)
    assert isinstance(patient.event(), Pong)
    assert {"patient", "hasty"} == {*served.read(lamp)}, "what arrived is recorded all the same"


def test_no_more_is_read_than_there_is_room_for(
    served: Served, postgres: Embedded, lamp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_intake, "ROOM", 100_000)
    one = served.socket()
    one.socket.settimeout(0.5)
    many = 0
    with away(served, postgres):
        try:
            while many < 1000:
                one.put(text(lamp, "x" * 50_000))
                many += 1
        except TimeoutError:
            pass
    assert many < 1000, "the client was held back"
    one.socket.settimeout(30)
    one.socket.close()
    eventually(lambda: len(served.read(lamp)) >= many, 30)


# Who may


@pytest.mark.parametrize("token", ["wrong", "user:wrong", 7, [], "x" * 50_000])
def test_a_wrong_token_is_refused(token: Any, served: Served) -> None:
    one = RawSocket(served.url, "/events/in")
    one.send({"type": "auth", "token": token})
    assert one.closed() == 1008


@pytest.mark.parametrize("first", ["{", "[]", '{"type": "hello"}', b"x"])
def test_who_does_not_log_in_first_is_refused(first: str | bytes, served: Served) -> None:
    one = RawSocket(served.url, "/events/in")
    one.put(Message(data=first))
    assert one.closed() == 1008


def test_the_token_says_who_records_and_whether_it_may(served: Served, lamp: str) -> None:
    one = RawSocket(served.url, "/events/in")
    one.send({"type": "auth", "token": f"laptop:{served.tokens[Role.READER]}"})
    assert one.closed() == 1008
    two = served.socket(f"laptop:{served.tokens[Role.OPERATOR]}")
    two.send(reading(lamp, 1))
    two.ping()
    assert served.record.actors[-1] == "operator"


def test_clients_of_before_come_without_the_subprotocol(served: Served, lamp: str) -> None:
    one = RawSocket(served.url, "/events/in", protocol=None)
    assert (one.status, one.subprotocol) == (101, None)
    one.send(reading(lamp, 1))
    one.ping()
    assert served.read(lamp) == [1]
    wrong = RawSocket(served.url, "/events/in", protocol=None, Authorization="Bearer wrong")
    assert wrong.status == 403

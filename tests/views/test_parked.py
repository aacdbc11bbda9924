"""An event that fails in a view parks its stream and nothing else; what is nobody's fault parks nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import Append, DefinitionChanged, Ledger, StreamNotFound, ViewFailed
from ledger.log.append import body_of
from projections.engine import apply
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.refold import retry
from projections.engine.view import View
from projections.engine.watch import parked as parked_streams
from tests.faults.conftest import eventually
from tests.lamp import LampMade
from tests.views.views_of_tests import (
    ADD_WATTS,
    WATTS,
    Declare,
    declare,
    parked,
    summed,
    watts,
    watts_by_hand,
)

assert declare
Connection = psycopg.Connection[Any]
ALLOWED = (
    "CREATE OR REPLACE FUNCTION {views}.allowed(w numeric) RETURNS numeric LANGUAGE plpgsql AS "
    "$$BEGIN IF w < LIMIT THEN RAISE EXCEPTION 'watts of %%', w; END IF; RETURN w; END$$"
)
POSITIVE: dict[str, Any] = {
    "statements": (
        ADD_WATTS.replace("(data ->> 'watts')::numeric", "{views}.allowed((data ->> 'watts')::numeric)"),
    ),
    "reads": ALLOWED.replace("LIMIT", "0").replace("%%", "%"),
}
LATE = WATTS.replace(")", ", UNIQUE (many) DEFERRABLE INITIALLY DEFERRED)")


def made(log: Ledger, stream: str, *watts: float) -> int:
    """Events of one append; the position of the last."""
    return log.append(stream, *[LampMade(watts=w) for w in watts]).last_position


def try_again(log: Ledger, view: View, stream: str) -> bool:
    with projecting(log) as connection:
        copies = Copies(connection, log.schema)
        live = copies.live(view)
        assert live is not None
        return retry(copies, view, live.number, stream)


def repair(connection: Connection, least: int) -> None:
    """Let the view take what is not below this."""
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_projector")
        text = ALLOWED.replace("{views}", "ledger_views").replace("LIMIT", str(least)).replace("%%", "%")
        connection.execute(text)


@pytest.mark.parametrize("python", [False, True])
def test_a_bad_event_in_a_big_batch_parks_its_stream_only(
    log: Ledger, connection: Connection, declare: Declare, python: bool
) -> None:
    view = declare(apply=lambda self, batch: summed(batch)) if python else declare(**POSITIVE)
    for n in range(120):
        made(log, f"lamp/{n % 40}", n)
    made(log, "lamp/bad", 5)
    bad = made(log, "lamp/bad", -7)
    made(log, "lamp/bad", 9)
    end = made(log, "lamp/3", 1)
    assert Projector(log, [view]).catch_up() == {"watts": end}
    expected = watts_by_hand(connection, without=("lamp/bad",)) | {"lamp/bad": (5, 1)}
    assert (watts(connection), parked(connection)) == (expected, [("lamp/bad", bad, 1)])
    (told,) = parked_streams(log)
    assert told.event["data"]["watts"] == -7
    assert told.event["version"] == 2
    wrong = "ValueError: negative\\x00 watts \\ud800: -7.0" if python else "watts of -7"
    assert wrong in told.error
    later = made(log, "lamp/bad", 11)
    assert Projector(log, [view]).catch_up() == {"watts": later}
    assert watts(connection) == expected


def test_events_of_one_append_go_their_own_ways(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare(**POSITIVE)
    appends = [
        Append(stream, [body_of(LampMade(watts=w))])
        for stream, w in (("lamp/a", 1), ("lamp/b", -1), ("lamp/c", 3))
    ]
    log.append_all(appends)
    Projector(log, [view]).catch_up()
    assert watts(connection) == {"lamp/a": (1, 1), "lamp/c": (3, 1)}
    assert [stream for stream, _, _ in parked(connection)] == ["lamp/b"]


def test_many_bad_streams_at_any_place_of_a_batch(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare(**POSITIVE)
    bad = {f"lamp/{n}" for n in (0, 1, 17, 18, 30, 63)}
    for n in range(128):
        stream = f"lamp/{n % 64}"
        made(log, stream, -1 if stream in bad and n < 64 else 2)
    Projector(log, [view]).catch_up()
    assert {stream for stream, _, _ in parked(connection)} == bad
    assert watts(connection) == watts_by_hand(connection, without=tuple(bad))


def test_a_stream_is_tried_again_in_order(log: Ledger, connection: Connection, declare: Declare) -> None:
    view = declare(**POSITIVE)
    first = made(log, "lamp/a", -1, 2)
    made(log, "lamp/b", 3)
    second = made(log, "lamp/a", 4, -99, 6)
    Projector(log, [view]).catch_up()
    assert parked(connection) == [("lamp/a", first - 1, 1)]
    assert not try_again(log, view, "lamp/a")
    assert parked(connection) == [("lamp/a", first - 1, 2)]
    repair(connection, -50)
    assert not try_again(log, view, "lamp/a")
    assert parked(connection) == [("lamp/a", second - 1, 3)]
    assert watts(connection)["lamp/a"] == (5, 3)
    repair(connection, -100)
    assert try_again(log, view, "lamp/a")
    assert (parked(connection), watts(connection)) == ([], watts_by_hand(connection))
    made(log, "lamp/a", 7)
    Projector(log, [view]).catch_up()
    assert watts(connection) == watts_by_hand(connection)
    with pytest.raises(StreamNotFound):
        try_again(log, view, "lamp/a")


def test_what_another_definition_made_is_not_tried_again(
    log: Ledger, declare: Declare, connection: Connection
) -> None:
    made(log, "lamp/a", -1)
    Projector(log, [declare(**POSITIVE)]).catch_up()
    with pytest.raises(DefinitionChanged):
        try_again(log, declare(), "lamp/a")
    assert len(parked(connection)) == 1


def test_it_is_tried_again_while_a_projector_and_writers_go_on(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare(**POSITIVE)
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            made(log, "lamp/a" if n % 2 else f"lamp/{n % 7}", 1)

    writer = threading.Thread(target=write)
    made(log, "lamp/a", -1)
    with Projector(log, [view]) as projector:
        writer.start()
        try:
            eventually(lambda: parked(connection) and len(watts(connection)) > 3)
            repair(connection, -1)
            assert try_again(log, view, "lamp/a")
        finally:
            stop.set()
            writer.join()
        assert projector.wait_for(log.bound())
    assert (parked(connection), watts(connection)) == ([], watts_by_hand(connection))


def test_a_check_at_the_end_of_a_transaction_finds_its_event(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare(tables=LATE, statements=(ADD_WATTS.replace("count(*)", "sum((data->>'watts')::numeric)"),))
    for stream, w in (("lamp/a", 1), ("lamp/b", 2), ("lamp/c", 1), ("lamp/d", 4)):
        made(log, stream, w)
    Projector(log, [view]).catch_up()
    assert [stream for stream, _, _ in parked(connection)] == ["lamp/c"]
    assert set(watts(connection)) == {"lamp/a", "lamp/b", "lamp/d"}


def test_a_view_in_which_too_much_fails_is_stopped(
    log: Ledger, connection: Connection, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "MOST_PARKED", 3)
    view = declare(**POSITIVE)
    for n in range(5):
        made(log, f"lamp/{n}", -1)
    with pytest.raises(ViewFailed, match="3 streams are parked, and another one fails: watts of -1"):
        Projector(log, [view]).catch_up()
    assert connection.execute("SELECT position FROM ledger.view_copies").fetchall() == [(0,)]


def wrong_value(_: View, batch: Any) -> list[Any]:
    from projections.engine.view import Statement

    texts = {e.stream: "a\0b" if e.stream == "lamp/nul" else "\ud800" for e in batch.events}
    return [
        Statement("INSERT INTO {watts} VALUES (%(s)s, %(t)s::text::numeric, 1)",
                  {"s": s, "t": "1" if s == "lamp/a" else t})
        for s, t in texts.items()
    ]  # fmt: skip


def test_a_value_that_cannot_be_sent_is_the_events_fault(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    for stream in ("lamp/nul", "lamp/a", "lamp/half"):
        made(log, stream, 1)
    Projector(log, [declare(apply=wrong_value)]).catch_up()
    assert [stream for stream, _, _ in parked(connection)] == ["lamp/nul", "lamp/half"]
    assert list(watts(connection)) == ["lamp/a"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"statements": ("INSRT INTO {watts} SELECT stream FROM {batch} b",)}, "syntax error"),
    (
        {"statements": ("INSERT INTO nowhere SELECT stream FROM {batch} b",)},
        'relation "nowhere" does not exist',
    ),
    ({"statements": ("DELETE FROM {ledger}.events",)}, "permission denied"),
    ({"statements": ("SELECT %(nothing)s FROM {batch} b",)}, "query parameter missing: nothing"),
    ({"statements": ("SELECT 'a%' FROM {batch} b",)}, "placeholder"),
    ({"statements": ("SELECT 1 FROM {batch} b; SELECT 2",)}, "multiple commands"),
    ({"apply": lambda self, batch: None}, "apply must return Statements"),
    ({"apply": lambda self, batch: ["SELECT 1"]}, "apply must return Statements"),
    ({"tables": "CREATE TABLE {watts} (stream nonsense)"}, 'type "nonsense" does not exist'),
    ({"tables": "CREATE TABLE {watts} (stream int DEFAULT 'x')"}, "invalid input syntax"),
    ({"indexes": "CREATE INDEX ON {watts} (nonsense)"}, 'column "nonsense" does not exist'),
    ({"reads": "CREATE VIEW {views}.w AS SELECT nonsense FROM {watts}"}, 'column "nonsense" does not exist'),
]


@pytest.mark.parametrize(("parts", "says"), WRONG)
def test_a_view_that_is_wrong_for_every_event_is_stopped_and_no_other(
    log: Ledger,
    connection: Connection,
    declare: Declare,
    caplog: pytest.LogCaptureFixture,
    parts: dict[str, Any],
    says: str,
) -> None:
    caplog.set_level(logging.CRITICAL, "projections.engine.projector")
    wrong = declare(**parts)
    right = declare("tens", tables=WATTS.replace("{watts}", "{tens}"),
                    statements=(ADD_WATTS.replace("{watts}", "{tens}"),))  # fmt: skip
    made(log, "lamp/a", 1)
    projector = Projector(log, [wrong, right])
    with pytest.raises(ViewFailed, match="view watts fails: ") as failed:
        projector.catch_up()
    assert says in str(failed.value)
    assert projector.positions["tens"] == 1
    assert parked(connection) == []
    assert connection.execute("SELECT count(*) FROM ledger_views.tens").fetchone() == (1,)


def test_what_is_not_the_events_fault_does_not_park(
    log: Ledger, connection: Connection, connect: Callable[..., Connection], declare: Declare
) -> None:
    view = declare()
    made(log, "lamp/a", 1)
    Projector(log, [view]).catch_up()
    blocker = connect(autocommit=False)
    blocker.execute("LOCK TABLE ledger_views.watts_1 IN EXCLUSIVE MODE")
    waiting = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE application_name = 'pledger views' AND wait_event_type = 'Lock'"
    )
    with Projector(log, [view]) as projector:
        made(log, "lamp/b", 2)
        for function in ("pg_cancel_backend", "pg_terminate_backend"):
            eventually(lambda: connection.execute(waiting).fetchall())
            ((pid,),) = connection.execute(waiting).fetchall()
            connection.execute(f"SELECT {function}(%s)", [pid])
            eventually(lambda pid=pid: connection.execute(waiting).fetchall() not in ([], [(pid,)]))  # type: ignore[misc]
        blocker.rollback()
        assert projector.wait_for(log.bound())
        assert projector.stopped == {}
    assert (parked(connection), watts(connection)) == ([], watts_by_hand(connection))

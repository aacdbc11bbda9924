"""Appends to one stream take shorter ways than appends to many, and leave the same behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

import ledger
from ledger import ANY, EXISTS, NEW, Append, Appended, Body, Exact, Guard, Ledger, Refused, StreamConflict
from ledger.log.appender import _send_many, send
from tests.log.test_laws import SOME

_numbers = count(1)
BODY = Body("note.made", 1, "{}")
ON = Guard(frozenset({"on"}))
Connection = psycopg.Connection[Any]

EXPECTED = st.sampled_from(
    [ANY, ANY, EXISTS, NEW, "now", "now", "behind", Guard(), Guard(frozenset({"on", "off"})),
     Guard(frozenset()), Guard(token=7), Guard(frozenset({"on"}), 8), ON]
)  # fmt: skip
STEPS = st.lists(
    st.tuples(
        EXPECTED,
        st.sampled_from([1, 1, 1, 2, 3]),  # events
        st.sampled_from([True, True, True, False]),  # head
        st.sampled_from([None, "on", "off"]),  # status
        st.sampled_from([None, None, "now", "stale"]),  # what a state was folded from
        st.sampled_from([None, None, None, None, 0, 7, 8]),  # set_token
        st.sampled_from([None, None, None, None, "forget the head", "join"]),
    ),
    max_size=12,
)
HEAD = """
SELECT version, status, token, state::text, state_version, state_schema FROM ledger.heads WHERE stream = %s
"""
EVENTS = """
SELECT version, schema, topic, data::text, raw, meta::text
  FROM ledger.events WHERE stream = %s ORDER BY position
"""


@pytest.fixture
def admin(admin_dsn: str) -> Any:
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def users(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def head_of(connection: Connection, stream: str) -> Any:
    """What the head says; one that says no more than the version is as good as none."""
    row = connection.execute(HEAD, [stream]).fetchone()
    return None if row and row[1:] == (None, None, None, 0, None) else row


def events_of(connection: Connection, stream: str) -> list[tuple[Any, ...]]:
    return connection.execute(EVENTS, [stream]).fetchall()  # type: ignore[arg-type]


def outcome(way: Callable[[Append], Appended], append: Append) -> Any:
    try:
        done = way(append)
    except Refused as error:
        return type(error), str(error).replace(append.stream, "S")
    return done.version, done.last_position - done.first_position, done.repeated


def append_of(step: Sequence[Any], number: int, stream: str, version: int) -> Append:
    wanted, events, head, status, based, token, _ = step
    known = {"now": Exact(version), "behind": Exact(max(0, version - 1))}
    return Append(
        stream, [Body("t", 1, f'{{"n": {number}, "i": {i}}}') for i in range(events)],
        known[wanted] if isinstance(wanted, str) else wanted, status=status, set_token=token, head=head,
        state=based and f'{{"n": {number}}}', base=version if based == "now" else version // 2,
        state_schema=based and 3,
    )  # fmt: skip


@SOME
@given(STEPS)
def test_every_way_to_one_stream_leaves_what_the_way_to_many_leaves(
    log: Ledger, admin: Connection, users: Connection, steps: Any
) -> None:
    """The same sequence on two streams: by the way that `send` chooses, and by append_many."""
    one, other = (f"short/{next(_numbers)}" for _ in range(2))

    def short(append: Append) -> Appended:
        return log.append_all([append])

    def joined(append: Append) -> Appended:
        with users.transaction():
            users.execute("SELECT 1")
            try:
                return send(users, "ledger", [append], "{}", None)
            finally:
                assert users.info.transaction_status == TransactionStatus.INTRANS

    def long(append: Append) -> Appended:
        return _send_many(users, "ledger", [append], "{}", None, None)

    for number, step in enumerate(steps):
        if step[-1] == "forget the head":
            admin.execute("DELETE FROM ledger.heads WHERE stream = ANY (%s)", [[one, other]])
        append = append_of(step, number, one, len(events_of(admin, one)))
        found = outcome(joined if step[-1] == "join" else short, append)
        assert found == outcome(long, append._replace(stream=other))
        assert head_of(admin, one) == head_of(admin, other)
    ours, theirs = events_of(admin, one), events_of(admin, other)
    assert [row[:5] for row in ours] == [row[:5] for row in theirs]
    assert [row[0] for row in ours] == list(range(1, len(ours) + 1))


@pytest.mark.parametrize("expected", [ANY, EXISTS, ON, Guard(token=7), Exact(1)])
def test_a_head_behind_its_events_is_never_believed(log: Ledger, admin: Connection, expected: Any) -> None:
    """The lean path changes the head first; where that was behind, nothing of the change stays."""
    log.append_all([Append("a", [BODY], NEW, status="on", set_token=7)])
    log.append("a", BODY, head=False)
    before = head_of(admin, "a")
    assert before == (1, "on", 7, None, 0, None)
    append = Append("a", [BODY], expected, status="off")
    if expected in (ANY, EXISTS):
        assert log.append_all([append]).version == 3
        assert head_of(admin, "a") == (3, "off", 7, None, 0, None)
    else:
        with pytest.raises(Refused):
            log.append_all([append])
        assert head_of(admin, "a") == before
        assert log.append_all([append._replace(expected=Exact(2))]).version == 3


def test_a_refusal_in_a_transaction_leaves_it_usable(log: Ledger, users: Connection) -> None:
    log.append("a", BODY)
    log.append("a", BODY, head=False)
    with users.transaction():
        for expected in (Exact(1), NEW, ON):
            with pytest.raises(Refused):
                send(users, "ledger", [Append("a", [BODY], expected)], "{}", None)
        assert send(users, "ledger", [Append("a", [BODY])], "{}", None).version == 3
    assert [event.version for event in log.read("a")] == [1, 2, 3]


@pytest.mark.parametrize("head", [True, False, None])
def test_many_writers_of_one_stream_leave_no_gap(
    log: Ledger, dsn: str, admin: Connection, head: bool | None
) -> None:
    """Any version, exact, several events, in a transaction, by append_many; None: with heads and without."""
    each, writers = 60, 4

    def write(writer: int) -> int:
        chance, recorded = random.Random(writer), 0
        with psycopg.connect(dsn, autocommit=True) as users:
            for _ in range(each):
                written = chance.choice([1, 1, 1, 2])
                append = Append("a", [BODY] * written, head=chance.random() < 0.7 if head is None else head)
                way = chance.randrange(5)
                try:
                    if way == 0:
                        last = log.read("a", backwards=True, limit=1)
                        log.append_all([append._replace(expected=Exact(last[0].version if last else 0))])
                    elif way == 1:
                        _send_many(users, "ledger", [append], "{}", None, None)
                    elif way == 2:
                        with users.transaction():
                            send(users, "ledger", [append], "{}", None)
                    else:
                        log.append_all([append])
                    recorded += written
                except (StreamConflict, ledger.StreamNotFound):
                    pass
        return recorded

    with ThreadPoolExecutor(writers) as pool:
        recorded = sum(pool.map(write, range(writers)))
    assert [row[0] for row in events_of(admin, "a")] == list(
        range(1, recorded + 1)
    )  # in the order of positions
    assert recorded > writers * each // 2

"""Appends that share a commit: each has the outcome that it would have alone, whatever the others have."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, LiteralString

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ledger
from ledger import (
    ANY,
    EXISTS,
    NEW,
    Append,
    Appended,
    BadInput,
    Body,
    Exact,
    Expected,
    Guard,
    Ledger,
    LedgerBusy,
    LedgerError,
    StreamConflict,
)
from ledger.log import committer
from ledger.log.append import append_of
from ledger.log.committer import Waiting
from tests.faults.conftest import eventually
from tests.lamp import LampRead, OpenLamp
from tests.log.test_hostile_writers import BROKEN
from tests.log.test_laws import SOME

Connection = psycopg.Connection[Any]
_numbers = count(1)
COMMITS = "SELECT count(DISTINCT xmin::text) FROM ledger.events WHERE stream LIKE %s"


def together(log: Ledger, appends: Sequence[Append], commands: Sequence[str | None] = ()) -> list[Any]:
    """What a group of these appends gives each of them: what it returns, or the error that it raises."""
    metas = [log.meta(command=command) for command in commands or [None] * len(appends)]
    group = [Waiting(append, meta) for append, meta in zip(appends, metas, strict=True)]
    log.committer._send(group)
    return [caught(lambda one=one: log.committer._result(one)) for one in group]  # type: ignore[misc]


def caught(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except LedgerError as error:
        return error


def said(result: Any) -> Any:
    """A result without the position and the time, which nobody expects."""
    if isinstance(result, Appended):
        return result.last_position - result.first_position, dict(result.versions), result.repeated
    return type(result), str(result)


# The law

EVENT = st.sampled_from(["{}", '{"n":1}'])
EXPECTED: st.SearchStrategy[Expected] = st.one_of(
    st.sampled_from([ANY, ANY, EXISTS, NEW, Guard(), Guard(token=7), Guard(frozenset({"on", ""}))]),
    st.integers(0, 4).map(Exact),
)
APPEND = st.tuples(
    st.sampled_from("abcd"),
    st.lists(EVENT, min_size=1, max_size=3),
    EXPECTED,
    st.fixed_dictionaries(
        {
            "head": st.sampled_from([True, True, True, False]),
            "status": st.sampled_from([None, "on", "off"]),
            "set_token": st.sampled_from([None, 7, 0]),
        }
    ),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries(
            {
                "state": st.sampled_from(['{"status":"on"}', '{"at":\x01}']),
                "base": st.integers(0, 4),
                "state_schema": st.integers(1, 2),
            }
        ),
    ),
    st.sampled_from([None, None, None, "c1", "c2"]),
)
SINGLE = st.tuples(
    st.sampled_from("abcdefgh"),
    EVENT.map(lambda event: [event]),
    st.one_of(st.sampled_from([ANY, EXISTS, NEW]), st.integers(0, 4).map(Exact)),
    st.fixed_dictionaries({"status": st.sampled_from([None, "on", "off"])}),
    st.one_of(
        st.just({}), st.fixed_dictionaries({"state": st.just('{"at":\x01}'), "state_schema": st.just(1)})
    ),
    st.none(),
).map(lambda one: (*one[:4], one[4] | ({"base": one[2].version} if isinstance(one[2], Exact) else {}), None))
GROUP = st.one_of(
    st.lists(APPEND, min_size=1, max_size=8),
    st.lists(SINGLE, min_size=2, max_size=8, unique_by=lambda one: one[0]),
)
"""A group of any appends, or one that append_group records."""
ROWS = """
SELECT right(stream, 1), version, topic, schema, data::text, raw, meta->>'actor', right(meta->>'command', 2)
  FROM ledger.events WHERE stream LIKE %s ORDER BY 1, 2
"""
HEADS = """
SELECT right(stream, 1), version, state_version, token, CASE WHEN state IS NOT NULL THEN state_schema END,
       status, state - 'at', state ? 'at'
  FROM ledger.heads WHERE stream LIKE %s ORDER BY 1
"""


@SOME
@given(st.lists(GROUP, min_size=1, max_size=3))
def test_a_batch_leaves_what_the_same_appends_leave_one_by_one(
    shared: Ledger, groups: list[list[Any]]
) -> None:
    """In the order of the group for each stream; streams do not see each other."""
    mark, results = next(_numbers), list[list[str]]()
    for side, send in (("x", together), ("y", one_by_one)):
        results.append([])
        for group in groups:
            group = sorted(group, key=lambda one: str(one[0]))
            appends = [
                Append(
                    f"law/{mark}/{side}/{name}",
                    [Body("t", 1, event) for event in events],
                    expected,
                    **more,
                    **state,
                )
                for name, events, expected, more, state, _ in group
            ]
            commands = [command and f"{mark}-{side}-{command}" for *_, command in group]
            results[-1] += [
                str(said(one)).replace(f"/{side}/", "/") for one in send(shared, appends, commands)
            ]
    with shared.reader() as connection:
        for query in (ROWS, HEADS):
            rows = [connection.execute(query, [f"law/{mark}/{side}/%"]).fetchall() for side in "xy"]
            assert rows[0] == rows[1]
    assert [one.replace("-x-", "-") for one in results[0]] == [one.replace("-y-", "-") for one in results[1]]


def one_by_one(log: Ledger, appends: Sequence[Append], commands: Sequence[str | None]) -> list[Any]:
    return [
        caught(lambda a=append, c=command: log.appender.append([a], log.meta(command=c)))  # type: ignore[misc]
        for append, command in zip(appends, commands, strict=True)
    ]


def test_a_guard_that_leaves_no_head_behind_holds_again(log: Ledger) -> None:
    """Each append without a head makes one to be guarded by, and removes it: alone and in a group."""
    guarded = Append("a", [Body("t", 1, "{}")], Guard(), head=False)
    refused = guarded._replace(expected=Guard(frozenset({"on"})))
    for send in (together, lambda log, appends: one_by_one(log, appends, [None] * len(appends))):
        log.append("a", Body("t", 1, "{}"), head=False)
        results = send(log, [guarded, guarded, refused, guarded])
        assert [type(one).__name__ for one in results] == ["Appended", "Appended", "GuardFailed", "Appended"]
        assert log.head("a") is None


def test_appends_of_a_batch_are_told_apart(log: Ledger) -> None:
    """Each has a time of its own, and its events have adjacent positions."""
    body = Body("t", 1, "{}")
    together(log, [Append(stream, [body] * 2) for stream in "cabac"])
    for event in log.log(0, log.bound()):
        found = log.recorded_with(event)
        assert [one.stream for one in found] == [event.stream] * 2
        assert found[1].position == found[0].position + 1


def test_a_batch_with_a_head_behind_its_events_is_recorded(log: Ledger) -> None:
    for stream in "abc":
        log.append(stream, Body("t", 1, "{}"), head=stream != "c")
    log.append("b", Body("t", 1, "{}"), head=False)
    found = together(log, [Append(stream, [Body("t", 1, "{}")]) for stream in "abcd"])
    assert [one.version for one in found] == [2, 3, 2, 1]
    assert [log.head(stream).version for stream in "abcd"] == [2, 3, 2, 1]  # type: ignore[union-attr]


def test_a_state_of_a_batch_holds_the_time_of_its_append(log: Ledger) -> None:
    lamps = [log.load(OpenLamp, name) for name in "ab"]
    for lamp in lamps:
        lamp.make(5)
    done = together(log, [append_of(lamp) for lamp in lamps])
    for lamp, one in zip(lamps, done, strict=True):
        lamp.settle(one.recorded_at)
        assert log.load(OpenLamp, lamp.key[0]).state == lamp.state


# Threads


def test_threads_that_append_at_once_share_commits(log: Ledger, connection: Connection) -> None:
    def work(nth: int) -> list[Appended]:
        done = [log.append(f"own/{nth}", LampRead(value=i), expected=i) for i in range(10)]
        return done + [log.append("one", LampRead(value=i)) for i in range(10)]

    with ThreadPoolExecutor(16) as threads:
        done = [one for made in threads.map(work, range(16)) for one in made]
    assert sorted(one.first_position for one in done) == list(range(1, 321))
    assert [event.version for event in log.read("one")] == list(range(1, 161))
    for nth in range(16):
        assert [event.event.value for event in log.read(f"own/{nth}")] == list(range(10))  # type: ignore[union-attr]
    for event in log.log(0, log.bound()):
        assert any(
            one.first_position == event.position and one.recorded_at == event.recorded_at for one in done
        )
    commits = connection.execute(COMMITS, ["o%"]).fetchone()
    assert commits is not None
    assert commits[0] < 240


@pytest.fixture
def held(connect: Callable[..., Connection], log: Ledger, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A transaction of a user's that holds the stream `held`; an append to it leads, and others wait."""
    monkeypatch.setattr(committer, "FEW", 1)
    log.append("held", LampRead())
    user = connect()
    user.execute("SET ROLE ledger_owner")
    user.execute("SELECT FROM ledger.heads WHERE stream = 'held' FOR UPDATE")
    return user


def led(threads: ThreadPoolExecutor, log: Ledger) -> Any:
    """An append that leads, and waits for the lock of `held`."""
    made = threads.submit(log.append, "held", LampRead())
    eventually(lambda: log.committer._leading)
    return made


def queued(threads: ThreadPoolExecutor, log: Ledger, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Calls of threads, in the order in which they wait."""
    made = []
    for nth, call in enumerate(calls, 1):
        made.append(threads.submit(caught, call))
        eventually(lambda n=nth: len(log.committer._queue) == n)  # type: ignore[misc]
    return made


def test_what_waits_goes_together(
    log: Ledger, held: Connection, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "PATIENCE", 60)
    opened = log.load(OpenLamp, "a")
    opened.make()
    calls: list[Callable[[], Any]] = [
        lambda: log.append("w/a", LampRead()),
        lambda: log.append("w/b", LampRead(), LampRead()),
        lambda: log.append("w/b", LampRead(), expected=NEW),
        lambda: log.append("w/b", LampRead(), expected=2, command="c"),
        lambda: log.append("w/b", LampRead(), expected=2, command="d"),
        lambda: log.commit(opened),
        lambda: log.append("w/a", Body("t", 1, "no JSON")),
        lambda: log.append("w/a", Body("t", 1, '"\0"')),
        lambda: log.append("held", LampRead()),
    ]
    with ThreadPoolExecutor(32) as threads:
        leader = led(threads, log)
        waiting = queued(threads, log, calls)
        held.rollback()
        found = [one.result() for one in waiting]
        assert leader.result().version == 2
    assert [one.version for one in (found[0], found[1], found[3], found[8])] == [1, 2, 3, 3]
    assert [str(one) for one in (found[2], found[4])] == [
        str(StreamConflict("w/b", "a new stream", 2)),
        str(StreamConflict("w/b", "version 2", 3)),
    ]
    assert [type(one).__name__ for one in found[5:8]] == ["Appended", "BadBody", "BadInput"]
    assert opened.version == 1
    assert connection.execute(COMMITS, ["w/%"]).fetchone() < (3,)  # type: ignore[operator]


def test_no_append_waits_for_the_lock_of_another(log: Ledger, held: Connection) -> None:
    """Also where the lock is of this thread's own transaction, in which it appends to another stream."""
    with ThreadPoolExecutor(16) as threads:
        blocked = [led(threads, log), threads.submit(log.append, "held", LampRead())]
        for nth in range(20):
            assert log.append("free", LampRead()).version == nth + 1
            found = together(
                log, [Append("free/2", [Body("t", 1, "{}")]), Append("free/3", [Body("t", 1, "{}")])]
            )
            assert [one.version for one in found] == [nth + 1] * 2
        assert not any(one.done() for one in blocked)
        held.rollback()
        assert {one.result().version for one in blocked} == {2, 3}


def test_an_append_that_would_wait_leaves_its_batch(
    log: Ledger, dsn: str, held: Connection, connect: Callable[..., Connection]
) -> None:
    body = [Body("t", 1, "{}")]
    user = connect()
    user.execute("SELECT ledger.append_one('made', 0, 't', 1::smallint, '{}', NULL, '{}', true)")
    user.execute("SELECT pg_advisory_xact_lock(ledger.lock_class()::integer, hashtext('c'))")
    with ledger.connect(f"{dsn} options='-c lock_timeout=20'") as hasty:
        for stream, command in (("held", None), ("made", None), ("x", "c")):
            found = together(
                hasty, [Append("a", body), Append(stream, body), Append("b", body)], [None, command, None]
            )
            assert isinstance(found[1], LedgerBusy)
            assert [found[nth].version for nth in (0, 2)] == [len(log.read("a"))] * 2
    user.rollback()


def test_a_command_twice_in_a_batch_is_recorded_once(log: Ledger) -> None:
    one, other = Append("a", [Body("t", 1, "{}")]), Append("a", [Body("t", 1, '{"n":1}')])
    found = together(log, [one, one, other], ["c"] * 3)
    assert [type(each).__name__ for each in found] == ["Appended", "Appended", "CommandReused"]
    assert sorted(each.repeated for each in found[:2]) == [False, True]
    assert found[1] == found[0]._replace(repeated=True)


@pytest.mark.parametrize("command", [None, "c"])
def test_many_appends_at_fault_are_found(log: Ledger, command: str | None) -> None:
    appends = [Append(f"s/{n}", [Body("t" if n % 3 else "", n % 5 or 2**20, "{}")]) for n in range(30)]
    found = together(log, appends, [command and f"{command}{n}" for n in range(30)])
    for n, one in enumerate(found):
        assert isinstance(one, BadInput if not n % 5 else Appended), one


EACH: LiteralString = """
SELECT outcomes
  FROM ledger.append_each(%s::jsonb, NULL, NULL, %s::text[], '{1,1,1}', '{1,2,3}', NULL, NULL)
"""
FORGED: dict[str, list[dict[str, Any]]] = {
    "more events than given": [{"count": 4}],
    "fewer": [{"count": 2}],
    "none of one": [{"count": 3}, {"count": 0, "stream": "b"}],
    "a negative count": [{"count": 4}, {"count": -1, "stream": "b"}],
    "no count": [{}],
    "no stream": [{"count": 3, "stream": None}],
    "an unknown expectation": [{"count": 3, "expected": -4}],
    "no expectation": [{"count": 3, "expected": None}],
    "no head": [{"count": 3, "head": None}],
    "nothing": [],
}


SINGLES: LiteralString = """
SELECT versions
  FROM ledger.append_group(%s::text[], %s::bigint[], '{t,t,t}', %s::smallint[], '{1,2,3}', '{}', '{}',
                           '{}', '{}')
"""


def test_a_writer_that_passes_anything_to_append_group_breaks_no_stream(
    only: Callable[[str], str], log: Ledger, connection: Connection
) -> None:
    """What it does not name, or names twice, is not recorded; unlike arrays are refused."""
    log.append("a", LampRead())
    with psycopg.connect(only("ledger_writer"), autocommit=True) as writer:

        def recorded(
            streams: Sequence[str | None] | None, *expected: int | None, schemas: Any = (1, 1, 1)
        ) -> Any:
            row = writer.execute(SINGLES, [streams, list(expected), list(schemas)]).fetchone()
            assert row is not None
            return row[0]

        for nothing in ([], None):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="append_group wants appends"):
                recorded(nothing)
        with pytest.raises(psycopg.errors.UniqueViolation):
            recorded(["n", "n"], -1, 0)
        with pytest.raises(psycopg.errors.NotNullViolation):
            recorded(["b", "c", "d"], -1, -1, -1, schemas=[1, None, 1])
        assert recorded(["a", "a", None], -1, 1, None) == [2]
        assert recorded(["a", "b", "c"], -3, -4, None) is None
        assert recorded(["a", "b", "c"], 2, -2, 7) == [3]
    assert connection.execute(BROKEN).fetchall() == []
    assert [event.version for event in log.read("a")] == [1, 2, 3]
    assert [found.stream for found in log.streams()] == ["a"]


@pytest.mark.parametrize("forged", FORGED)
def test_a_writer_that_passes_anything_breaks_no_stream(
    only: Callable[[str], str], log: Ledger, connection: Connection, forged: str
) -> None:
    plain = {"stream": "a", "expected": -1, "head": True}
    with psycopg.connect(only("ledger_writer"), autocommit=True) as writer:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="append_each wants appends"):
            writer.execute(EACH, [json.dumps([plain | one for one in FORGED[forged]]), ["t"] * 3])
        twice = [plain | {"count": 1, "base": 7, "schema": 1}, plain | {"count": 2, "expected": 1}]
        writer.execute(EACH, [json.dumps(twice), ["t"] * 3])
    assert connection.execute(BROKEN).fetchall() == []
    assert [event.version for event in log.read("a")] == [1, 2, 3]

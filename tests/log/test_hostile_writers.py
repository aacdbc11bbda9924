"""A writer's login calls the functions that it may execute with whatever it likes: the log stays a log."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from ledger import Body, Exact, Ledger
from ledger.log.append import Append
from ledger.log.appender import send

Connection = psycopg.Connection[Any]
BODY = Body("note.made", 1, "{}")

MANY: LiteralString = """
SELECT outcome FROM ledger.append_many(
    %(streams)s::text::jsonb, %(states)s::text[], %(of)s::text::integer[], %(nth)s::text::integer[],
    %(topics)s::text[], %(schemas)s::smallint[], %(datas)s::text[], NULL, NULL, '{}', NULL, NULL)
"""
ONE: LiteralString = """
SELECT outcome FROM ledger.append_one(
    %(stream)s, %(expected)s, 't', 1::smallint, '{}', NULL, '{}', %(head)s, %(status)s, %(state)s,
    %(state_schema)s)
"""
STREAM: LiteralString = """
SELECT outcome FROM ledger.append_stream(
    %(stream)s, %(expected)s, %(topics)s::text[], %(schemas)s::text::smallint[], %(datas)s::text[], NULL,
    %(metas)s::text[], '{}', %(head)s, %(status)s, %(state)s, %(state_schema)s, %(base)s, %(set_token)s, NULL,
    NULL, NULL, NULL)
"""
BROKEN: LiteralString = """ -- versions that do not ascend by one with positions, or a head ahead of them
SELECT stream, e.versions, h.version, h.state_version FROM (
       SELECT stream, array_agg(version ORDER BY position) AS versions, count(*) AS n
         FROM ledger.events GROUP BY stream) e
  FULL JOIN ledger.heads h USING (stream)
 WHERE e.versions IS DISTINCT FROM ARRAY(SELECT generate_series(1, e.n))
    OR h.version > e.n OR h.state_version > h.version
"""


@pytest.fixture
def writer(only: Callable[[str], str]) -> Iterator[Connection]:
    with psycopg.connect(only("ledger_writer"), autocommit=True) as opened:
        yield opened


def spec(stream: str, count: Any = 1, expected: Any = -1, head: Any = True, **more: Any) -> dict[str, Any]:
    return {"stream": stream, "expected": expected, "head": head, "count": count, **more}


def many(streams: Any, of: Any, nth: Any) -> dict[str, Any]:
    """What append_many is given: topics and the rest fit to `of`."""
    n = len(of) if isinstance(of, list) else 4
    arrays = {"of": array(of), "nth": array(nth)}
    rest = {"states": None, "topics": ["t"] * n, "schemas": [1] * n, "datas": ["{}"] * n}
    return {"streams": json.dumps(streams), **arrays, **rest}


def array(values: Any) -> Any:
    if not isinstance(values, list):
        return values
    return "{" + ",".join("NULL" if value is None else str(value) for value in values) + "}"


def attempt(writer: Connection, statement: LiteralString, given: dict[str, Any]) -> str:
    try:
        return str((writer.execute(statement, given).fetchone() or ["?"])[0])
    except psycopg.Error as error:
        return error.sqlstate or "?"


def lawful(connection: Connection) -> None:
    assert connection.execute(BROKEN).fetchall() == []


HUGE = 2**63 - 2
FORGED = {
    "a gap": many([spec("s/a", 1)], [1], [1_000_000]),
    "a gap of many": many([spec("s/a", 1), spec("s/b", 1)], [1, 2], [7, 1]),
    "version 0": many([spec("s/a", 1)], [1], [0]),
    "a version below": many([spec("s/a", 1), spec("s/b", 1)], [1, 2], [-5, 1]),
    "descending": many([spec("s/a", 2)], [1, 1], [2, 1]),
    "descending of many": many([spec("s/a", 2), spec("s/b", 1)], [1, 2, 1], [2, 1, 1]),
    "a head ahead": many([spec("s/a", 1_000_000)], [1], [1]),
    "a head ahead of many": many([spec("s/a", 2), spec("s/b", 0)], [1, 2], [1, 1]),
    "a head behind": many([spec("s/a", 1), spec("s/b", 1)], [1, 1], [1, 2]),
    "a count below": many([spec("s/a", -1), spec("s/b", 2)], [2], [1]),
    "no count": many([spec("s/a", None)], [1], [1]),
    "no head": many([spec("s/a", 1, head=None)], [1], [1]),
    "no expectation": many([spec("s/a", 1, None)], [1], [1]),
    "an unknown expectation": many([spec("s/a", 1, -7)], [1], [1]),
    "no stream": many([spec("s/a", 1) | {"stream": None}], [1], [1]),
    "no streams": many([], [1], [1]),
    "not streams": many(None, [1], [1]),
    "a stream twice": many([spec("s/a"), spec("s/a")], [1, 2], [1, 1]),
    "a stream twice without a head": many([spec("s/a", head=False), spec("s/a", head=False)], [1, 2], [1, 1]),
    "a stream twice, and others": many([spec("s/a", 0), spec("s/a"), spec("s/b", 1, 0)], [2, 3], [1, 1]),
    "no event": many([spec("s/a", 0)], [], []),
    "null for events": many([spec("s/a", 1)], None, None),
    "an event of no stream": many([spec("s/a", 1)], [None], [1]),
    "an event of another stream": many([spec("s/a", 1)], [2], [1]),
    "an event before the first stream": many([spec("s/a", 1), spec("s/b", 0)], [0], [1]),
    "no place": many([spec("s/a", 1)], [1], [None]),
    "fewer places": many([spec("s/a", 2)], [1, 1], [1]),
    "more places": many([spec("s/a", 1), spec("s/b", 1)], [1, 2], [1, 1, 2, 3]) | {"topics": ["t"]},
    "other bounds": many([spec("s/a", 1), spec("s/b", 1)], "[5:6]={1,2}", "[5:6]={1,1}"),
    "dimensions": many([spec("s/a", 2), spec("s/b", 2)], "{{1,1},{2,2}}", "{{1,2},{1,2}}"),
    "the last version": many([spec("s/a", 1), spec("s/b", 1)], [1, 2], [2**31 - 1, 1]),
}


@pytest.mark.parametrize("forged", list(FORGED))
def test_no_stream_is_broken_by_a_forged_append(
    writer: Connection, log: Ledger, connection: Connection, forged: str
) -> None:
    log.append("s/a", BODY, BODY)
    said = attempt(writer, MANY, FORGED[forged])
    assert said in ("22023", "23502"), said
    lawful(connection)
    assert connection.execute("SELECT count(*) FROM ledger.events").fetchone() == (2,)
    assert log.append("s/a", BODY).version == 3
    assert log.append("s/b", BODY, BODY, expected=0).version == 2


def test_streams_in_any_order_are_appended_to(writer: Connection, connection: Connection) -> None:
    unsorted = many([spec("s/b", 2), spec("s/a", 1, 0, False)], [1, 2, 1], [1, 1, 2])
    assert attempt(writer, MANY, unsorted) == "recorded"
    lawful(connection)


def test_whatever_a_writer_gives_the_streams_stay_whole(
    writer: Connection, log: Ledger, connection: Connection
) -> None:
    """Calls that are right in most, and anything elsewhere."""
    chance = random.Random(7)
    names = ["s/a", "s/b", "s/c", "", None]
    oddities = [None, 0, -1, -2, -3, -7, 1, 2, 3, 5, 2**31 - 1]
    outcomes = set()

    def odd(value: Any, among: list[Any]) -> Any:
        return chance.choice(among) if chance.random() < 0.07 else value

    for number in range(700):
        if chance.random() < 0.3:
            one = {
                "stream": odd(f"s/{chance.choice('abc')}", names),
                "expected": chance.choice([0, 1, 2, 3, *oddities, HUGE]),
                "head": chance.choice([True, True, False, None]), "status": chance.choice([None, "x"]),
                "state": chance.choice([None, '{"n": 1}']), "state_schema": odd(1, oddities),
            }  # fmt: skip
            outcomes.add(attempt(writer, ONE, one))
        elif chance.random() < 0.3:
            n = chance.randrange(4)
            some = {
                "stream": odd(f"s/{chance.choice('abc')}", names),
                "expected": chance.choice([0, 1, 2, 3, -1, -1, *oddities, HUGE]), "topics": ["t"] * n,
                "schemas": odd(array([1] * n), ["[5:6]={1,2}", "{{1,1},{2,2}}", "{NULL}", None]),
                "datas": ["{}"] * odd(n, [0, 1, 2, 4]), "metas": odd(None, [["{}"] * 4]),
                "head": chance.choice([True, True, False, None]), "status": odd(None, ["x"]),
                "state": chance.choice([None, '{"n": 1}']), "state_schema": odd(1, oddities),
                "base": odd(0, oddities), "set_token": odd(None, [-1, 0, 1, HUGE]),
            }  # fmt: skip
            outcomes.add(attempt(writer, STREAM, some))
        else:
            counts = [chance.randrange(3) for _ in range(chance.randrange(1, 4))]
            of = [place for place, count in enumerate(counts, 1) for _ in range(count)]
            chance.shuffle(of)
            nth = [of[: i + 1].count(place) for i, place in enumerate(of)]
            streams = [
                spec(
                    odd(f"s/{'abc'[place]}", names), odd(count, oddities),
                    odd(chance.choice([-1, -1, -2, 0, 1, 4]), [*oddities, HUGE]),
                    odd(chance.random() < 0.7, [None]),
                    base=odd(0, oddities), schema=odd(1, oddities), set_token=odd(None, [-1, 0, 1, HUGE]),
                    status=odd(None, ["x"]),
                ) for place, count in enumerate(counts)
            ]  # fmt: skip
            given = many(
                streams, [odd(place, oddities) for place in of], [odd(place, oddities) for place in nth]
            )
            given["states"] = odd(None, [["{}"], ["{}", "{}"], [None]])
            outcomes.add(attempt(writer, MANY, given))
        if number % 20 == 0:
            lawful(connection)
    lawful(connection)
    assert {"recorded", "conflict", "22023", "23502"} <= outcomes
    for info in log.streams():
        if info.stream:
            assert log.append(info.stream, BODY).version == info.version + 1
            append = Append(info.stream, [BODY], Exact(info.version + 1))
            assert send(connection, "ledger", [append], "{}", None).version == info.version + 2
    lawful(connection)

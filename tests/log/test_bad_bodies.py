"""Bodies and meta that the database would change: refused; all others come back as they were."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import psycopg
import pytest

from ledger import (
    NEW,
    Append,
    BadBody,
    BadInput,
    Body,
    Exact,
    Ledger,
    Meta,
    Unknown,
)
from tests.lamp import LampMade, LampRead, OpenLamp
from tests.log.parameters import kind_of

Connection = psycopg.Connection[Any]
BODY = Body("lamp.read", 1, "{}")
_numbers = count(1)


WRONG_VALUES = [
    "\x00",
    "a\ud800",
    float("nan"),
    float("inf"),
    -0.0,
    {1: 2},
    {"a": {True: 1}},
    {"\x00": 1},
    {"\ud800": 1},
]
WRONG_VALUES += [10**5000, {"a": [float("-inf")]}, b"\xff", object(), "x" * 100_000_000]


def test_values_that_would_be_changed(log: Ledger, nothing_stored: None, subtests: pytest.Subtests) -> None:
    def change(value: Any) -> None:
        with log.open(OpenLamp, "a") as lamp:
            lamp.make()
            lamp.read(value)

    def append(value: Any) -> None:
        log.append("lamp/a", LampRead(value=1), LampRead(value=value))

    for value in WRONG_VALUES:
        for attempt in (append, change):
            with subtests.test(value=kind_of(value)), pytest.raises(ValueError):
                attempt(value)


RIGHT_VALUES = [
    2**70,
    -(2**70),
    1e16,
    1e300,
    -1e300,
    5e-324,
    0.1 + 0.2,
    1e-7,
    0.0,
    0,
    1.0,
    1,
    True,
    None,
    10**4299,
]
RIGHT_VALUES += [
    "",
    "é🔬\u2028\x01\x7f\\u0000",
    [[]],
    {},
    {"": {"": [None]}},
    {"a": 1, "A": 2, "ä": 3, "a\u0308": 4},
]
RIGHT_VALUES += [
    2**53 + 1,
    1.7976931348623157e308,
    2.2250738585072014e-308,
    9007199254740993.0,
    "x" * 10_000_000,
]


@pytest.mark.parametrize("value", RIGHT_VALUES, ids=kind_of)
def test_values_that_come_back_as_they_were(shared: Ledger, value: Any) -> None:
    name = next(_numbers)
    with shared.open(OpenLamp, name) as lamp:
        lamp.make()
        lamp.read(value)
    event = shared.read(f"lamp/{name}")[1].event
    assert isinstance(event, LampRead)
    assert event == LampRead(value=value)
    assert type(event.value) is type(LampRead(value=value).value)
    assert shared.load(OpenLamp, name).state.values == (event.value,)


def test_the_deepest_nesting_comes_back(log: Ledger) -> None:
    deep: Any = 1.5
    for _ in range(199):
        deep = [deep]
    log.append("lamp/a", LampRead(value=deep))
    assert log.read("lamp/a")[0].event == LampRead(value=deep)
    with pytest.raises(BadBody, match="nested deeper than 200 levels"):
        log.append("lamp/a", LampRead(value=[deep]))


def test_meta_that_cannot_be(log: Ledger, nothing_stored: None, subtests: pytest.Subtests) -> None:
    for meta in WRONG_META:
        with subtests.test(meta=ascii(meta)):
            for events in (1, 2):
                with pytest.raises(BadInput):
                    log.append("lamp/a", *[LampRead()] * events, expected=NEW, **meta)


WRONG_META: list[dict[str, Any]] = [{"actor": "\x00"}, {"actor": "\ud800"}, {"claimed_at": "now"}]
WRONG_META += [{"correlation": float("nan")}, {"causation": b"x"}]
BAD_BODIES = [
    Body("lamp.read", 1, "{"),
    Body("lamp.read", 1, ""),
    Body("lamp.read", 1, '{"a":"\\u0000"}'),
    Body("lamp.read", 1, '{"a":"\\ud800"}'),
    Body("lamp.read", 1, '{"a":"\ud800"}'),
    Body("lamp.read", 1, '{"a":1}\x00{"b":2}'),
    Body("lamp.read", 1, '{"a":NaN}'),
    Body("lamp.read", 1, None),
    Body("lamp.read", 1, "{}", b"both"),
    Body("lamp.read", 40_000, "{}"),
    Body("lamp\x00.read", 1, "{}"),
    Body("lamp\ud800", 1, "{}"),
    Body(None, 1, "{}"),  # type: ignore[arg-type]
    Body("lamp.read", 1, {"a": 1}),  # type: ignore[arg-type]
    Body("lamp.read", 1, "{}", meta="{"),
]


@pytest.mark.parametrize("how", ["one", "many", "join"])
def test_ready_bodies_that_the_database_refuses(
    log: Ledger, connection: Connection, nothing_stored: None, how: str, subtests: pytest.Subtests
) -> None:
    def joined(body: Body) -> None:
        with connection.transaction(), log.join(connection) as join:
            join.append("lamp/a", body, expected=NEW)

    attempts: dict[str, Callable[[Body], object]] = {
        "one": lambda body: log.append("lamp/a", body, expected=NEW),
        "many": lambda body: log.append_all([Append("lamp/a", [BODY, body]), Append("lamp/b", [BODY])]),
        "join": joined,
    }
    for number, body in enumerate(BAD_BODIES):
        with subtests.test(number=number), pytest.raises(BadInput):
            attempts[how](body)


@pytest.mark.parametrize("status", ["\x00", "a\x00b", "\ud800"], ids=ascii)
def test_statuses_that_cannot_be(log: Ledger, nothing_stored: None, status: str) -> None:
    for events in (1, 2):
        with pytest.raises(BadInput):
            log.append_all([Append("lamp/a", [BODY] * events, Exact(0), status=status)])


@pytest.mark.parametrize(
    "query", [{"limit": -1}, {"limit": 2**63}, {"after": "x"}, {"after": 2**70}], ids=str
)
def test_ranges_that_cannot_be(log: Ledger, query: dict[str, Any]) -> None:
    log.append("lamp/a", LampRead())
    if query == {"after": 2**70}:
        assert log.read("lamp/a", **query) == []
        return
    with pytest.raises(BadInput):
        log.read("lamp/a", **query)


# What others recorded


def test_events_of_others_are_carried_along(log: Ledger) -> None:
    raw = b'\x00\xff{"not": "looked into"}'
    log.append(
        "x", Body("app.module:Order.Placed", 1, None, raw), Body("moon.rose", 7, '{"a":[1]}'), head=False
    )
    log.append(
        "x", Body("lamp.made", 1, '{"watts":5.0,"new_field":[1]}', meta='{"actor":"b","new":1}'), expected=2
    )
    first, second, third = log.read("x")
    assert (first.raw, first.data, first.event) == (raw, None, Unknown("app.module:Order.Placed", 1, {}))
    assert second.event == Unknown("moon.rose", 7, {"a": (1,)})
    assert (third.event, third.meta) == (LampMade(watts=5), Meta(actor="b"))
    assert [found.canonical() for found in log.log(0, log.bound())] == [
        one.canonical() for one in (first, second, third)
    ]

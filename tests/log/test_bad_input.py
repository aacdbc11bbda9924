"""Names, versions and guards that cannot be: each has an error that says so, and nothing is stored."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from ledger import (
    NEW,
    Append,
    BadInput,
    BadName,
    Body,
    Guard,
    Ledger,
    StreamConflict,
    StreamNotFound,
)
from tests.lamp import LampRead, OpenLamp
from tests.log.parameters import kind_of

Connection = psycopg.Connection[Any]
BODY = Body("lamp.read", 1, "{}")
IN_NAMES = [
    "",
    "a\x00b",
    "\x00",
    "\ud800",
    "a\udfff",
    "x" * 1001,
    "é" * 501,
    "a\U0010ffff",
    None,
    5,
    b"a",
    1.5,
]


def test_an_unknown_stream(log: Ledger) -> None:
    with pytest.raises(StreamNotFound, match="no event is recorded under 'lamp/none'"):
        log.read("lamp/none")
    assert (log.load(OpenLamp, "none").version, log.head("lamp/none"), log.event_at(7)) == (0, None, None)
    log.append("lamp/a", LampRead())
    assert log.read("lamp/a", after=1) == []


def test_names_that_cannot_be(log: Ledger, nothing_stored: None, subtests: pytest.Subtests) -> None:
    for name in IN_NAMES:
        with subtests.test(name=kind_of(name)):
            for attempt in (
                lambda name=name: log.append(name, LampRead()),
                lambda name=name: log.append(name, LampRead(), expected=NEW, command="c"),
                lambda name=name: log.append_all([Append("lamp/fine", [BODY]), Append(name, [BODY])]),
                lambda name=name: log.read(name),
                lambda name=name: log.head(name),
            ):
                with pytest.raises(BadName, match="stream name"):
                    attempt()


def test_keys_that_cannot_be(log: Ledger, nothing_stored: None, subtests: pytest.Subtests) -> None:
    for part in ("\x00", "\ud800", 1.5, True, None, 2**63, b"x"):
        with subtests.test(part=kind_of(part)):
            with pytest.raises(BadName):
                log.load(OpenLamp, part)
            with pytest.raises(BadName):
                OpenLamp("a", part)


def test_hostile_keys_do_not_meet(log: Ledger) -> None:
    keys = [
        "",
        "a/b",
        "a:b",
        "a%2Fb",
        "a%252Fb",
        "A",
        "a",
        "a_b",
        "a-b",
        "a b",
        "\x01",
        "\U0010ffff",
        "%U",
        "x" * 990,
    ]
    keys += ["ä", "a\u0308", "🔬", "\x7f", "..", "'", '"', "\\"]
    for number, key in enumerate(keys):
        with log.open(OpenLamp, key) as lamp:
            assert lamp.version == 0
            lamp.make(number)
    assert [log.load(OpenLamp, key).state.watts for key in keys] == list(range(len(keys)))
    found = log.load_below(("lamp/", OpenLamp))
    assert sorted(str(lamp.key[0]) for lamp in found) == sorted(keys)
    assert len(log.streams("lamp/")) == len(keys)


@pytest.mark.parametrize("events", [1, 2])
def test_versions_that_cannot_be(
    log: Ledger, nothing_stored: None, events: int, subtests: pytest.Subtests
) -> None:
    for version in (-1, -2, -3, 1.0, True, "1", 2**62, 2**63, None, [1], float("nan")):
        with subtests.test(version=kind_of(version)):
            with pytest.raises(BadInput, match=r"expected .* must be"):
                log.append("lamp/a", *[LampRead()] * events, expected=version)
            with pytest.raises(BadInput, match="must be"):
                log.append_all([Append("lamp/a", [BODY] * events, version)])


@pytest.mark.parametrize(
    "guard",
    [
        {"token": 1.5},
        {"token": True},
        {"token": "7"},
        {"token": 2**63},
        {"statuses": "on"},
        {"statuses": frozenset({1})},
    ],
)
def test_guards_that_cannot_be(guard: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="must be"):
        Guard(**guard)


def test_versions_of_the_past_and_the_future(log: Ledger) -> None:
    log.append("lamp/a", LampRead(), LampRead())
    for version in (0, 1, 3, 2**31, 2**62 - 1):
        for events in (1, 2):
            for head in (True, False):
                with pytest.raises(StreamConflict, match="found version 2; load it again and decide again"):
                    log.append("lamp/a", *[LampRead()] * events, expected=version, head=head)
    assert [found.version for found in log.read("lamp/a")] == [1, 2]


def test_of_many_writers_at_one_version_one_wins(log: Ledger) -> None:
    log.append("lamp/a", LampRead(value="first"))

    def write(number: int) -> bool:
        try:
            log.append(
                "lamp/a", *[LampRead(value=number)] * (1 + number % 2), expected=1, head=number % 3 > 0
            )
        except StreamConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [number for number, taken in enumerate(threads.map(write, range(16))) if taken]
    assert len(won) == 1
    assert {found.event for found in log.read("lamp/a", after=1)} == {LampRead(value=won[0])}


def test_appending_nothing(log: Ledger, nothing_stored: None) -> None:
    for attempt in (
        lambda: log.append("lamp/a"),
        lambda: log.append_all([]),
        lambda: log.append_all([Append("lamp/a", []), Append("lamp/b", [], NEW)]),
    ):
        with pytest.raises(BadInput, match="nothing to append: no stream has an event"):
            attempt()
    log.commit()
    log.commit(OpenLamp("a"))


def test_a_stream_twice(log: Ledger, nothing_stored: None) -> None:
    with pytest.raises(BadInput, match="a stream is named twice in one append: put its events in one Append"):
        log.append_all([Append("lamp/a", [BODY]), Append("lamp/b", [BODY]), Append("lamp/a", [BODY])])

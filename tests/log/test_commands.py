"""Command ids: what they record once, also from many threads; what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import ledger
from ledger import (
    ANY,
    NEW,
    Append,
    BadName,
    Body,
    CommandReused,
    Ledger,
    StreamConflict,
)
from tests.lamp import LampMade, LampRead
from tests.log.parameters import kind_of

Connection = psycopg.Connection[Any]
BODY = Body("lamp.read", 1, "{}")


@pytest.mark.parametrize("events", [1, 2])
def test_command_ids_that_cannot_be(
    log: Ledger, nothing_stored: None, events: int, subtests: pytest.Subtests
) -> None:
    for command in ("", 5, "a\x00", "\ud800", "x" * 1001):
        with subtests.test(command=kind_of(command)):
            with pytest.raises(BadName, match="command id"):
                log.append("lamp/a", *[LampRead()] * events, expected=NEW, command=command)


@pytest.mark.parametrize("events", [1, 3])
def test_one_command_from_many_threads_records_once(log: Ledger, events: int) -> None:
    def send(_: int) -> ledger.Appended:
        return log.append("lamp/a", *[LampRead(value=1)] * events, expected=NEW, command="c")

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(send, range(8)))
    assert sorted(one.repeated for one in done) == [False] + [True] * 7
    assert len({(one.first_position, one.last_position, one.recorded_at, one.version) for one in done}) == 1
    assert len(log.read("lamp/a")) == events


def test_a_command_of_many_streams_answers_alike(log: Ledger) -> None:
    log.append("b", LampRead())
    appends = [Append("c", [BODY] * 2, NEW), Append("b", [BODY], ANY), Append("a", [BODY])]
    first = log.append_all(appends, command="c")
    log.append("b", LampRead())
    again = log.append_all(list(reversed(appends)), command="c")
    assert again.repeated
    assert again.versions == first.versions == {"a": 1, "b": 2, "c": 2}
    assert (again.first_position, again.last_position) == (first.first_position, first.last_position)


def test_a_command_with_other_content_is_refused(log: Ledger) -> None:
    log.append("lamp/a", LampRead(value=1), command="c")
    others: list[Callable[[], object]] = [
        lambda: log.append("lamp/a", LampRead(value=2), command="c"),
        lambda: log.append("lamp/a", LampRead(value=1.0), command="c"),
        lambda: log.append("lamp/b", LampRead(value=1), command="c"),
        lambda: log.append("lamp/a", LampMade(), command="c"),
        lambda: log.append("lamp/a", LampRead(value=1), LampRead(value=1), command="c"),
        lambda: log.append_all([Append("lamp/a", [Body("lamp.read", 2, '{"value":1}')])], command="c"),
    ]
    for other in others:
        with pytest.raises(CommandReused, match="command 'c' already recorded other content; use a new"):
            other()
    repeat = log.append("lamp/a", LampRead(value=1), expected=7, command="c", actor="another")
    assert repeat.repeated
    assert len(log.read("lamp/a")) == 1


@pytest.mark.parametrize("events", [1, 2])
def test_a_refused_append_leaves_its_command_free(log: Ledger, events: int) -> None:
    with pytest.raises(StreamConflict):
        log.append("lamp/a", *[LampRead()] * events, expected=4, command="c")
    assert not log.append("lamp/b", *[LampRead()] * events, expected=NEW, command="c").repeated

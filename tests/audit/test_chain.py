"""Why: what caused an event, what came of it, and what else came of the same request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import psycopg

from ledger import Body, Ledger, Recorded
from projections.audit import Why, why
from tests.lamp import LampMade, LampRead


def at(log: Ledger, position: int) -> Recorded:
    event = log.event_at(position)
    assert event is not None
    return event


def shape(answer: Why) -> list[tuple[int, int]]:
    """Depth and position of each event."""
    return [(node.depth, node.event.position) for node in answer.nodes]


def caused(log: Ledger, causes: Sequence[Any], **more: Any) -> None:
    """Events, one a stream, each with its cause."""
    for number, cause in enumerate(causes, 1):
        log.append(f"lamp/{number}", LampMade(), causation=cause, **more)


def test_up_to_the_first_cause_and_down_to_what_came_of_it(log: Ledger) -> None:
    """Given 1 <- 2 <- 3 <- 5, 2 <- 4 and 6 alone: of 3, its causes and what it caused, not its sibling."""
    caused(log, [None, 1, 2, 2, 3, None])
    answer = why(log, at(log, 3))
    assert shape(answer) == [(0, 1), (1, 2), (2, 3), (3, 5)]
    assert [node.cause for node in answer.nodes] == [None, 1, 2, 3]
    assert [node.note for node in answer.nodes] == [""] * 4
    assert not answer.more


def test_what_carries_the_same_correlation_is_there_too(log: Ledger) -> None:
    caused(log, [None, 1, None, 3], correlation="r-1")
    log.append("lamp/5", LampMade(), causation=4)
    log.append("lamp/6", LampMade(), correlation="r-2")
    assert shape(why(log, at(log, 2))) == [(0, 1), (1, 2), (0, 3), (1, 4), (2, 5)]
    assert shape(why(log, at(log, 6))) == [(0, 6)]


def test_a_command_id_as_cause_is_the_append_that_it_made(log: Ledger) -> None:
    log.append("lamp/a", LampMade(), LampRead(value=1), command="make-a")
    log.append("lamp/b", LampMade(), causation="make-a", command="make-b")
    log.append("lamp/c", LampMade(), causation="make-b")
    assert shape(why(log, at(log, 3))) == [(0, 1), (1, 3), (2, 4)]
    assert shape(why(log, at(log, 2))) == [(0, 2), (1, 3), (2, 4)], "also of an event that is not the first"


def test_causes_that_are_missing_are_named(log: Ledger) -> None:
    log.append("lamp/a", LampMade(), causation="nobody")
    log.append("lamp/a", LampRead(value=1), causation=77)
    log.append("lamp/a", Body("lamp.read", 1, "{}", meta='{"causation":{"a":1}}'))
    log.append("lamp/a", Body("lamp.read", 1, "{}", meta='{"causation":123456789012345678901234}'))
    notes = [why(log, at(log, position)).nodes[0].note for position in (1, 2, 3, 4)]
    assert notes == [
        "its cause, command 'nobody', is not recorded",
        "its cause, position 77, is not recorded",
        "its cause, command '{\"a\": 1}', is not recorded",
        "its cause, position 123456789012345678901234, is not recorded",
    ]


CIRCLES: list[tuple[list[int | None], int, list[tuple[int, int]]]] = [
    ([1], 1, [(0, 1)]),
    ([2, 1], 2, [(0, 1), (1, 2)]),
    ([3, 1, 2, 3], 4, [(0, 1), (1, 2), (2, 3), (3, 4)]),
    ([None, 4, 2, 3], 3, [(0, 2), (1, 3), (2, 4)]),
]


def test_a_circle_is_cut_open_and_told(log: Ledger) -> None:
    for causes, asked, expected in CIRCLES:
        before = log.bound()
        caused(log, [cause and before + cause for cause in causes])
        answer = why(log, at(log, before + asked))
        assert [(depth, position - before) for depth, position in shape(answer)] == expected
        first = answer.nodes[0]
        assert first.note == f"a circle: its cause, position {first.cause}, was caused by it"


def test_what_names_a_later_event_as_its_cause_is_found(log: Ledger) -> None:
    """Given 1 <- 4, and 2 and 3, recorded before 4, of which 3 names 4 as its cause, and 2 names 3."""
    caused(log, [None, 3, 4, 1])
    assert shape(why(log, at(log, 1))) == [(0, 1), (1, 4), (2, 3), (3, 2)]


def test_a_search_ends_at_its_limit_and_says_so(log: Ledger) -> None:
    caused(log, [None, *range(1, 10)])
    answer = why(log, at(log, 1), limit=4)
    assert (shape(answer), answer.more) == ([(0, 1), (1, 2), (2, 3), (3, 4)], True)
    assert not why(log, at(log, 1), limit=10).more
    assert len(why(log, at(log, 10), limit=1).nodes) == 10, "causes are not cut"


def test_a_search_is_bounded_in_time(log: Ledger, admin_dsn: str) -> None:
    """Given events of one request a day apart: what is within the span is found, and no more."""
    caused(log, [None] * 9, correlation="r")
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # time passes only in this test
        connection.execute("UPDATE ledger.events SET recorded_at = recorded_at + position * interval '1 day'")
    answer = why(log, at(log, 5), within=timedelta(days=1, hours=12))
    assert shape(answer) == [(0, 4), (0, 5), (0, 6)]
    assert answer.first <= 4
    assert answer.last in (6, 7)
    assert len(why(log, at(log, 5), within=None).nodes) == 9
    assert len(why(log, at(log, 5), within=timedelta.max).nodes) == 9


def test_a_cause_that_is_recorded_but_not_shown_is_named(log: Ledger) -> None:
    log.append("lamp/a", LampMade())
    log.append("lamp/b", LampMade(), causation=1, correlation="r")
    log.append("lamp/c", LampMade(), correlation="r")
    notes = {node.event.position: node.note for node in why(log, at(log, 3)).nodes}
    assert notes == {2: "its cause, position 1, is not among these", 3: ""}

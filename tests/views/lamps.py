"""Lamps for the tests of views: events of many streams, and the states that a plain fold finds."""

from __future__ import annotations

import random
from typing import Any

import psycopg

from ledger import Ledger
from ledger.domain.event import Event
from ledger.domain.topics import leads_to
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn


def lamps(log: Ledger, many: int, *, first: int = 0) -> None:
    """Two first events for each lamp that is new, one by chance for each that is not."""
    for number in range(first, first + many):
        stream = f"lamp/{number}"
        if log.head(stream) is None:
            log.append(stream, LampMade(), LampSwitchedOn())
        else:
            log.append(stream, random.choice([LampSwitchedOn(), LampBroke(), LampRead()]))


def states_by_hand(log: Ledger) -> list[tuple[str, str, int, int]]:
    """Stream, status, version and position of the last move of each stream, by a fold of the whole log."""
    found: dict[str, tuple[str, str, int, int]] = {}
    position, bound = 0, log.bound()
    while events := log.log(position, bound):
        position = events[-1].position
        for event in events:
            fact = event.event
            status = leads_to(fact) if isinstance(fact, Event) else None
            if status is not None:
                found[event.stream] = (event.stream, status, event.version, event.position)
    return sorted(found.values())


def rows(connection: psycopg.Connection[Any], table: str = "in_state") -> list[tuple[Any, ...]]:
    """What readers see."""
    found = connection.execute(f"SELECT stream, status, version, position FROM ledger_views.{table}")
    return sorted(found.fetchall())


def copies(connection: psycopg.Connection[Any]) -> list[str]:
    """The tables of all copies that there are."""
    wanted = "SELECT relname::text FROM pg_class WHERE relname ~ '^in_state_[0-9]+$' ORDER BY 1"
    return [name for (name,) in connection.execute(wanted)]

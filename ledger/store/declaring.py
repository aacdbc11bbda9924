"""What a domain declares to the ledger itself, so that views know it without having imported the domain."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..event import TOPICS
from ..names import checked_topic
from ..sets import SETS, UnitSet
from . import reading
from .ledger import Ledger
from .levels import declare_levels


class Move(NamedTuple):
    """The status that a topic leads to: always the same, or the text in a field of the event's body."""

    status: str | None = None
    field: str | None = None


def known_moves() -> dict[str, Move]:
    """What the event classes that this process has imported lead to, by topic."""
    return {
        topic: Move(field=kind.to_field) if kind.to_field else Move(kind.to and kind.to.value)
        for topic, kind in TOPICS.items()
        if kind.to_field or kind.to is not None
    }


def declare_moves(ledger: Ledger, moves: Mapping[str, Move] | None = None) -> list[str]:
    """Tell the ledger what topics lead to, by default all that this process knows; returns what is news.

    By default the levels of pipelines are declared too (`ledger.store.levels`). Needs the writer's or the
    projector's role. Raises BadName, NoPermission.
    """
    news = []
    if moves is None:
        declare_levels(ledger)
    wanted = known_moves() if moves is None else moves
    with ledger.reader() as connection:
        told = dict[str, Move]()
        for topic, status, field in reading.query(connection, ledger.schema, "moves"):
            told[topic] = Move(status, field)
        for topic, move in sorted(wanted.items()):
            if told.get(topic) != move:
                parameters = {"topic": checked_topic(topic), "status": move.status, "field": move.field}
                reading.query(connection, ledger.schema, "declare_move", **parameters)
                news.append(topic)
    return news


def declare_sets(ledger: Ledger, sets: Iterable[UnitSet] | None = None) -> list[str]:
    """Tell the ledger what is counted, by default all that this process knows.

    Returns the categories that are news. Needs the writer's or the projector's role. Raises NoPermission.
    """
    wanted = {one.category: one.row() for one in (SETS.values() if sets is None else sets)}
    with ledger.reader() as connection:
        told = dict(reading.query(connection, ledger.schema, "sets"))
        news = [category for category in sorted(wanted) if wanted[category] != told.get(category)]
        for category in news:
            reading.query(connection, ledger.schema, "declare_set", declared=json.dumps(wanted[category]))
    return news

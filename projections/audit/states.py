"""States: who was in which status at a moment and since when, and how long they stay in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger
from ledger.domain.names import checked
from ledger.domain.topics import known_statuses
from ledger.log.sql import Statements, run

from .moments import NOW, AsOf, Moment, as_of

SQL = Statements(__package__, "states")


_LAST = "\U0010ffff"


class Axis(StrEnum):
    """The time axis: the ledger's recorded times, or the times that clients claim.

    On the claimed axis the order of a stream is by claimed time, then by version; events that claim no time
    are not on it.
    """

    RECORDED = "recorded"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True)
class Question:
    """Which streams, which moment, and which time axis.

    category: the streams of one; stream: one stream; neither: all. moment: a position, or a time on the axis.
    upto: on the claimed axis, only events up to this position: what was known then about that time.
    """

    moment: Moment = NOW
    category: str | None = None
    stream: str | None = None
    axis: Axis = Axis.RECORDED
    upto: int | None = None


class InState(NamedTuple):
    """A stream in a status: since when, and the event that led to it."""

    stream: str
    status: str
    since: datetime
    version: int
    position: int


class Count(NamedTuple):
    """How many streams of a category are in a status."""

    category: str
    status: str
    streams: int


class Stay(NamedTuple):
    """A stream in a status from `since` to `until`, which is None if the stay is open.

    version, position: of the event that began it. seconds: of an open stay, up to the moment.
    """

    stream: str
    status: str
    since: datetime
    until: datetime | None
    version: int
    position: int
    seconds: float


class Dwell(NamedTuple):
    """How long the streams of a category, or one stream, stay in a status: number of stays, and seconds.

    open: how many of them are open; they count up to the moment. p95: the 95th percentile.
    """

    subject: str
    status: str
    stays: int
    open: int
    median: float
    p95: float
    longest: float
    total: float


def states(
    ledger: Ledger, question: Question, *, status: str | None = None, limit: int | None = None
) -> tuple[AsOf, list[InState]]:
    """Which streams were in which status at a moment, by name. Raises BadInput."""
    found, rows = _ask(ledger, question, "states_at", status=status, limit=limit)
    return found, [InState(*row) for row in rows]


def counts(ledger: Ledger, question: Question, *, status: str | None = None) -> tuple[AsOf, list[Count]]:
    """How many streams were in which status at a moment, by category. Raises BadInput."""
    found, rows = _ask(ledger, question, "counts_at", status=status)
    return found, [Count(*row) for row in rows]


def stays(ledger: Ledger, question: Question) -> tuple[AsOf, list[Stay]]:
    """Every stay of every stream in a status, up to a moment. Raises BadInput."""
    found, rows = _ask(ledger, question, "stays_of")
    return found, [Stay(*row) for row in rows]


def dwell(ledger: Ledger, question: Question, *, each: bool = False) -> tuple[AsOf, list[Dwell]]:
    """How long streams stay in each status, up to a moment; by category or by stream. Raises BadInput."""
    found, rows = _ask(ledger, question, "dwell", each=each)
    return found, [Dwell(*row) for row in rows]


def _ask(ledger: Ledger, question: Question, name: str, **more: Any) -> tuple[AsOf, Iterable[Sequence[Any]]]:
    """The moment's meaning, and the rows of a statement that begins with that of `stays`; times in UTC."""
    known = dict(sorted(known_statuses().items()))
    found, until = _end(ledger, question)
    parameters = {
        "position": found.position,
        "until": until,
        "claimed": question.axis is Axis.CLAIMED,
        "topics": list(known),
        "statuses": [one.status for one in known.values()],
        "fields": [one.field for one in known.values()],
        **_range(question),
        **more,
    }
    composed = SQL.stays.filled(ledger.schema) + SQL[name].filled(ledger.schema)
    with ledger.reader() as connection:
        rows = psycopg.Cursor(connection, row_factory=tuple_row).execute(composed, parameters).fetchall()
    return found, (tuple(map(_in_utc, row)) for row in rows)


def _range(question: Question) -> dict[str, str | None]:
    """The streams of a question as a range of names: `low` itself, and all from `below` to before `high`."""
    match question:
        case Question(category=str(), stream=str()):
            raise BadInput("give a category or a stream, not both")
        case Question(stream=str(name)):
            return {"low": checked(name), "below": None, "high": f"{name}\x01"}
        case Question(category=str(name)):  # 0 is the character after /
            return {"low": checked(name), "below": f"{name}/", "high": f"{name}0"}
        case _:
            return {"low": "", "below": "", "high": _LAST}


def _end(ledger: Ledger, question: Question) -> tuple[AsOf, datetime | None]:
    """What the moment means, and the time up to which stays that are open count."""
    if question.moment.version is not None:
        raise BadInput("a version belongs to one stream: give a position or a time")
    if question.axis is Axis.CLAIMED:
        return _end_of_claimed(ledger, question)
    if question.upto is not None:
        raise BadInput("`upto` is for the claimed axis; on the recorded axis give a position")
    found = as_of(ledger, question.moment)
    ((last, now),) = ledger.query(SQL.end_of_recorded, position=found.position)
    if question.moment.position is not None:
        return found, last
    return found, now if found.time is None else min(found.time, now)


def _end_of_claimed(ledger: Ledger, question: Question) -> tuple[AsOf, datetime | None]:
    at = question.moment.time
    upto = question.upto if question.upto is not None else question.moment.position
    known = as_of(ledger, NOW if upto is None else Moment(position=upto))
    with ledger.reader() as connection:
        if at is None:
            ((last,),) = run(connection, ledger.schema, SQL.last_claimed, position=known.position)
            return known, last
        ((more,),) = run(connection, ledger.schema, SQL.claims_after, position=known.position, at=at)
    return AsOf(known.position, at, beyond=not more), at


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value

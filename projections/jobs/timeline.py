"""What happened to a job: its events and those of its batches, in the order in which they were recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from ledger import BadInput, Event, Ledger, Recorded
from ledger.errors import shown
from ledger.event import Unknown
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.facts import Reported, RetryLater
from ledger.jobs.job import JobCommented
from ledger.jobs.submitting import checked_id
from ledger.names import stream_name
from ledger.store import reading

from ..sql import query

MANY: Final = 2000
"""Batches of a job beyond which its events are looked for among those of the log first."""
STRETCH: Final = 50_000
"""Positions of the log that are looked at so."""
MOST: Final = 10_000
"""Rows of a page at most."""
ERRORS: Final = frozenset({"failed", "lease_expired"})
WARNINGS: Final = frozenset({"attempt_failed", "lease_expired_requeue", "queue_stall_requeue", "late_result"})
_UNSHOWN: Final = frozenset({"message", "text", "payload", "meta", "token"})


class Entry(NamedTuple):
    """A line of a timeline. position: its place, for the next page; stream: of the job or one of its batches.

    event: the topic, or what the operation itself said; of a batch with `child.` in front (spec S1-46).
    level: info, warning, error. fields: all else that the fact says, without what is null.
    """

    position: int
    at: datetime
    level: str
    event: str
    message: str | None
    fields: Mapping[str, Any]
    stream: str


def timeline(ledger: Ledger, id: str | UUID, after: int = 0, limit: int = 200) -> list[Entry]:
    """The events of a job and of its batches after a position, the oldest first.

    Only what is safe to read: who goes on after the last position that was seen misses nothing. limit: 1 to
    10,000. Raises BadInput, StreamNotFound.
    """
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadInput(f"limit {shown(limit)} must be from 1 to {MOST}")
    job = checked_id(id)
    rows = _rows(ledger, job, after, ledger.bound(), limit)
    if not rows:
        ledger.read(OpenJob.name_of(job), limit=1)  # is it there at all?
    return [entry(reading.recorded(row)) for row in rows]


def _rows(ledger: Ledger, job: str, after: int, bound: int, limit: int) -> list[tuple[Any, ...]]:
    """The rows of a page. A job of very many batches filled its part of the log: there its events are found
    without looking at all of them, unless too few are near.
    """
    start = stream_name(OpenBatch.CATEGORY, job)
    names = {"job": OpenJob.name_of(job), "start": f"{start}/", "end": f"{start}0"}
    page = {**names, "upto": bound, "limit": limit}
    with ledger.reader() as connection:
        ((many,),) = query(connection, ledger.schema, "many_batches", many=MANY, **names)
        if many:
            near = {**page, "after": after, "upto": min(bound, after + STRETCH)}
            rows = query(connection, ledger.schema, "timeline_of_log", **near)
            if len(rows) == limit:
                return rows
        return query(connection, ledger.schema, "timeline_of_streams", after=after, **page)


def entry(recorded: Recorded) -> Entry:
    """An event of a job or a batch as a line of its timeline."""
    event = recorded.event
    category, _, word = recorded.topic.partition(".")
    child = category == OpenBatch.CATEGORY
    name = event.event if isinstance(event, Reported) else word if child else recorded.topic
    level = "error" if word in ERRORS else "warning" if word in WARNINGS else "info"
    if isinstance(event, Reported):
        level = event.level
    return Entry(
        recorded.position, recorded.recorded_at, level, f"child.{name}" if child else name,
        _message(event), _fields(recorded, event), recorded.stream,
    )  # fmt: skip


def _message(event: Event | Unknown) -> str | None:
    """The words that come with it."""
    match event:
        case RetryLater():
            return event.reason
        case JobCommented():
            return event.text
        case Event():
            return getattr(event, "message", None) or None
        case _:
            return None


def _fields(recorded: Recorded, event: Event | Unknown) -> dict[str, Any]:
    """What else it says: of what was reported the fields themselves, of a birth not the payload."""
    said: dict[str, Any] = json.loads(recorded.data or "{}")
    if isinstance(event, Reported):
        progress = {name: said.get(name) for name in ("progress_current", "progress_total")}
        return {**said["fields"], **{k: v for k, v in progress.items() if v is not None}}
    if isinstance(event, Unknown):
        return said
    usual = _usual(type(event))
    unshown = _UNSHOWN | ({"reason"} if isinstance(event, RetryLater) else set[str]())
    return {k: v for k, v in said.items() if k not in unshown and v is not None and usual.get(k) != v}


@cache
def _usual(kind: type[Event]) -> dict[str, Any]:
    """Values with which fields say nothing; the queue is always told (spec 2.3)."""
    fields = kind.model_fields.items()
    defaults = {k: f.default for k, f in fields if not f.is_required() and k != "queue"}
    return {k: [] if v == () else v for k, v in defaults.items()}

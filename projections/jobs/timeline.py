"""The timeline of a job: its events and those of its batches, in the order of the log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from ledger import BadInput, Event, Ledger, Recorded, UnreadableEvent
from ledger.domain import canonical_json
from ledger.domain.names import stream_name
from ledger.domain.topics import Unknown, with_former
from ledger.errors import shown
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.facts import Reported, RetryLater
from ledger.jobs.job import JobCommented
from ledger.jobs.jobs import checked_id
from ledger.log import read
from ledger.log.cursor import Checkpoint
from ledger.log.sql import Statements, run

Connection = psycopg.Connection[Any]
SQL = Statements(__package__, "timeline")
MANY_BATCHES: Final = 2000
"""With more batches than this, a job's events are searched in a range of the log first."""
STRETCH: Final = 50_000
"""Positions in such a range."""
MAX_ROWS: Final = 10_000
"""Maximum rows of a page."""
ERRORS: Final = frozenset({"failed", "lease_expired"})
WARNINGS: Final = frozenset({"attempt_failed", "lease_expired_requeue", "queue_stall_requeue", "late_result"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HIDDEN: Final = frozenset({"message", "text", "payload", "meta", "token"})


class Entry(NamedTuple):
    """A line of a timeline. position: its place, for the next page; stream: of the job or one of its batches.

    event: the topic, or the event that the operation emitted; of a batch with `child.` in front (spec S1-46).
    level: info, warning, error. fields: all other fields of the fact that are not null.
    """

    position: int
    at: datetime
    level: str
    event: str
    message: str | None
    fields: Mapping[str, Any]
    stream: str


def timeline(ledger: Ledger, id: str | UUID, after: int | Checkpoint = 0, limit: int = 200) -> list[Entry]:
    """The events of a job and of its batches after a position, oldest first.

    Only what is safe to read: a caller who continues after the last position misses nothing. after: a
    Checkpoint moves behind what is returned; after a restore it raises CursorMismatch. limit: 1 to 10,000.
    Raises BadInput, StreamNotFound.
    """
    _check_limit(limit)
    job = checked_id(id)
    checkpoint = after if isinstance(after, Checkpoint) else Checkpoint(ledger.identity.ledger, after)
    with ledger.reader() as connection:
        ((bound,),) = run(connection, ledger.schema, read.SQL.bound, known=-1)
        if checkpoint is after:
            checkpoint.settle(connection, ledger.schema, bound)
        rows = _rows(connection, ledger.schema, job, checkpoint.position, bound, limit)
        if checkpoint is after:
            checkpoint.confirm(connection, ledger.schema, rows[-1][0] if rows else None)
    if not rows:
        ledger.read(OpenJob.name_of(job), limit=1)  # does it exist?
    return [entry(read.recorded(row)) for row in rows]


def newest(
    ledger: Ledger,
    id: str | UUID,
    *,
    after: int = 0,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 200,
) -> list[Entry]:
    """The newest events of a job and of its batches, newest first (spec 2.7): lines of `newest_events`."""
    found = newest_events(ledger, id, after=after, since=since, before=before, limit=limit)
    return [entry(one) for one in found]


def newest_events(
    ledger: Ledger,
    id: str | UUID,
    *,
    after: int = 0,
    since: datetime | None = None,
    before: int | None = None,
    limit: int = 200,
) -> list[Recorded]:
    """The newest events of a job and of its batches as they were recorded, newest first.

    Only what is safe to read: whoever asks again `after` the first position misses nothing. since: only those
    recorded after this time; before: only older ones than this position, for the next page. limit: 1 to
    10,000. Raises BadInput, StreamNotFound.
    """
    _check_limit(limit)
    job = checked_id(id)
    place: dict[str, Any] = {"after": after, "since": since, "before": before, "limit": limit}
    rows = ledger.query(SQL.newest, **{**place, **_names(job)})
    if not rows:
        ledger.read(OpenJob.name_of(job), limit=1)  # does it exist?
    return [read.recorded(row) for row in rows]


def is_newest(ledger: Ledger, id: str | UUID, known: Recorded) -> bool:
    """Whether no event of a job and of its batches follows this one, and it is there as it was recorded.

    For clients that poll: a quarter of the work of `newest_events`, because the server needs no bound, and
    writes what it finds as one text, as this function writes what is known. Raises BadInput.
    """
    names, after = _names(checked_id(id)), str(known.position - 1)
    found = ledger.text(SQL.written_after, names["job"], after, names["start"], names["end"], after)
    micros = (known.recorded_at - _EPOCH) // timedelta(microseconds=1)
    parts = [known.position, micros, known.stream, known.version, known.topic, known.schema, known.data]
    return found == " ".join(str(part) for part in parts if part is not None)


class Comment(NamedTuple):
    """A comment on a job (spec S1-03). position: its place, for the next page."""

    position: int
    at: datetime
    author: str | None
    text: str


def comments(
    ledger: Ledger, id: str | UUID, *, after: int = 0, since: datetime | None = None, limit: int = 200
) -> list[Comment]:
    """The comments on a job after a position, oldest first; since: only those recorded after this time.

    Only what is safe to read, as in `newest`. limit: 1 to 10,000. Raises BadInput, StreamNotFound.
    """
    _check_limit(limit)
    job = OpenJob.name_of(checked_id(id))
    place = {"after": after, "since": since, "limit": limit}
    topics = sorted(with_former([JobCommented.topic]))
    with ledger.reader() as connection:
        ((bound,),) = run(connection, ledger.schema, read.SQL.bound, known=-1)
        rows = run(connection, ledger.schema, SQL.comments, job=job, **place, topics=topics, upto=bound)
    if not rows:
        ledger.read(job, limit=1)  # does it exist?
    return [one for row in rows if (one := comment_of(read.recorded(row))) is not None]


def comment_of(recorded: Recorded) -> Comment | None:
    """An event of a job as a comment; None if it is no readable one."""
    try:
        event = recorded.event
    except UnreadableEvent:
        return None
    if not isinstance(event, JobCommented):
        return None
    return Comment(recorded.position, recorded.recorded_at, event.author, event.text)


def _check_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= MAX_ROWS:
        raise BadInput(f"limit {shown(limit)} must be from 1 to {MAX_ROWS}")


def _names(job: str) -> dict[str, str]:
    """The job's stream, and the names between which those of its batches are."""
    start = stream_name(OpenBatch.CATEGORY, job)
    return {"job": OpenJob.name_of(job), "start": f"{start}/", "end": f"{start}0"}


def _rows(
    connection: Connection, schema: str, job: str, after: int, bound: int, limit: int
) -> list[tuple[Any, ...]]:
    """The rows of a page. A job of very many batches fills a part of the log: its events are first searched
    there, and in the whole log only if too few are found.
    """
    names = _names(job)
    page = {**names, "upto": bound, "limit": limit}
    ((many,),) = run(connection, schema, SQL.many_batches, many=MANY_BATCHES, **names)
    if many:
        near = {**page, "after": after, "upto": min(bound, after + STRETCH)}
        rows = run(connection, schema, SQL.timeline_of_log, **near)
        if len(rows) == limit:
            return rows
    return run(connection, schema, SQL.timeline_of_streams, after=after, **page)


def entry(recorded: Recorded) -> Entry:
    """An event of a job or a batch as a line of its timeline."""
    try:
        event = recorded.event
    except UnreadableEvent as error:
        return _unread(recorded, error)
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


def _unread(recorded: Recorded, error: UnreadableEvent) -> Entry:
    """The line of an event whose body does not fit its topic."""
    found = canonical_json.parsed(recorded.data or "{}")
    fields = found if isinstance(found, dict) else {}
    return Entry(
        recorded.position, recorded.recorded_at, "error", recorded.topic, error.why, fields, recorded.stream
    )


def _message(event: Event | Unknown) -> str | None:
    """The message of an event."""
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
    """Its other fields: of a report the reported fields themselves, of a birth all but the payload."""
    parsed = canonical_json.parsed(recorded.data or "{}")
    found: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    if isinstance(event, Reported):
        progress = {name: found.get(name) for name in ("progress_current", "progress_total")}
        return {**found["fields"], **{k: v for k, v in progress.items() if v is not None}}
    if isinstance(event, Unknown):
        return found
    defaults = _defaults(type(event))
    hidden = _HIDDEN | ({"reason"} if isinstance(event, RetryLater) else set[str]())
    return {k: v for k, v in found.items() if k not in hidden and v is not None and defaults.get(k) != v}


@cache
def _defaults(kind: type[Event]) -> dict[str, Any]:
    """Default values, which are not shown; the queue always is (spec 2.3)."""
    fields = kind.model_fields.items()
    defaults = {k: f.default for k, f in fields if not f.is_required() and k != "queue"}
    return {k: [] if v == () else v for k, v in defaults.items()}

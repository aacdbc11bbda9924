"""`pledger schedules`: jobs that are submitted repeatedly, at the times of a cron expression."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotThere
from ..output import Column, iso, json_line, plain, time, titled, write
from ..session import AsJson, Session, session_of
from .options import STATUSES, Reason, meta_of, payload_of, seconds_of, short
from .submit import (
    Attempts,
    Description,
    Fields,
    File,
    Key,
    Meta,
    Operation,
    Payload,
    Priority,
    Queue,
    Tags,
    Timeout,
    Unique,
    unique_of,
)

if TYPE_CHECKING:
    from ledger.jobs.schedule import Schedule
    from ledger.jobs.schedules import Schedules

_log = logging.getLogger(__name__)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Cron = Annotated[
    str,
    typer.Argument(metavar="CRON", help="When: minute, hour, day, month, weekday, such as '*/5 * * * *'."),
]
Zone = Annotated[str, typer.Option(metavar="ZONE", help="The time zone of CRON, such as Europe/Berlin.")]
CatchUp = Annotated[
    str,
    typer.Option(
        "--catch-up", metavar="HOW", help="Which missed times are made up for: latest, all or none."
    ),
]
NoOverlap = Annotated[
    bool, typer.Option("--no-overlap", help="Submit no job while the last one has not finished.")
]
Removed = Annotated[bool, typer.Option("--removed", help="List removed schedules too.")]
Many = Annotated[int, typer.Option("--count", metavar="N", min=1, max=1000, help="How many times.")]


def set_(
    context: typer.Context,
    name: Name,
    cron: Cron,
    operation: Operation,
    values: Fields = None,
    payload: Payload = None,
    payload_file: File = None,
    timezone: Zone = "UTC",
    catch_up: CatchUp = "latest",
    no_overlap: NoOverlap = False,
    queue: Queue = "default",
    priority: Priority = 0,
    unique: Unique = False,
    unique_key: Key = None,
    tag: Tags = None,
    description: Description = None,
    meta: Meta = None,
    max_attempts: Attempts = 1,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job at the times of a cron expression, from now on.

    Workers submit it. Each time fires once, however many workers run. Setting a schedule again changes it; a
    paused one stays paused.

    \b
    Examples:
      pledger schedules set nightly '30 2 * * *' clean days=30 --timezone Europe/Berlin

    JSON: name, status, changed (whether by this call), next (its next time; null while it is paused).
    """
    session = session_of(context, as_json)
    what = payload_of(payload, payload_file, values or [])
    given: dict[str, Any] = {
        "timezone": timezone, "catch_up": catch_up, "overlap": not no_overlap, "queue": queue,
        "unique": unique_of(unique, unique_key),
    }  # fmt: skip
    given |= _fields(priority, tag, description, meta, max_attempts, timeout)
    with schedules_of(session) as schedules:
        changed = schedules.set(name, cron, operation, what, **given)
        _tell(session, schedules, name, changed)


def _fields(
    priority: int, tags: list[str] | None, description: str | None, meta: list[str] | None, attempts: int,
    timeout: str | None,
) -> dict[str, Any]:  # fmt: skip
    """Fields of the jobs; those without a value are left out, so that setting it again changes nothing."""
    given = {
        "priority": priority or None, "tags": tags or None, "description": description,
        "meta": meta_of(meta or []) or None, "max_attempts": None if attempts == 1 else attempts,
        "timeout_seconds": seconds_of(timeout, "--timeout"),
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def list_(context: typer.Context, removed: Removed = False, as_json: AsJson = False) -> None:
    """List the schedules by name, with their next time and their last job.

    JSON, one object per line, as for `pledger schedules show`.
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        found = schedules.list(removed=removed)
    columns = [Column("schedule", keep=True), Column("status"), Column("when", keep=True),
               *titled("operation", "next", "last"), Column("fired", number=True)]  # fmt: skip
    session.print_rows(found, columns, _row, data=_object, styles=STATUSES)
    if not found:
        session.say("there is no schedule; make one with `pledger schedules set`")


def show(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show one schedule.

    JSON, one object: name, status, cron, timezone, operation, queue, payload, fields (of its jobs), catch_up,
    overlap, unique, after (times up to it have been handled), last_at, last_job, fired, skipped, next (null
    while it is paused or removed).
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        found = _object(schedules.get(name))
    shown = {key: _cell(value) for key, value in found.items() if value not in (None, {}, False)}
    session.print_fields(found, shown)


def pause(context: typer.Context, name: Name, reason: Reason = None, as_json: AsJson = False) -> None:
    """Pause a schedule: it submits nothing until it is resumed.

    JSON: name, status, changed (whether by this call), next.
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        _tell(session, schedules, name, schedules.pause(name, reason))


def resume(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Resume a schedule; the times during the pause are skipped.

    JSON: name, status, changed (whether by this call), next.
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        _tell(session, schedules, name, schedules.resume(name))


def remove(context: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Remove a schedule; its jobs and its history stay.

    JSON: name, status, changed (whether by this call), next.
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        _tell(session, schedules, name, schedules.remove(name))


def next_(context: typer.Context, name: Name, count: Many = 5, as_json: AsJson = False) -> None:
    """Print the next times of a schedule; none while it is paused or removed.

    JSON, one object per line: at.
    """
    session = session_of(context, as_json)
    with schedules_of(session) as schedules:
        schedule = schedules.get(name)
        times = schedule.next_times(count)
    for at in times:
        json_line({"at": iso(at)}) if session.json else write(f"{time(at)}\n")
    if not times:
        session.say(f"the schedule is {schedule.status}: it has no next time")


@contextmanager
def schedules_of(session: Session) -> Iterator[Schedules]:
    """The schedules of the ledger, for one command. Raises NotThere for one that does not exist."""
    with session.ledger() as log:
        from ledger.errors import StreamNotFound
        from ledger.jobs.schedules import Schedules

        try:
            yield Schedules(log)
        except StreamNotFound as error:
            name = error.stream.partition("/")[2]
            wrong = f"there is no schedule {name}; `pledger schedules list` lists the schedules"
            raise NotThere(wrong, name=name) from None


def _tell(session: Session, schedules: Schedules, name: str, changed: bool) -> None:
    schedule = schedules.get(name)
    comes = _next(schedule)
    row = {"name": name, "status": schedule.status, "changed": changed, "next": comes}
    columns = [Column("schedule", keep=True), *titled("status", "next")]
    session.print_rows([row], columns, itemgetter("name", "status", "next"), styles=STATUSES)
    if not changed:
        session.say("nothing changed")


def _next(schedule: Schedule) -> Any:
    """Its next time; None if it has none, or if its cron expression is invalid, which is reported."""
    from ledger import BadInput

    try:
        return next(iter(schedule.next_times(1)), None)
    except BadInput as error:
        _log.warning("schedule %s: %s", schedule.name, error)
        return None


def _object(schedule: Schedule) -> dict[str, Any]:
    comes = _next(schedule)
    return {**plain(schedule), "next": comes and iso(comes)}


def _row(schedule: Schedule) -> list[Any]:
    when = f"{schedule.cron} {schedule.timezone}"
    comes, last = _next(schedule), short(schedule.last_job)
    return [schedule.name, schedule.status, when, schedule.operation, comes, last, schedule.fired]


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
